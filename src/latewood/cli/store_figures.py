"""A store in figures: its databases, tiers and readers, as commands show them."""

from collections.abc import Iterator
from typing import NamedTuple

from latewood.catalog.tables import ChunkRecord, DbActive, DbDraining, DbRecord
from latewood.errors import CorruptError
from latewood.jobs.handlers.chunks import has_file, object_of
from latewood.runtime import Database, Store
from latewood.runtime.database import ShardStats
from latewood.types import DbId

_MS = 1_000_000
DATABASE_COLUMNS = (
    "database",
    "db_id",
    "status",
    "shards",
    "keyed",
    "records",
    "log_bytes",
    "chunks",
    "local_bytes",
    "archived_bytes",
    "created_at_ns",
)
DATABASE_BRIEF = ("database", "status", "shards", "records", "log_bytes", "chunks", "local_bytes", "archived_bytes")
READER_COLUMNS = ("database", "reader", "lag", "positions", "committed_at_ns", "problem")
READER_BRIEF = ("database", "reader", "lag", "committed_at_ns")
TIER_COLUMNS = ("tier", "chunks", "size_bytes")


class TierFigures(NamedTuple):
    """How many chunks are somewhere, and their size."""

    tier: str
    chunks: int
    size_bytes: int


def status_name(record: DbRecord) -> str:
    """Return whether a database lives."""
    match record.status:
        case DbActive():
            return "active"
        case DbDraining():
            return "draining"
        case _:
            return "dropped"


def live_chunks(store: Store, db_id: DbId) -> list[ChunkRecord]:
    """Return the chunks that a database is read from."""
    return [record for _, record in store.catalog.scan_chunks(db_id) if record.is_live]


def database_row(store: Store, db_id: DbId, record: DbRecord) -> tuple[object, ...]:
    """Return the cells of DATABASE_COLUMNS."""
    database, chunks = store.database(record.name), live_chunks(store, db_id)
    return (
        record.name,
        db_id,
        status_name(record),
        record.wal_shards,
        record.options.keyed,
        sum(shard.next_sequence - shard.first_sequence for shard in database.stats()),
        sum(shard.log.stats().size_bytes for shard in database.shards if not shard.behind()),
        len(chunks),
        sum(chunk.size_bytes for chunk in chunks if has_file(chunk)),
        sum(chunk.size_bytes for chunk in chunks if object_of(chunk)),
        record.created_at_ms * _MS,
    )


def option_fields(record: DbRecord) -> dict[str, object]:
    """Return what a database was made with."""
    options, retention = record.options, record.options.retention
    return {
        "segment_bytes_max": options.segment_bytes_max,
        "segment_age_max_ms": options.segment_age_max_ms,
        "chunk_bytes": options.chunk_bytes,
        "compression_level": options.compression.level,
        "key_id": options.encryption.key_id if options.encryption else None,
        "retention_max_bytes": retention.max_bytes,
        "retention_max_age_ms": retention.max_age_ms,
        "evict_local_after_ms": retention.evict_local_after_ms,
        "purge_remote_after_ms": retention.purge_remote_after_ms,
        "grace_ms": options.grace_ms,
    }


def shard_rows(database: Database) -> list[tuple[object, ...]]:
    """Return every shard in numbers."""
    return [tuple(shard) for shard in database.stats()]


def problems_of(database: Database) -> list[str]:
    """Return what is wrong with the logs of shards that end before their chunks do, or are gone: a line for each."""
    return [f"{database.name}: {behind}" for shard in database.shards if (behind := shard.behind()) is not None]


def reader_rows(database: Database) -> list[tuple[object, ...]]:
    """Return the cells of READER_COLUMNS for each reader; of one whose file is damaged the problem is all there is."""
    shards = database.stats()
    return [row for name in sorted(database.readers().names()) for row in _reader_row(database, shards, name)]


def _reader_row(database: Database, shards: list[ShardStats], name: str) -> Iterator[tuple[object, ...]]:
    """Yield the row of a reader, unless it was removed."""
    try:
        own = database.readers().positions_of(name)
    except CorruptError as error:
        problem = (
            f"{error.path} at byte {error.offset}: {error.reason}; `latewood readers seek` moves reader {name!r}, and "
            f"`latewood readers rm` removes it"
        )
        yield database.name, name, None, {}, None, problem
        return
    if not own:
        return
    strangers = [str(found) for one in own if (found := database.readers().stranger(one)) is not None]
    at = {one.shard: one.sequence for one in own}
    lag = sum(max(0, shard.next_sequence - at.get(shard.shard, shard.first_sequence)) for shard in shards)
    yield (
        database.name,
        name,
        None if strangers else lag,
        {str(shard): sequence for shard, sequence in sorted(at.items())},
        max(one.committed_at_ns for one in own),
        strangers[0] if strangers else None,
    )


def tier_figures(chunks: list[ChunkRecord]) -> list[TierFigures]:
    """Return the tiers that chunks are in: `local` first, then archives by name."""
    found: dict[str, list[int]] = {"local": []}
    for chunk in chunks:
        if has_file(chunk):
            found["local"].append(chunk.size_bytes)
        if (copy := object_of(chunk)) is not None:
            found.setdefault(copy.tier, []).append(chunk.size_bytes)
    return [TierFigures(tier, len(sizes), sum(sizes)) for tier, sizes in found.items()]
