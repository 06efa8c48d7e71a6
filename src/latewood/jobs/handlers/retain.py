"""Retain: what a policy lets go, and what compactions have replaced, goes: rows, files and objects.

1. Chunks that the policy lets go stop being live, from the oldest on.  Their grace begins.
2. Chunks whose grace is over are marked as purging, if they are not: from then on nobody may count on them.
3. Their objects and files go.
4. Their rows go, last: so no object is ever lost track of.

Payload: `grace_ms`.   Order: docs/crash-safety.md
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from latewood.catalog import CatalogView, Op
from latewood.catalog.ops import DeleteChunk
from latewood.catalog.tables import ChunkKey, ChunkRecord, JobKind
from latewood.errors import JobFailed, UsageError
from latewood.jobs.handlers.archive import needs_upload
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.checkpoint import release_log
from latewood.jobs.handlers.chunks import (
    Row,
    has_verified_object,
    live_rows,
    object_of,
)
from latewood.jobs.handlers.expiry import Held, Policy, plan
from latewood.jobs.handlers.proof import object_key_in
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.removal import removable_file, removable_objects
from latewood.jobs.handlers.troubles import Troubles
from latewood.tasks.parcels import parcels
from latewood.tasks.removal import Removal, remove_chunks
from latewood.types import ChunkId

RETAIN: Final = JobKind.RETAIN
"""The kind of these jobs."""

STEPS: Final = (
    "commit expired",
    "commit purging",
    "remove object",
    "remove file",
    "sync directory",
    "commit purged",
    "move reader",
    "clean log",
)
_ROWS_IN_A_COMMIT: Final = 256
_REMOVALS_IN_A_TASK: Final = 32
"""Of an engine with more than one lane: some requests to an archive, one after the other."""
_MS: Final = 1_000_000


def retain(attempt: Attempt) -> Result:
    """Let go of what may go."""
    _expire(attempt)
    _mark(attempt)
    may_be_put = _upload_is_at_work(attempt)  # After the marks: an upload that begins now leaves them alone.
    due = [
        row
        for row in attempt.rows()
        if row.record.purging and _is_over(attempt, row.record) and not (may_be_put and needs_upload(row.record))
    ]
    total, done, troubles = len(due), 0, Troubles(attempt, UsageError, JobFailed)
    count_max = _REMOVALS_IN_A_TASK if attempt.engine.lanes > 1 else 1
    for at in range(0, total, _ROWS_IN_A_COMMIT):
        batch = due[at : at + _ROWS_IN_A_COMMIT]
        removals = parcels(_removals(attempt, batch, troubles), lambda _: 1, count_max)
        purged = [removal.chunk_id for removal in attempt.map(remove_chunks, removals) if removal.is_all]
        _forget(attempt, purged)
        done += len(batch)
        attempt.context.progress(done, total)
    for shard in attempt.shards:
        release_log(attempt, attempt.db.log(shard))
    troubles.tell()
    return None


def is_replaced(record: ChunkRecord, rows: Mapping[ChunkId, ChunkRecord]) -> bool:
    """Say whether what took a chunk's place is as safe as it was: one that is archived waits for that.  Pure."""
    successor = record
    while has_verified_object(record) and successor.superseded_by is not None:
        found = rows.get(successor.superseded_by)
        if found is None or found.purging or has_verified_object(found):
            return True
        successor = found
    return not has_verified_object(record)


def _expire(attempt: Attempt) -> None:
    options = attempt.db.record.options
    policy = Policy(options.retention.max_bytes, options.retention.max_age_ms)
    if policy == Policy():
        return
    now_ms = attempt.now_ms()
    after_ms = now_ms + attempt.context.payload.get("grace_ms", options.grace_ms)

    def decide(floors: Mapping[int, int | None], view: CatalogView, generation: int) -> Sequence[Op]:
        del generation
        rows = {key.chunk_id: record for key, record in view.chunks(attempt.db_id)}
        gone = plan(_held(rows), policy, floors, now_ms)[:_ROWS_IN_A_COMMIT]
        return [
            attempt.upsert(chunk_id, replace(rows[chunk_id], purging=True, purge_after_ms=after_ms))
            for chunk_id in gone
        ]

    is_more = True
    while is_more:
        with attempt.db.readers_held():  # A reader that begins meanwhile would stand at what goes.
            floors = {shard: attempt.db.reader_floor(shard) for shard in attempt.shards}
            is_more = attempt.commit("commit expired", partial(decide, floors))
        attempt.context.check()


