"""Adjacent chunks into one, by streaming: the same records, byte for byte, under the same checksums."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from latewood.archive.chunk import ChunkMeta
from latewood.archive.chunk_reader import ChunkReader
from latewood.archive.chunk_writer import Chunk, ChunkSite, Origin, write_chunks
from latewood.archive.sums import RunningSums
from latewood.errors import CorruptError, UsageError
from latewood.format.identity import Mark


def compact_chunks(site: ChunkSite, readers: Sequence[ChunkReader]) -> Iterator[Chunk]:
    """Yield what chunks that follow on one another become: one chunk, or a few if `site.options` says so.

    The old ones are left as they are.  Each is proved whole before the last new one gets its name.

    Raises:
        UsageError: they are not of one shard, or do not follow on one another.
        CorruptError: one of them is damaged.
    """
    metas = [reader.meta for reader in readers]
    check_adjacent(site, metas)
    lows = [meta.segment_min for meta in metas if meta.segment_min is not None]
    highs = [meta.segment_max for meta in metas if meta.segment_max is not None]
    origin = Origin(
        segment_range=(min(lows, default=None), max(highs, default=None)),
        parents=tuple(meta.token for meta in metas),
        mark=mark_of(site, metas),
        cohorts=tuple(start for meta in metas for start in meta.cohorts or ((meta.sequence_min, 0),)),
    )
    yield from write_chunks(site, _all_batches(readers), origin)


def mark_of(site: ChunkSite, metas: Sequence[ChunkMeta]) -> Mark | None:
    """Return the mark of what chunks become: the last one's, whose records are of the latest life.

    None, which is of any log, if a fork joins chunks of the database that it came from: they are of another log.
    """
    marks = [meta.mark for meta in metas if meta.mark is not None]
    is_mixed = len({mark.identity for mark in marks}) > 1 or any(meta.database_id != site.database_id for meta in metas)
    return None if is_mixed or not marks else marks[-1]


def check_adjacent(site: ChunkSite, metas: Sequence[ChunkMeta]) -> None:
    """Raise unless chunks are of the site's shard and follow on one another.

    Raises:
        UsageError: they do not.
    """
    if not metas:
        raise UsageError("there is nothing to compact")
    for meta in metas:
        if meta.shard != site.shard:  # The database may be another one: a fork shares the chunks of what it came from.
            raise UsageError(f"chunk {meta.token} is of shard {meta.shard}, not {site.shard}")
    for before, after in pairwise(metas):
        if after.sequence_min != before.sequence_max + 1:
            raise UsageError(f"chunk {after.token} does not follow on chunk {before.token}")


def _all_batches(readers: Sequence[ChunkReader]) -> Iterator[Any]:
    for reader in readers:
        meta, sums = reader.meta, RunningSums()
        for batch in reader.batches():
            sums.add(batch)
            yield batch
        if sums.over(meta.sequence_min, meta.row_count) != meta.checksum:
            raise CorruptError("the records do not match the checksum of the chunk", reader.path, 0)
