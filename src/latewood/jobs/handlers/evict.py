"""Evict: local files of chunks that the tier holds for sure go.

The tier is asked once more whether the object is there.  Then the row says that the chunk is only remote; then the file
goes.  A cut in between leaves a file that the row does not claim: the next run removes it.

Payload: `now: true` does not wait for `evict_local_after_ms`; `chunk_ids` picks some.   Order: docs/crash-safety.md
"""

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from latewood.archive.tier import Tier
from latewood.catalog.tables import ChunkRecord, LocalAndRemote, RemoteArchived
from latewood.errors import CorruptError, NotFoundError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import HYDRATED_AT, Row, has_file, live_rows, note_of
from latewood.jobs.handlers.proof import object_key_in
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.removal import is_file_shared, is_only_remote, remove_file
from latewood.jobs.handlers.troubles import Troubles
from latewood.types import ChunkId

STEPS: Final = ("confirmed", "commit evicted", "remove file", "sync directory")


def evict(attempt: Attempt) -> Result:
    """Remove the local files of chunks that are archived for long enough.

    Raises:
        JobFailed: the database has no tier.
    """
    tier, rows = attempt.tier(), live_rows(attempt.rows())
    for row in rows:
        if is_only_remote(row.record) and attempt.fs.exists(attempt.db.chunk_path(row.record)):
            _remove(attempt, row)  # What an attempt that was cut has left.
    todo = [row for row in rows if _is_due(attempt, tier, row)]
    total, done, troubles = (
        sum(row.record.size_bytes for row in todo),
        0,
        Troubles(attempt, CorruptError, NotFoundError),
    )
    for row in todo:
        with troubles.met_with([row]):
            _evict_chunk(attempt, tier, row)
        done += row.record.size_bytes
        attempt.context.progress(done, total)
    troubles.tell()
    return None


def is_due(record: ChunkRecord, now_ms: int, after_ms: int | None) -> bool:
    """Say whether a chunk's file may go by its age; None: never by itself.  Pure.

    One that was brought back counts from then on.
    """
    since_ms = max(record.uploaded_at_ms or 0, note_of(record, HYDRATED_AT) or 0)
    return after_ms is not None and now_ms - since_ms >= after_ms


def settle_local(attempt: Attempt, name: str, chunk_id: ChunkId, record: ChunkRecord) -> None:
    """Have the row of a chunk with an object claim no file if there is none.

    An eviction and a hydration that meet may leave it so, whichever comes last; both look here at their end.
    """
    path = attempt.db.chunk_path(record)

    def settled(found: ChunkRecord) -> ChunkRecord | None:
        residency = found.residency
        if not isinstance(residency, LocalAndRemote) or attempt.fs.exists(path):
            return None
        return replace(found, residency=RemoteArchived(object=residency.object, verified=residency.verified))

    attempt.change(name, chunk_id, settled)


def _is_due(attempt: Attempt, tier: Tier, row: Row) -> bool:
    payload, residency = attempt.context.payload, row.record.residency
    chosen = payload.get("chunk_ids")
    if not isinstance(residency, LocalAndRemote) or not residency.verified or residency.object.tier != tier.name:
        return False
    if chosen is not None and row.chunk_id not in chosen:
        return False
    after_ms = 0 if payload.get("now") else attempt.db.record.options.retention.evict_local_after_ms
    return is_due(row.record, attempt.now_ms(), after_ms)


def _evict_chunk(attempt: Attempt, tier: Tier, row: Row) -> None:
    key = object_key_in(tier, row.record)
    size = tier.head(key).size
    if size != row.record.size_bytes:
        raise CorruptError(f"in {tier.name}: {size:,} bytes, not {row.record.size_bytes:,}", Path(key), 0)
    attempt.step("confirmed")

    def evicted(record: ChunkRecord) -> ChunkRecord | None:
        residency = record.residency
        if not isinstance(residency, LocalAndRemote) or not residency.verified or residency.object.key != key:
            return None
        return replace(record, residency=RemoteArchived(object=residency.object, verified=True))

    if attempt.change("commit evicted", row.chunk_id, evicted):
        _remove(attempt, row)


def _remove(attempt: Attempt, row: Row) -> None:
    """Remove a file that its row does not claim any more."""
    found = attempt.row(row.chunk_id)
    if found is None or has_file(found) or is_file_shared(attempt, found):
        return
    remove_file(attempt, found)
    settle_local(attempt, "commit evicted", row.chunk_id, found)
