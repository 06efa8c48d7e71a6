"""`latewood chunks`: list the chunks of a store, and look into them.  Works beside a writer."""

from pathlib import Path

import click

from latewood.cli.output import Output, output_format
from latewood.cli.store_argument import DatabasePath, database_argument, databases_argument

# ruff: noqa: PLC0415 - LMDB and Arrow are loaded when a command runs, not for its help


@click.group()
def chunks() -> None:
    """List the chunks of a store, and look into them."""


@chunks.command()
@databases_argument
@click.option("--shard", type=click.IntRange(min=0), help="Only chunks of this shard.")
@click.option("--all", "is_all", is_flag=True, help="Also those that others replaced, or that are on their way out.")
@output_format
def ls(path: Path, names: tuple[str, ...], shard: int | None, output: Output, *, is_all: bool) -> int:
    """List the chunks of these databases of STORE, or of all, in the order of their records."""
    from latewood.cli.chunk_look import list_chunks

    return list_chunks(path, names, shard, output, is_all=is_all)


@chunks.command()
@database_argument
@click.argument("chunk_id", type=click.IntRange(min=1))
@click.option("--deep", is_flag=True, help="Read all of it, and check every checksum.")
@output_format
def inspect(place: DatabasePath, chunk_id: int, output: Output, *, deep: bool) -> int:
    """Show what the catalog and the chunk itself say.  It is opened wherever it is.  Exits 4 if it is damaged."""
    from latewood.cli.chunk_look import inspect_chunk

    return inspect_chunk(place, chunk_id, output, deep=deep)
