"""What `latewood evict` and `latewood retain` would remove, shown or asked before they do."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from latewood.catalog.tables import ChunkRecord, LocalAndRemote
from latewood.cli.confirmation import ask
from latewood.cli.errors import say
from latewood.cli.human import format_size
from latewood.cli.output import Output
from latewood.cli.store_argument import chosen_names, find_database, located, open_store
from latewood.clock import SystemClock
from latewood.jobs.handlers.chunks import Row, live_rows
from latewood.jobs.handlers.evict import is_due
from latewood.jobs.handlers.expiry import Held, Policy, plan
from latewood.runtime import Database, Store

_Choose: TypeAlias = Callable[[Database, list[Row]], list[Row]]
_MS = 1_000_000
_COLUMNS = ("database", "shard", "chunk_id", "sequence_min", "sequence_max", "row_count", "size_bytes", "file_name")


def may_evict(path: Path, names: Sequence[str], output: Output, *, due_only: bool, dry_run: bool, yes: bool) -> bool:
    """Say whether to go ahead; with `dry_run`, print what would go, and say no."""

    def candidates(database: Database, rows: list[Row]) -> list[Row]:
        after_ms = database.record.options.retention.evict_local_after_ms if due_only else 0
        return [row for row in rows if _is_safe(row.record) and is_due(row.record, _now_ms(), after_ms)]

    if yes and not dry_run:
        return True
    found = _found(path, names, candidates)
    return _asked(found, "Remove the local files of", output, dry_run=dry_run, yes=yes)


def may_retain(path: Path, names: Sequence[str], output: Output, *, dry_run: bool, yes: bool) -> bool:
    """Say whether to go ahead; with `dry_run`, print what would go, and say no."""
    if yes and not dry_run:
        return True
    return _asked(_found(path, names, _expired), "Let go of", output, dry_run=dry_run, yes=yes)


def _expired(database: Database, rows: list[Row]) -> list[Row]:
    retention = database.record.options.retention
    policy = Policy(retention.max_bytes, retention.max_age_ms)
    floors = {shard.number: database.readers().floor(shard.number) for shard in database.shards}
    gone = set(plan([_held(row) for row in rows], policy, floors, _now_ms()) if policy != Policy() else ())
    return [row for row in rows if row.chunk_id in gone]


def _held(row: Row) -> Held:
    record = row.record
    newest_ms = record.created_at_ms if record.timestamp_max_ns is None else record.timestamp_max_ns // _MS
    return Held(row.chunk_id, record.shard, record.sequence_max, record.size_bytes, newest_ms)


def _found(path: Path, names: Sequence[str], choose: _Choose) -> list[tuple[object, ...]]:
    place = located(path, names)
    with open_store(place.root) as store:
        return [
            _cells(name, row)
            for name in chosen_names(store, place.names)
            for row in choose(find_database(store, name), _live(store, name))
        ]


def _live(store: Store, name: str) -> list[Row]:
    db_id = find_database(store, name).db_id
    return live_rows(Row(key.chunk_id, record) for key, record in store.catalog.scan_chunks(db_id))


def _asked(rows: list[tuple[object, ...]], what: str, output: Output, *, dry_run: bool, yes: bool) -> bool:
    if dry_run:
        output.rows(_COLUMNS, rows)
        return False
    size = sum(int(str(row[_COLUMNS.index("size_bytes")])) for row in rows)
    if ask(f"{what} {len(rows):,} chunks, {format_size(size)}?", yes=yes):
        return True
    say("nothing was removed")
    return False


def _cells(name: str, row: Row) -> tuple[object, ...]:
    record = row.record
    place = (name, record.shard, row.chunk_id, record.sequence_min, record.sequence_max)
    return (*place, record.row_count, record.size_bytes, record.file_name)


def _is_safe(record: ChunkRecord) -> bool:
    return isinstance(record.residency, LocalAndRemote) and record.residency.verified


def _now_ms() -> int:
    return SystemClock().now_ns() // _MS
