"""Fork a database: a new one that begins with another one's chunks, and shares their files.

Order: 1. The new logs, which go on where the chunks end.  2. One commit: the database, its shards and its rows.  Before
it nothing refers to the logs; after it everything is there.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from latewood.catalog.description import Origin, store_description
from latewood.catalog.tables import ChunkKey, ChunkRecord, Component, DbActive, DbRecord, WalStateKey, WalStateRecord
from latewood.errors import ConflictError
from latewood.format.store_layout import DatabaseLayout
from latewood.runtime.births import named
from latewood.runtime.database import Database
from latewood.runtime.room import check_shards_fit
from latewood.runtime.shard_log import make_log
from latewood.runtime.site import StoreSite
from latewood.types import DbId

_TRIES_MAX: Final = 16
_MS: Final = 1_000_000


def fork_database(
    site: StoreSite,
    source: Database,
    db_id: DbId,
    name: str,
    layout: DatabaseLayout,
) -> DbRecord:
    """Make the fork and return its record.

    Raises:
        ConflictError: the chunks of the other kept changing; try again.
        UsageError: this process may not have as many files open as its shards take.
    """
    check_shards_fit(name, len(source.shards))
    record = _record_of(site, source, name, layout)
    applied: list[int] = []
    for tries in range(_TRIES_MAX):
        generation = site.catalog.generation(Component.CHUNKS)
        states = site.catalog.read(lambda view: dict(view.wal_states(source.db_id)))
        now = [states[WalStateKey(source.db_id, shard)].last_applied_sequence for shard in range(record.wal_shards)]
        if tries == 0:  # Whatever is flushed meanwhile stays behind: the logs begin here.
            applied = now
            for shard, sequence in enumerate(applied):
                make_log(site, layout.shard(shard), record, sequence, record.log_identity(shard))
            site.fs.make_directory(layout.chunks)
            origin = Origin(db_id=source.db_id, sequences=tuple(applied))
            store_description(site.fs, layout.description, db_id, record, origin)
        try:
            _commit(site, source, db_id, record, applied, generation)
        except ConflictError:
            continue
        return record
    raise ConflictError(f"the chunks of {source.name!r} keep changing; try again")


def _commit(
    site: StoreSite, source: Database, db_id: DbId, record: DbRecord, applied: list[int], generation: int
) -> None:
    txn = site.catalog.begin_write()
    txn.require_generation(Component.CHUNKS, generation)
    txn.put_db(db_id, record)
    for shard, sequence in enumerate(applied):
        txn.put_wal_state(WalStateKey(db_id, shard), WalStateRecord(last_applied_sequence=sequence))
    rows = shared([row for _, row in site.catalog.scan_chunks(source.db_id)], applied)
    ids = site.catalog.reserve_ids(Component.CHUNK_IDS, len(rows)) if rows else range(0)
    for chunk_id, row in zip(ids, rows, strict=True):
        origin = source.db_id if row.origin_db_id is None else row.origin_db_id
        txn.upsert_chunk(ChunkKey(db_id, chunk_id), msgspec.structs.replace(row, origin_db_id=origin, supersedes=()))
    txn.bump_generation(Component.CHUNKS)
    txn.commit()


def shared(rows: Iterable[ChunkRecord], applied: Sequence[int]) -> list[ChunkRecord]:
    """Return the live chunks that a fork at these sequences begins with.  Pure.

    Raises:
        ConflictError: a compaction has joined what was flushed since with what belongs to the fork.
    """
    live = [row for row in rows if row.is_live]
    if any(row.sequence_min < applied[row.shard] <= row.sequence_max for row in live):
        raise ConflictError("chunks were joined across the point of the fork; try again")
    return [row for row in live if row.sequence_max < applied[row.shard]]


def _record_of(site: StoreSite, source: Database, name: str, layout: DatabaseLayout) -> DbRecord:
    options = msgspec.structs.replace(
        source.record.options,
        wal_dir=site.layout.relative(layout.shards),
        chunk_dir=site.layout.relative(layout.chunks),
    )
    record = msgspec.structs.replace(
        source.record, name=name, created_at_ms=site.clock.now_ns() // _MS, options=options, status=DbActive()
    )
    return named(record, site)
