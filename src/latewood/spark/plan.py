"""Ranges of records → input partitions; limits → the end of a micro-batch.  Pure, and without pyspark.

Whatever the log still has is read from the log; what came before, from chunks.  Both overlap for a while, and never
leave a gap: a record leaves the log only when a verified chunk has it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from latewood.errors import DataLost
from latewood.spark.offsets import Offsets, ShardId


class Chunk(NamedTuple):
    """Where a chunk is, as an executor needs to know it."""

    sequence_min: int
    sequence_max: int
    """The last sequence in it, counted in."""
    size: int
    file: str | None = None
    """Its local file, if it should be there."""
    key: str | None = None
    """Its object, if it is archived."""
    encrypted: bool = False


class _Holder(Protocol):
    @property
    def sequence_min(self) -> int: ...
    @property
    def sequence_max(self) -> int: ...


H = TypeVar("H", bound=_Holder)


class Piece(NamedTuple):
    """A stretch of sequences, `start` to `stop`, and the chunk that holds it; None: the log."""

    start: int
    stop: int
    chunk: Chunk | None


class Span(NamedTuple):
    """A stretch of sequences whose records are taken to be about as large."""

    start: int
    stop: int
    size: int
    """Bytes of all of them."""


class Slice(NamedTuple):
    """What one task reads of one shard."""

    shard: int
    """Index of the shard in the plan."""
    start: int
    stop: int


def cover(start: int, stop: int, log_first: int, chunks: Sequence[Chunk]) -> list[Piece]:
    """Return pieces that cover `start` to `stop` exactly once, in order.  `chunks` are sorted; they may overlap.

    Raises:
        DataLost: what `start` begins with is gone, or a chunk is missing.
    """
    pieces, at = list[Piece](), start
    chunk_stop = min(stop, log_first)
    for chunk in chunks:
        if at >= chunk_stop:
            break
        if chunk.sequence_max < at:
            continue
        if chunk.sequence_min > at:
            raise DataLost(at, min(chunk.sequence_min, chunk_stop))
        end = min(chunk_stop, chunk.sequence_max + 1)
        pieces.append(Piece(at, end, chunk))
        at = end
    if at < chunk_stop:
        raise DataLost(at, chunk_stop)
    if at < stop:
        pieces.append(Piece(at, stop, None))
    return pieces


def within(chunks: Iterable[H], start: int, stop: int) -> list[H]:
    """Return the chunks that hold a record of `start` to `stop`."""
    return [chunk for chunk in chunks if chunk.sequence_min < stop and chunk.sequence_max >= start]


def spans_of(pieces: Iterable[Piece], log_spans: Callable[[int, int], Iterable[Span]]) -> Iterator[Span]:
    """Yield pieces with their sizes; `log_spans` knows those of the log's."""
    for piece in pieces:
        if piece.chunk is None:
            yield from log_spans(piece.start, piece.stop)
        else:
            whole = Span(piece.chunk.sequence_min, piece.chunk.sequence_max + 1, piece.chunk.size)
            yield clip(whole, piece.start, piece.stop)


def clip(span: Span, start: int, stop: int) -> Span:
    """Return the part of a span from `start` to `stop`."""
    low, high = max(start, span.start), min(stop, span.stop)
    return Span(low, high, _share(span.size, high - low, span.stop - span.start))


def pack(shards: Sequence[Sequence[Span]], partition_bytes: int, partitions_min: int) -> list[list[Slice]]:
    """Return what each task reads: about `partition_bytes`, from one or more shards, in order.

    Segments are cut where a task has enough.  No task has more than its share of `partitions_min`, as long as there are
    records enough.
    """
    total = sum(span.size for spans in shards for span in spans)
    target = max(1, min(partition_bytes, total // partitions_min))
    tasks: list[list[Slice]] = []
    room = 0
    for number, spans in enumerate(shards):
        for part in _cut(spans, target):
            if part.size > room or not tasks:
                tasks.append([])
                room = target
            _add(tasks[-1], Slice(number, part.start, part.stop))
            room -= part.size
    return tasks


def limit_records(start: Mapping[ShardId, int], end: Mapping[ShardId, int], records_max: int) -> Offsets:
    """Return an end with at most `records_max` records behind `start`, each shard with its share of what is there."""
    waiting = {shard: max(0, end[shard] - start.get(shard, end[shard])) for shard in end}
    total = sum(waiting.values())
    if total <= records_max:
        return dict(end)
    shares = {shard: divmod(records_max * count, total) for shard, count in waiting.items()}
    left = records_max - sum(whole for whole, _ in shares.values())
    by_rest = sorted(shares, key=lambda shard: (-shares[shard][1], shard))
    extra = set(by_rest[:left])
    return {shard: end[shard] - waiting[shard] + shares[shard][0] + (shard in extra) for shard in end}


def limit_bytes(
    start: Mapping[ShardId, int],
    end: Mapping[ShardId, int],
    spans: Mapping[ShardId, Sequence[Span]],
    bytes_max: int,
) -> Offsets:
    """Return an end with about `bytes_max` behind `start`, and at least one record if there is one."""
    sizes = {shard: sum(span.size for span in spans.get(shard, ())) for shard in end}
    total = sum(sizes.values())
    if total <= bytes_max:
        return dict(end)
    found = {
        shard: _advance(spans.get(shard, ()), end[shard], bytes_max * size // total) for shard, size in sizes.items()
    }
    if any(found[shard] > start.get(shard, found[shard]) for shard in found):
        return found
    first = max(sizes, key=lambda shard: (sizes[shard], shard))
    return found | {first: min(end[first], start.get(first, end[first]) + 1)}


def without(start: int, stop: int, taken: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the stretches of `start` to `stop` that are left when those `taken`, in order, are out."""
    left, at = [], start
    for low, high in taken:
        if at < low:
            left.append((at, low))
        at = max(at, high)
    return [*left, (at, stop)] if at < stop else left


def _cut(spans: Iterable[Span], target: int) -> Iterator[Span]:
    for span in spans:
        count = span.stop - span.start
        parts = min(count, -(-span.size // target)) or 1
        edges = [span.start + count * part // parts for part in range(parts + 1)]
        for low, high in pairwise(edges):
            yield clip(span, low, high)


def _add(task: list[Slice], part: Slice) -> None:
    last = task[-1] if task else None
    if last is not None and last.shard == part.shard and last.stop == part.start:
        task[-1] = Slice(part.shard, last.start, part.stop)
    else:
        task.append(part)


def _advance(spans: Iterable[Span], stop: int, size: int) -> int:
    """Return the sequence that is about `size` bytes into spans."""
    at = stop
    for span in spans:
        if span.size > size:
            return span.start + _share(span.stop - span.start, size, span.size)
        size -= span.size
        at = span.stop
    return min(at, stop)


def _share(whole: int, part: int, parts: int) -> int:
    return whole * part // parts if parts else 0
