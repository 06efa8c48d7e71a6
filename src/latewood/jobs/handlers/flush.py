"""Flush: what is sealed becomes chunks.

For each shard, the records from `last_applied_sequence` up to the open segment are written into chunks, and each chunk
is committed as soon as it is durable: its row, and how far the shard has come, as one.  So nothing that was committed
is done again, and a chunk that was not committed is an orphan.

Payload: `seal: true` rolls the logs first, so that everything that is in them goes.   Order: docs/crash-safety.md
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from latewood.archive.chunk_writer import Chunk, SegmentStart
from latewood.archive.sink import FILE_STEPS
from latewood.catalog import CatalogView, Op, RequireRecord
from latewood.catalog.ops import PutWalState
from latewood.catalog.tables import WAL_STATE, WalStateKey, WalStateRecord
from latewood.errors import ConflictError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import row_of
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.slices import Stretch, slice_bytes, slices
from latewood.jobs.handlers.staging import STAGED_STEPS, adopted, workplace
from latewood.queue import Queue
from latewood.tasks.chunks import FlushTask, flush_records, overlapping
from latewood.types import ChunkId

STEPS: Final = ("seal", *FILE_STEPS, *STAGED_STEPS, "commit chunk")


class Sealed(NamedTuple):
    """What a shard's log has sealed and no chunk has yet."""

    shard: int
    start: int
    stop: int
    segments: tuple[SegmentStart, ...]
    stretches: tuple[Stretch, ...]

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
    todo = {shard: _sealed(attempt, shard) for shard in attempt.shards}
    total, done = sum(sealed.records for sealed in todo.values()), 0
    if not total:
        return None
    with workplace(attempt) as directory, _made(attempt, list(todo.values()), directory) as chunks:
        for chunk in chunks:
            sealed = todo[chunk.meta.shard]
            _commit_chunk(attempt, sealed, adopted(attempt, chunk), attempt.new_chunk_id())
            done += chunk.meta.row_count
            attempt.context.progress(done, total)
    return None


def _made(attempt: Attempt, todo: Sequence[Sealed], directory: Path) -> "closing[Generator[Chunk]]":
    """Return the chunks that records become, for as long as somebody wants them."""
    return closing(attempt.map(flush_records, _tasks(attempt, todo, directory)))


def segments_from(log: Queue, start: int) -> tuple[SegmentStart, ...]:
    """Return where the segments begin that have records from `start` on, the open one too.

    The cohort of the open one is in its header, and is not looked up: no chunk is made of its records.
    """
    manifest = log.view().manifest
    entries, first = manifest.entries, max(0, manifest.entries.index_of_sequence(start))
    sealed = [entries[index] for index in range(first, len(entries))]
    starts = [SegmentStart(entry.segment_id, entry.start_sequence, entry.ext_id) for entry in sealed]
    return (*starts, SegmentStart(manifest.active.segment_id, manifest.active_base))


def _sealed(attempt: Attempt, shard: int) -> Sealed:
    start, log = _state(attempt, shard).last_applied_sequence, attempt.db.log(shard)
    segments = segments_from(log, start)
    return Sealed(shard, start, segments[-1].sequence, segments, _stretches(log, start))


def _stretches(log: Queue, start: int) -> tuple[Stretch, ...]:
    entries = log.view().manifest.entries
    found = [entries[index] for index in range(max(0, entries.index_of_sequence(start)), len(entries))]
    return tuple(Stretch(entry.start_sequence, entry.end_sequence + 1, entry.size) for entry in found)


def _tasks(attempt: Attempt, todo: Sequence[Sealed], directory: Path) -> Iterator[FlushTask]:
    """Yield what is to be done: a task for each shard or, on an engine with more than one lane, some for each."""
    lanes, total = attempt.engine.lanes, sum(stretch.size_bytes for sealed in todo for stretch in sealed.stretches)
    bytes_max = slice_bytes(total, lanes, attempt.db.chunk_options.chunk_bytes) if lanes > 1 else None
    for sealed in todo:
        recipe, log = attempt.recipe(sealed.shard, directory), attempt.db.log(sealed.shard)
        for start, stop in slices(sealed.stretches, sealed.start, sealed.stop, bytes_max):
            segments = overlapping(sealed.segments, start, stop)
            yield FlushTask(recipe, str(log.path), log.options.keyed, start, stop, segments, log.mark)


def _state(attempt: Attempt, shard: int) -> WalStateRecord:
    return attempt.context.read(lambda view: view.wal_state(attempt.db_id, shard)) or WalStateRecord()


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
