"""`latewood db`: make, list, fork and let go of the databases of a store."""

from pathlib import Path
from typing import Any

import click

from latewood.cli.arguments import DURATION, SIZE
from latewood.cli.confirmation import confirmed
from latewood.cli.output import Output, output_format
from latewood.cli.store_argument import DatabasePath, database_argument, store_argument

# ruff: noqa: PLC0415 - LMDB and Arrow are loaded when a command runs, not for its help


@click.group()
def db() -> None:
    """Make, list, fork and let go of the databases of a store."""


@db.command()
@store_argument
@click.argument("name", metavar="DATABASE")
@click.option("--shards", type=click.IntRange(min=1), default=1, show_default=True, help="Logs that it is made of.")
@click.option("--keyed/--no-keys", "keyed", default=None, help="Whether records may have keys.  [default: keyed]")
@click.option("--segment-bytes", type=SIZE, help="Roll before a segment passes this size.  [default: 64MiB]")
@click.option("--segment-age", type=DURATION, help="Roll a segment that is this old.")
@click.option("--chunk-bytes", type=SIZE, help="About so large a chunk becomes.  [default: 64MiB]")
@click.option("--compression-level", type=click.IntRange(1, 22), help="Of zstd, in chunks.  [default: 1]")
@click.option("--key-id", metavar="ID", help="Encrypt chunks with this key.")
@click.option("--retain-bytes", type=SIZE, help="Chunks of all tiers may take so much; the oldest go first.")
@click.option("--retain-age", type=DURATION, help="Let go of chunks whose youngest record is older.")
@click.option("--evict-after", type=DURATION, help="Remove local files so long after they were archived.")
@click.option("--purge-after", type=DURATION, help="Remove objects so long after retention let go of them.")
@click.option("--grace", type=DURATION, help="Keep what a compaction has replaced for so long.  [default: 15m]")
@click.option("--if-missing", is_flag=True, help="Do nothing, and succeed, if there is one already.")
def create(path: Path, name: str, shards: int, *, if_missing: bool, **options: Any) -> int:
    """Make a database in STORE, which is made too if it is not there.

    Shards and keys are for ever.  What is not given is as the store's settings say under [database].
    """
    from latewood.cli.db_actions import create_database

    return create_database(path, name, shards, options, if_missing=if_missing)


@db.command()
@store_argument
@output_format
def ls(path: Path, output: Output) -> int:
    """List the databases of STORE, with what they have in which tier.  Works beside a writer."""
    from latewood.cli.db_actions import list_databases

    return list_databases(path, output)


@db.command()
@database_argument
@output_format
def info(place: DatabasePath, output: Output) -> int:
    """Show a database: its options, its figures, and its shards.  Works beside a writer."""
    from latewood.cli.db_actions import show_database

    return show_database(place, output)


@db.command()
@database_argument
def drain(place: DatabasePath) -> int:
    """Let a database take no more records.  Jobs and reading go on."""
    from latewood.cli.db_actions import change_database

    return change_database(place, "drain")


@db.command()
@database_argument
def activate(place: DatabasePath) -> int:
    """Let a database that was drained take records again."""
    from latewood.cli.db_actions import change_database

    return change_database(place, "activate")


@db.command()
@database_argument
@confirmed
def drop(place: DatabasePath, *, dry_run: bool, yes: bool) -> int:
    """Let go of a database.  Its name is free at once; its files and objects stay until `latewood db purge`."""
    from latewood.cli.db_actions import drop_database

    return drop_database(place, dry_run=dry_run, yes=yes)


@db.command()
@database_argument
@click.argument("new_name", metavar="NEW")
def fork(place: DatabasePath, new_name: str) -> int:
    """Make the database NEW, which begins as the chunks of another are now, and shares their files.

    What the other has only in its logs is not part of it: `latewood flush` it first.
    """
    from latewood.cli.db_actions import fork_database

    return fork_database(place, new_name)


@db.command()
@store_argument
@confirmed
@output_format
def purge(path: Path, output: Output, *, dry_run: bool, yes: bool) -> int:
    """Remove for good what is left of databases that were dropped: their logs, chunks and objects.

    One whose chunks a fork shares stays, out of sight, until the fork needs them no more.
    """
    from latewood.cli.db_actions import purge_databases

    return purge_databases(path, output, dry_run=dry_run, yes=yes)
