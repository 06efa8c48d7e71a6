"""Repair of chunks: what a scrub found broken is made whole from wherever it still is.

| broken                  | made whole from        | how                                                             |
| ----------------------- | ---------------------- | --------------------------------------------------------------- |
| the file                | the object             | brought back over it, atomically                                |
| the object              | the file               | removed, and uploaded again under the same key                  |
| all that there is of it | the log, if it has it  | a new chunk takes its place                                     |
| all that there is of it | nowhere                | the job fails, and names it: never silently                     |

Nothing is believed: each place is read through again first.

Payload: `chunk_ids`; nothing: all.   Order: docs/crash-safety.md
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from latewood.archive.chunk_writer import Chunk, Origin, write_chunks
from latewood.archive.sink import FILE_STEPS, remove_temporary
from latewood.archive.tier import Tier
from latewood.archive.transfer import UPLOAD_STEPS
from latewood.catalog import CatalogView, Op
from latewood.catalog.tables import ChunkRecord, JobKind, LocalAndRemote, RemoteArchived
from latewood.errors import JobFailed
from latewood.jobs.handlers.archive import archive_chunk
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row, has_file, live_rows, object_of, row_of
from latewood.jobs.handlers.flush import segments_from
from latewood.jobs.handlers.hydrate import replace_file
from latewood.jobs.handlers.proof import MISSING, local_trouble, looked_at, remote_trouble
from latewood.jobs.handlers.registry import Result
from latewood.types import ChunkId

MEND: Final = JobKind.MEND
"""The kind of these jobs.  JobKind.REPAIR is another thing: it mends what a job that broke off has left."""

STEPS: Final = (
    *FILE_STEPS,
    *UPLOAD_STEPS,
    "commit doubt",
    "commit proved",
    "commit archived",
    "commit replaced",
    "remove object",
    "replace file",
    "sync directory",
    "drop replacement",
)


def mend(attempt: Attempt) -> Result:
    """Make chunks whole.

    Raises:
        JobFailed: some are lost; all others are whole.
    """
    chosen = attempt.context.payload.get("chunk_ids")
    todo = [row for row in live_rows(attempt.rows()) if chosen is None or row.chunk_id in chosen]
    lost = []
    for done, row in enumerate(todo, 1):
        trouble = _mend_chunk(attempt, row.chunk_id)
        lost += [] if trouble is None else [f"chunk {row.chunk_id} ({row.record.file_name}): {trouble}"]
        attempt.context.progress(done - len(lost), len(todo))  # So many are whole, also if it fails.
    if lost:
        raise JobFailed(f"{len(lost)} of {len(todo)} cannot be mended; {'; '.join(lost)}")
    return None


def _mend_chunk(attempt: Attempt, chunk_id: ChunkId) -> str | None:
    """Make one chunk whole; return why that cannot be, or None."""
    attempt.context.check()
    looked = looked_at(attempt, chunk_id, lambda record: _troubles(attempt, record))
    if looked is None:
        return None
    record, (local, remote) = looked
    row, named = Row(chunk_id, record), object_of(record)
    if local and remote:
        return _mend_from_log(attempt, row, f"the file: {local}; the object: {remote}" if named else local)
    if named is None:
        return None
    if remote:
        _mend_object(attempt, attempt.tier(), row, remote)
    elif local and has_file(record):
        replace_file(attempt, attempt.tier(), record)
    _prove(attempt, chunk_id)
    return None


def _troubles(attempt: Attempt, record: ChunkRecord) -> tuple[str | None, str | None]:
    """Return what is wrong with a chunk's file, and with its object."""
    remote = remote_trouble(attempt.tier(), record) if object_of(record) else MISSING
    return local_trouble(attempt, record), remote


def _prove(attempt: Attempt, chunk_id: ChunkId) -> None:
    """Have the row say that its object was read back."""

    def proved(record: ChunkRecord) -> ChunkRecord | None:
        residency = record.residency
        if not isinstance(residency, LocalAndRemote | RemoteArchived) or residency.verified:
            return None
        return replace(record, residency=replace(residency, verified=True))

    attempt.change("commit proved", chunk_id, proved)


def _mend_object(attempt: Attempt, tier: Tier, row: Row, trouble: str) -> None:
    """Upload a chunk again.  The row stops vouching for the object first, and then says that it has a file."""

    def doubted(record: ChunkRecord) -> ChunkRecord | None:
        named = object_of(record)
        doubt = None if named is None else LocalAndRemote(object=named, verified=False)
        return None if doubt in (None, record.residency) else replace(record, residency=doubt)

    attempt.change("commit doubt", row.chunk_id, doubted)
    named = object_of(row.record)
    if named is not None and trouble != MISSING:
        attempt.step("remove object")
        tier.delete(named.key)
    archive_chunk(attempt, tier, row)


def _mend_from_log(attempt: Attempt, row: Row, trouble: str) -> str | None:
    """Make a new chunk of the records, if the log has them, and let it take the place of the broken one."""
    record, log = row.record, attempt.db.log(row.record.shard)
    if log.first_sequence > record.sequence_min or log.next_sequence <= record.sequence_max:
        return (
            f"{trouble}; and the log does not have its records {record.sequence_min} to {record.sequence_max} any more"
        )
    chunk, chunk_id = _written_again(attempt, record), attempt.new_chunk_id()
    purge_after_ms = attempt.now_ms() + attempt.db.record.options.grace_ms

    def decide(view: CatalogView, generation: int) -> Sequence[Op]:
        broken = view.chunk(attempt.db_id, row.chunk_id)
        if broken is None or not broken.is_live:
            return []
        new = replace(row_of(chunk, generation, broken.marks), supersedes=(row.chunk_id,))
        old = replace(broken, superseded_by=chunk_id, purge_after_ms=purge_after_ms)
        return [attempt.upsert(chunk_id, new), attempt.upsert(row.chunk_id, old)]

    if not attempt.commit("commit replaced", decide):
        attempt.step("drop replacement")
        remove_temporary(attempt.fs, chunk.path)
        attempt.fs.sync_directory(chunk.path.parent)
    return None


def _written_again(attempt: Attempt, record: ChunkRecord) -> Chunk:
    log = attempt.db.log(record.shard)
    origin = Origin(segments=segments_from(log, record.sequence_min), mark=log.mark)
    batches = log.arrow_batches(record.sequence_min, record.sequence_max + 1, keys=log.options.keyed)
    (chunk,) = write_chunks(attempt.chunk_site(record.shard, attempt.db.chunk_options.uncut()), batches, origin)
    return chunk
