"""Makes chunks: of records that a log has sealed, or of other chunks.

A task carries no secret: which key it encrypts with is told by its id.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from latewood.archive.chunk_reader import ChunkReader, open_chunk
from latewood.archive.chunk_writer import Chunk, ChunkSite, Origin, SegmentStart, write_chunks
from latewood.archive.compact import compact_chunks
from latewood.archive.names import TOKEN_BYTES, RandomBytes
from latewood.archive.options import ChunkOptions
from latewood.archive.tier import TierSource
from latewood.errors import AnotherLog, CorruptError, JobFailed, KeyNotFound, LatewoodError, NotFoundError, UsageError
from latewood.format.identity import Mark
from latewood.log.identity import stranger_reason
from latewood.queue import open_queue
from latewood.tasks.engine import Tools
from latewood.types import ChunkId, JobId

JOB_BYTES: Final = 8
"""Of a token: what it begins with, so that files are known by the job that made them."""


class Recipe(NamedTuple):
    """How chunks of one shard are made."""

    job_id: JobId
    directory: str
    """Where; it must be there."""
    database: str
    database_id: int
    shard: int
    options: ChunkOptions
    key_id: str | None
    """What they are encrypted with; None: not at all."""


class FlushTask(NamedTuple):
    """Records of a log to make chunks of."""

    recipe: Recipe
    log: str
    keyed: bool
    """Whether its records may have keys."""
    start: int
    stop: int
    segments: tuple[SegmentStart, ...]
    """Those that have them, and the one behind."""
    mark: Mark | None = None
    """Of the log that this was planned with."""


class ChunkPlace(NamedTuple):
    """Where a chunk can be read."""

    file: str | None
    key: str | None
    """Of its object in the archive."""


class CompactTask(NamedTuple):
    """Neighbours to make one chunk of."""

    recipe: Recipe
    chunk_ids: tuple[ChunkId, ...]
    places: tuple[ChunkPlace, ...]


class Compacted(NamedTuple):
    """What became of neighbours."""

    chunk_ids: tuple[ChunkId, ...]
    chunk: Chunk | None
    error: LatewoodError | None = None
    """Why there is none: one of them is damaged, or is not where it was."""


def flush_records(task: FlushTask, tools: Tools) -> Iterator[Chunk]:
    """Yield the chunks that records of a log become, each durable under its name.

    Raises:
        CorruptError: a record is damaged, or has a key that does not fit it.
        DataLost: the log does not have them any more.
        AnotherLog: this is not the log that the task was planned with.
    """
    with open_queue(task.log, mode="r", fs=tools.fs, clock=tools.clock) as log:
        if (reason := stranger_reason(log.identity, task.mark, task.stop)) is not None:
            raise AnotherLog(reason, log.path, "run the job again: it is planned anew, with the log that is here")
        batches = log.arrow_batches(task.start, task.stop, keys=task.keyed)
        yield from write_chunks(chunk_site(task.recipe, tools), batches, Origin(segments=task.segments, mark=log.mark))


def compact_group(task: CompactTask, tools: Tools) -> Iterator[Compacted]:
    """Yield the one chunk that neighbours become, or what is wrong with one of them."""
    recipe = task.recipe._replace(options=task.recipe.options.uncut())
    try:
        with ExitStack() as opened:
            readers = [opened.enter_context(open_place(place, tools)) for place in task.places]
            (chunk,) = compact_chunks(chunk_site(recipe, tools), readers)
    except (CorruptError, NotFoundError) as error:
        yield Compacted(task.chunk_ids, None, error)
    else:
        yield Compacted(task.chunk_ids, chunk)


def open_place(place: ChunkPlace, tools: Tools) -> ChunkReader:
    """Open a chunk: the file if there is one, else the object.

    Raises:
        NotFoundError: it is nowhere.
    """
    if place.file is not None:
        try:
            return open_chunk(tools.fs, Path(place.file), tools.keys)
        except KeyNotFound:
            raise
        except NotFoundError:
            if place.key is None:
                raise
    if place.key is None:
        raise NotFoundError("the chunk is neither on disk nor archived")
    try:
        tier = tools.tier()
    except (JobFailed, UsageError) as error:
        raise NotFoundError(str(error)) from error
    return ChunkReader(TierSource(tier, place.key), tools.keys)


def chunk_site(recipe: Recipe, tools: Tools) -> ChunkSite:
    """Return where chunks are made, and with what.

    Raises:
        KeyNotFound: the key is not here.
    """
    keys = None
    if recipe.key_id is not None:
        if tools.keys is None:
            raise KeyNotFound(f"key {recipe.key_id!r} is not here: set `encryption.key_file` or its variable")
        keys = tools.keys.using(recipe.key_id)
    return ChunkSite(
        fs=tools.fs,
        directory=Path(recipe.directory),
        database=recipe.database,
        database_id=recipe.database_id,
        shard=recipe.shard,
        options=recipe.options,
        keys=keys,
        clock=tools.clock,
        random_bytes=job_bytes(recipe.job_id, tools.random_bytes),
        hook=tools.step,
    )


def job_bytes(job_id: JobId, random_bytes: RandomBytes) -> RandomBytes:
    """Return random bytes of which as many as a token has begin with a job's id."""

    def made(count: int) -> bytes:
        if count != TOKEN_BYTES:
            return random_bytes(count)
        return job_id.to_bytes(JOB_BYTES, "big") + random_bytes(TOKEN_BYTES - JOB_BYTES)

    return made


def overlapping(segments: Sequence[SegmentStart], start: int, stop: int) -> tuple[SegmentStart, ...]:
    """Return the segments, which are in order, with records of a range, and the one that begins behind them.  Pure."""
    ends = [segment.sequence for segment in segments[1:]]
    last = next((index for index, segment in enumerate(segments) if segment.sequence >= stop), len(segments) - 1)
    first = next((index for index, end in enumerate(ends) if end > start), last)
    return tuple(segments[first : last + 1])