def _held(rows: Mapping[ChunkId, ChunkRecord]) -> Iterable[Held]:
    for chunk_id, record in live_rows(Row(*row) for row in rows.items()):
        newest_ms = record.created_at_ms if record.timestamp_max_ns is None else record.timestamp_max_ns // _MS
        yield Held(chunk_id, record.shard, record.sequence_max, record.size_bytes, newest_ms)


def _mark(attempt: Attempt) -> None:
    """Mark the chunks that compactions have replaced, and that nobody reads any more."""

    def decide(view: CatalogView, generation: int) -> Sequence[Op]:
        del generation
        rows = {key.chunk_id: record for key, record in view.chunks(attempt.db_id)}
        due = [
            attempt.upsert(chunk_id, replace(record, purging=True))
            for chunk_id, record in rows.items()
            if record.superseded_by is not None
            and not record.purging
            and (record.purge_after_ms or 0) <= attempt.now_ms()
            and is_replaced(record, rows)
        ]
        return due[:_ROWS_IN_A_COMMIT]

    while attempt.commit("commit purging", decide):
        attempt.context.check()


def _upload_is_at_work(attempt: Attempt) -> bool:
    """Say whether an upload may be in the middle of a put, or broke off there and is not repaired yet.

    Its object would come after the row that knows of it went, and nobody would ever remove it: the row waits.
    """
    kinds = (JobKind.ARCHIVE, JobKind.MEND)
    return attempt.context.read(lambda view: any(not view.gate(attempt.db_id, kind).is_open for kind in kinds))


def _is_over(attempt: Attempt, record: ChunkRecord) -> bool:
    return (record.purge_after_ms or 0) <= attempt.now_ms()


def _removals(attempt: Attempt, rows: Sequence[Row], troubles: Troubles) -> Iterator[Removal]:
    """Yield what goes of each chunk, as it is when it is asked for."""
    for row in rows:
        removal: Removal | None = None
        with troubles.met_with([row]):
            removal = _removal(attempt, row)
        if removal is not None:
            yield removal


def _removal(attempt: Attempt, row: Row) -> Removal:
    """Return what goes of a chunk: file and objects, unless they are another database's affair, or are kept."""
    record = row.record
    file = removable_file(attempt, record)
    kept_ms = attempt.db.record.options.retention.purge_remote_after_ms or 0
    is_kept = record.superseded_by is None and (record.purge_after_ms or 0) + kept_ms > attempt.now_ms()
    if object_of(record) is not None and is_kept:
        return Removal(row.chunk_id, file, is_all=False)
    return Removal(row.chunk_id, file, removable_objects(attempt, record, _keys(attempt, record)))


def _keys(attempt: Attempt, record: ChunkRecord) -> list[str]:
    """Return the keys under which a chunk's object may be.

    An upload that was cut before its commit left one that the row does not name, under the key that it would have.
    """
    if attempt.db.tier is None and object_of(record) is None:
        return []
    named = [] if object_of(record) is None else [object_key_in(attempt.tier(), record)]
    return list(dict.fromkeys([*named, attempt.db.object_key(record)]))


def _forget(attempt: Attempt, chunk_ids: Sequence[ChunkId]) -> None:
    def decide(view: CatalogView, generation: int) -> Sequence[Op]:
        del generation
        present = [chunk_id for chunk_id in chunk_ids if view.chunk(attempt.db_id, chunk_id) is not None]
        return [DeleteChunk(ChunkKey(attempt.db_id, chunk_id)) for chunk_id in present]

    attempt.commit("commit purged", decide)
