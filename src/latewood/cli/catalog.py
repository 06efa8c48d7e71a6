"""`latewood catalog`: look at a catalog, and check it.  Works beside a writer, and changes nothing."""

from pathlib import Path

import click

from latewood.cli.catalog_argument import catalog_argument
from latewood.cli.output import Output, output_format

# ruff: noqa: PLC0415 - LMDB is loaded when a command runs, not for its help


@click.group()
def catalog() -> None:
    """Look at a catalog, and check it.  CATALOG is its file, or the directory of its store."""


@catalog.command()
@catalog_argument
@output_format
def info(path: Path, output: Output) -> int:
    """Show a catalog in figures: sizes, generation, session, databases and jobs."""
    from latewood.cli.catalog_look import show_info

    return show_info(path, output)


@catalog.command()
@catalog_argument
@output_format
def tables(path: Path, output: Output) -> int:
    """List the tables of a catalog."""
    from latewood.cli.catalog_look import list_tables

    return list_tables(path, output)


@catalog.command()
@catalog_argument
@click.argument("table", required=False)
@click.option("--limit", type=click.IntRange(min=1), help="Of each table, no more rows than this.")
@output_format
def dump(path: Path, table: str | None, limit: int | None, output: Output) -> int:
    """Print the rows of TABLE, or of all tables: keys and records with the names of their fields.

    Rows are read a page at a time: beside a writer the pages are not of one moment.
    """
    from latewood.cli.catalog_look import dump_rows

    return dump_rows(path, table, limit, output)


@catalog.command()
@catalog_argument
@output_format
def check(path: Path, output: Output) -> int:
    """Read every row in a process of its own, and check that the tables agree.  Exits 4 if something is damaged."""
    from latewood.cli.catalog_look import check_catalog

    return check_catalog(path, output)


@catalog.command()
@catalog_argument
@click.option("--cursor", metavar="NAME", help="Only what this cursor has not acknowledged.")
@click.option("--limit", type=click.IntRange(min=1), help="No more changes than this.")
@output_format
def changes(path: Path, cursor: str | None, limit: int | None, output: Output) -> int:
    """Print the change log: which rows changed, by generation.  It is kept only while there is a cursor.

    Exits 1 if the log dropped changes that the cursor had not acknowledged.
    """
    from latewood.cli.catalog_look import list_changes

    return list_changes(path, cursor, limit, output)
