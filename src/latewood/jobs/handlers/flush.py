"""Flush: what is sealed becomes chunks.

For each shard, the records from `last_applied_sequence` up to the open segment are written into chunks, and each chunk
is committed as soon as it is durable: its row, and how far the shard has come, as one.  So nothing that was committed
is done again, and a chunk that was not committed is an orphan.

Payload: `seal: true` rolls the logs first, so that everything that is in them goes.   Order: docs/crash-safety.md
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from latewood.archive.chunk_writer import Chunk, Origin, SegmentStart, write_chunks
from latewood.archive.keyed import with_keys
from latewood.archive.sink import FILE_STEPS
from latewood.catalog import CatalogView, Op, RequireRecord
from latewood.catalog.ops import PutWalState
from latewood.catalog.tables import WAL_STATE, WalStateKey, WalStateRecord
from latewood.errors import ConflictError, CorruptError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import row_of
from latewood.jobs.handlers.registry import Result
from latewood.queue import Queue
from latewood.types import ChunkId

STEPS: Final = ("seal", *FILE_STEPS, "commit chunk")


class Sealed(NamedTuple):
    """What a shard's log has sealed and no chunk has yet."""

    shard: int
    start: int
    stop: int
    segments: tuple[SegmentStart, ...]

    @property
    def records(self) -> int:
        """How many there are."""
        return max(0, self.stop - self.start)


def flush(attempt: Attempt) -> Result:
    """Make chunks of all that is sealed."""
    if attempt.context.payload.get("seal"):
        for shard in attempt.shards:
            attempt.step("seal")
            attempt.db.log(shard).roll()
    todo = [_sealed(attempt, shard) for shard in attempt.shards]
    total, done = sum(sealed.records for sealed in todo), 0
    for sealed in todo:
        for records in _flush_shard(attempt, sealed):
            done += records
            attempt.context.progress(done, total)
    return None


def records_of(attempt: Attempt, shard: int, start: int, stop: int) -> Iterator[Any]:
    """Yield batches of a log's records as chunks have them.

    Raises:
        CorruptError: a record is damaged, or has a key that does not fit it.
        DataLost: the log does not have them any more.
    """
    log = attempt.db.log(shard)
    for batch in log.arrow_batches(start, stop):
        try:
            yield with_keys(batch) if log.options.keyed else batch
        except ValueError as error:
            raise CorruptError(str(error), log.path, 0) from error


def segments_from(log: Queue, start: int) -> tuple[SegmentStart, ...]:
    """Return where the segments begin that have records from `start` on, the open one too."""
    manifest = log.view().manifest
    entries, first = manifest.entries, max(0, manifest.entries.index_of_sequence(start))
    sealed = [entries[index] for index in range(first, len(entries))]
    starts = [SegmentStart(entry.segment_id, entry.start_sequence) for entry in sealed]
    return (*starts, SegmentStart(manifest.active.segment_id, manifest.active_base))


def _sealed(attempt: Attempt, shard: int) -> Sealed:
    start = _state(attempt, shard).last_applied_sequence
    segments = segments_from(attempt.db.log(shard), start)
    return Sealed(shard, start, segments[-1].sequence, segments)


def _state(attempt: Attempt, shard: int) -> WalStateRecord:
    return attempt.context.read(lambda view: view.wal_state(attempt.db_id, shard)) or WalStateRecord()


def _flush_shard(attempt: Attempt, sealed: Sealed) -> Iterator[int]:
    """Yield how many records each chunk took, once it is committed."""
    if not sealed.records:
        return
    batches = records_of(attempt, sealed.shard, sealed.start, sealed.stop)
    for chunk in write_chunks(attempt.chunk_site(sealed.shard), batches, Origin(segments=sealed.segments)):
        _commit_chunk(attempt, sealed, chunk, attempt.new_chunk_id())
        yield chunk.meta.row_count


def _commit_chunk(attempt: Attempt, sealed: Sealed, chunk: Chunk, chunk_id: ChunkId) -> None:
    key = WalStateKey(attempt.db_id, sealed.shard)
    sealed_segments = sealed.segments[:-1]

    def decide(view: CatalogView, generation: int) -> Sequence[Op]:
        known = view.wal_state(*key)
        state = known or WalStateRecord()
        if state.last_applied_sequence != chunk.meta.sequence_min:
            raise ConflictError(
                f"shard {sealed.shard} has come to {state.last_applied_sequence} meanwhile; "
                f"the chunk begins at {chunk.meta.sequence_min}"
            )
        changed = replace(
            state,
            last_applied_sequence=chunk.meta.sequence_max + 1,
            last_sealed_segment=sealed_segments[-1].segment_id if sealed_segments else state.last_sealed_segment,
            updated_at_ms=attempt.now_ms(),
        )
        return [
            RequireRecord(WAL_STATE, key, known),
            attempt.upsert(chunk_id, row_of(chunk, generation)),
            PutWalState(key, changed),
        ]

    attempt.commit("commit chunk", decide)
