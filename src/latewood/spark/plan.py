"""Ranges of records → input partitions; limits → the end of a micro-batch.  Pure, and without pyspark."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from latewood.archive.cover import Piece, Ranged
from latewood.limits import MiB
from latewood.spark.offsets import Offsets, ShardId

TASK_BYTES_MIN: Final = 8 * MiB
"""A task's start costs about as much as reading this."""
TASK_BYTES_MAX: Final = 256 * MiB
"""What is lost if one fails, and has to be read again.  Spark gives 128 MiB to a task; of files that are compressed."""


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


H = TypeVar("H", bound=Ranged)


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


def within(chunks: Iterable[H], start: int, stop: int) -> list[H]:
    """Return the chunks that hold a record of `start` to `stop`."""
    return [chunk for chunk in chunks if chunk.sequence_min < stop and chunk.sequence_max >= start]


def spans_of(pieces: Iterable[Piece[Chunk]], log_spans: Callable[[int, int], Iterable[Span]]) -> Iterator[Span]:
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


def filled(spans: Iterable[Span], start: int, stop: int) -> Iterator[Span]:
    """Yield spans with what is missing between `start` and `stop`, as large as its neighbour for so many records."""
    at, record_bytes = start, 1
    for span in spans:
        record_bytes = max(1, span.size // max(1, span.stop - span.start))
        if span.start > at:
            yield Span(at, span.start, record_bytes * (span.start - at))
        yield span
        at = span.stop
    if at < stop:
        yield Span(at, stop, record_bytes * (stop - at))


def task_bytes(total: int, cores: int) -> int:
    """Return how much goes into one task where nobody has said: an equal share for each core, within bounds."""
    return max(TASK_BYTES_MIN, min(TASK_BYTES_MAX, -(-total // cores)))


def pack(shards: Sequence[Sequence[Span]], partition_bytes: int, partitions_min: int) -> list[list[Slice]]:
    """Return what each task reads: at most about `partition_bytes`, all the same, from one or more shards, in order.

    Segments are cut wherever a task has its share.  There are at least `partitions_min` tasks, as long as there are
    records enough.
    """
    spans = [span for spans in shards for span in spans]
    tasks_min = -(-sum(span.size for span in spans) // partition_bytes)
    edges = _edges(spans, max(1, tasks_min, partitions_min))
    tasks: list[list[Slice]] = [[] for _ in edges]
    at = task = 0
    for number, own in enumerate(shards):
        for start, stop, _ in own:
            low = start
            while low < stop:
                high = min(stop, low + edges[task] - at)
                _add(tasks[task], Slice(number, low, high))
                at += high - low
                task += at == edges[task]
                low = high
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


def _edges(spans: Sequence[Span], tasks: int) -> list[int]:
    """Return the ordinals at which so many tasks end, of about the same size, each with a record at least."""
    total, records = sum(span.size for span in spans), sum(span.stop - span.start for span in spans)
    tasks = min(tasks, records)
    edges: list[int] = []
    index = seen = passed = 0
    for number in range(1, tasks):
        size = total * number // tasks
        while seen + spans[index].size < size:
            seen += spans[index].size
            passed += spans[index].stop - spans[index].start
            index += 1
        span = spans[index]
        wanted = passed + _share(span.stop - span.start, size - seen, span.size)
        least = edges[-1] + 1 if edges else 1
        edges.append(min(max(least, wanted), records - (tasks - number)))
    return [*edges, records] if records else []


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
