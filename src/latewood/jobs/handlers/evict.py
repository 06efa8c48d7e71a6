"""Evict: local files of chunks that the tier holds for sure go.

The tier is asked once more whether the object is there, and is the one that was verified: by its ETag and version,
which the row keeps, or else by reading it back.  Then the row says that the chunk is only remote; then the file goes.
A cut in between leaves a file that the row does not claim: the next run removes it.  The file of an object that has
other bytes now stays, and a repair is enqueued with the completion.

Payload: `now: true` does not wait for `evict_local_after_ms`; `chunk_ids` picks some.   Order: docs/crash-safety.md
"""

import logging
from typing import Final

from msgspec.structs import replace

from latewood.archive.tier import ObjectInfo, Tier, confirm_object
from latewood.catalog.tables import ChunkRecord, LocalAndRemote, RemoteArchived, RemoteObject
from latewood.errors import CorruptError, NotFoundError, UsageError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import HYDRATED_AT, Row, digest_of, has_file, live_rows, note_of
from latewood.jobs.handlers.mending import mending
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.removal import is_file_shared, is_only_remote, remove_file
from latewood.jobs.handlers.troubles import Troubles
from latewood.types import ChunkId

_logger: Final = logging.getLogger(__name__)
STEPS: Final = ("confirmed", "commit evicted", "remove file", "sync directory")


def evict(attempt: Attempt) -> Result:
    """Remove the local files of chunks that are archived for long enough, and enqueue a repair for others' objects.

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
        Troubles(attempt, NotFoundError, UsageError),
    )
    broken: list[ChunkId] = []
    for row in todo:
        with troubles.met_with([row]):
            broken += [] if _evict_chunk(attempt, tier, row) else [row.chunk_id]
        done += row.record.size_bytes
        attempt.context.progress(done, total)
    troubles.tell()
    return mending(attempt, broken)


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


def _evict_chunk(attempt: Attempt, tier: Tier, row: Row) -> bool:
    """Remove a chunk's file; return False if its object is not what it was when it was verified."""
    residency = row.record.residency
    assert isinstance(residency, LocalAndRemote), "_is_due has seen to that"
    try:
        held = _confirmed(tier, row.record, residency.object)
    except CorruptError as error:
        _logger.warning("%s: %s; its local file stays, to repair it", error.path, error.reason)
        return False
    attempt.step("confirmed")

    def evicted(record: ChunkRecord) -> ChunkRecord | None:
        found = record.residency
        if not isinstance(found, LocalAndRemote) or not found.verified or found.object != residency.object:
            return None
        return replace(record, residency=RemoteArchived(object=held, verified=True))

    if attempt.change("commit evicted", row.chunk_id, evicted):
        _remove(attempt, row)
    return True


def _confirmed(tier: Tier, record: ChunkRecord, named: RemoteObject) -> RemoteObject:
    """Return an object as its tier names it now, once it is sure to have the bytes that were verified.

    Raises:
        NotFoundError: it is not there.
        CorruptError: it has other bytes.
        UsageError: its tag is not known, and no checksum is either.
    """
    known = ObjectInfo(named.key, record.size_bytes, named.etag, named.version_id)
    info = confirm_object(tier, known, None if record.checksum is None else digest_of(record))
    return replace(named, etag=info.etag or named.etag, version_id=info.version_id or named.version_id)


def _remove(attempt: Attempt, row: Row) -> None:
    """Remove a file that its row does not claim any more."""
    found = attempt.row(row.chunk_id)
    if found is None or has_file(found) or is_file_shared(attempt, found):
        return
    remove_file(attempt, found)
    settle_local(attempt, "commit evicted", row.chunk_id, found)
