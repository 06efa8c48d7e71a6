"""What `latewood db` prints and does.  Apart from the commands, so that their help loads no LMDB."""

from pathlib import Path
from typing import Any, Literal

from latewood.catalog.tables import DbTombstoned
from latewood.cli.confirmation import ask
from latewood.cli.errors import ExitCode, say
from latewood.cli.output import Output
from latewood.cli.place import check_free
from latewood.cli.store_argument import DatabasePath, find_database, open_store
from latewood.cli.store_figures import (
    DATABASE_BRIEF,
    DATABASE_COLUMNS,
    database_row,
    option_fields,
    problems_of,
    shard_rows,
)
from latewood.runtime import Store
from latewood.runtime.database import ShardStats

_OPTIONS = {
    "keyed": "keyed",
    "segment_bytes": "segment_bytes_max",
    "segment_age": "segment_age_max_ms",
    "chunk_bytes": "chunk_bytes",
    "compression_level": "compression_level",
    "key_id": "key_id",
    "retain_bytes": "retention_max_bytes",
    "retain_age": "retention_max_age_ms",
    "evict_after": "evict_local_after_ms",
    "purge_after": "purge_remote_after_ms",
    "grace": "grace_ms",
}
"""Options of the command, and what the library calls them."""
_DONE = {"drain": "takes no more records", "activate": "takes records"}


def create_database(path: Path, name: str, shards: int, options: dict[str, Any], *, if_missing: bool) -> int:
    """Do what `latewood db create` says."""
    chosen = {_OPTIONS[option]: value for option, value in options.items() if value is not None}
    check_free(path, f"`latewood db create STORE {name}` makes one there")
    with Store.open(path) as store:
        if any(record.name == name for _, record in store.databases()):
            say(f"there is a database {name!r} in {path} already")
            return ExitCode.OK if if_missing else ExitCode.FAILED
        store.create_database(name, shards, **chosen)
    say(f"made database {name!r} with {shards:,} {'shard' if shards == 1 else 'shards'} in {path}")
    return ExitCode.OK


def list_databases(path: Path, output: Output) -> int:
    """Do what `latewood db ls` says."""
    with open_store(path) as store:
        known = store.databases()
        rows = [database_row(store, db_id, record) for db_id, record in known]
        problems = [line for _, record in known for line in problems_of(store.database(record.name))]
    output.rows(DATABASE_COLUMNS, rows, brief=DATABASE_BRIEF)
    for line in problems:
        say(line)
    return ExitCode.OK


def show_database(place: DatabasePath, output: Output) -> int:
    """Do what `latewood db info` says."""
    with open_store(place.root) as store:
        database = find_database(store, place.name)
        record = database.record
        row = dict(zip(DATABASE_COLUMNS, database_row(store, database.db_id, record), strict=True))
        summary = (
            row
            | option_fields(record)
            | {"identity": record.identity.hex() if record.identity else None}
            | {"path": store.layout.located(record.options.wal_dir).root}
        )
        rows, problems = shard_rows(database), problems_of(database)
    output.report(summary, "shards", ShardStats._fields, rows)
    for line in problems:
        say(line)
    return ExitCode.OK


def change_database(place: DatabasePath, what: Literal["drain", "activate"]) -> int:
    """Do what `latewood db drain` and `latewood db activate` say."""
    with open_store(place.root, "w") as store:
        find_database(store, place.name)
        (store.drain if what == "drain" else store.activate)(place.name)
    say(f"database {place.name!r} {_DONE[what]}")
    return ExitCode.OK


def drop_database(place: DatabasePath, *, dry_run: bool, yes: bool) -> int:
    """Do what `latewood db drop` says."""
    with open_store(place.root, "r" if dry_run else "w") as store:
        database = find_database(store, place.name)
        records = sum(shard.next_sequence - shard.first_sequence for shard in database.stats())
        what = f"database {place.name!r} with {records:,} records"
        if dry_run:
            say(f"would drop {what}")
        elif ask(f"Drop {what}?", yes=yes):
            store.drop(place.name)
            say(f"dropped {what}; its files stay until they are purged")
        else:
            say("nothing was dropped")
            return ExitCode.FAILED
    return ExitCode.OK


def fork_database(place: DatabasePath, new_name: str) -> int:
    """Do what `latewood db fork` says."""
    with open_store(place.root, "w") as store:
        find_database(store, place.name)
        made = store.fork(place.name, new_name)
        records = sum(shard.next_sequence - shard.first_sequence for shard in made.stats())
    say(f"made database {new_name!r} with the {records:,} records that the chunks of {place.name!r} have")
    return ExitCode.OK


def purge_databases(path: Path, output: Output, *, dry_run: bool, yes: bool) -> int:
    """Do what `latewood db purge` says."""
    with open_store(path, "r" if dry_run else "w") as store:
        rows = store.catalog.read(lambda view: list(view.dbs()))
        dropped = [(db_id, record.name) for db_id, record in rows if isinstance(record.status, DbTombstoned)]
        names = ", ".join(name for _, name in dropped) or "none"
        if dropped and not dry_run and not ask(f"Remove what is left of {names}?", yes=yes):
            say("nothing was removed")
            return ExitCode.FAILED
        if not dry_run:
            store.purge()
        left = {db_id for db_id, _ in store.catalog.read(lambda view: list(view.dbs()))}
    output.rows(("database", "db_id", "purged"), [(name, db_id, db_id not in left) for db_id, name in dropped])
    return ExitCode.OK
