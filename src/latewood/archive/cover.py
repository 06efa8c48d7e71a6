"""Where the records of one shard are to be read from.  Pure.

Whatever the log still has is read from the log; what came before, from chunks.  Both overlap for a while, and never
leave a gap: a record leaves the log only when a verified chunk has it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from latewood.errors import DataLost


class Ranged(Protocol):
    """Something that holds a range of sequences."""

    @property
    def sequence_min(self) -> int:
        """The first sequence in it."""
        ...

    @property
    def sequence_max(self) -> int:
        """The last sequence in it, counted in."""
        ...


class Marked(Protocol):
    """Something that remembers when which of its records had become part of a chunk."""

    @property
    def marks(self) -> Sequence[tuple[int, int]]:
        """Generations, and the last sequence that had come with each."""
        ...


C = TypeVar("C", bound=Ranged)


class Piece(NamedTuple, Generic[C]):
    """A stretch of sequences, `start` to `stop`, and the chunk that holds it; None: the log."""

    start: int
    stop: int
    chunk: C | None


def cover(start: int, stop: int, log_first: int, chunks: Sequence[C]) -> list[Piece[C]]:
    """Return pieces that cover `start` to `stop` exactly once, in order.  `chunks` are sorted; they may overlap.

    Raises:
        DataLost: what `start` begins with is gone, or a chunk is missing.
    """
    return list(covering(start, stop, log_first, chunks))


def covering(start: int, stop: int, log_first: int, chunks: Sequence[C]) -> Iterator[Piece[C]]:
    """Yield the pieces of `cover`, those before a gap too.

    Raises:
        DataLost: as `cover`, once the pieces before are out.
    """
    at = start
    chunk_stop = min(stop, log_first)
    for chunk in chunks:
        if at >= chunk_stop:
            break
        if chunk.sequence_max < at:
            continue
        if chunk.sequence_min > at:
            raise DataLost(at, min(chunk.sequence_min, chunk_stop))
        end = min(chunk_stop, chunk.sequence_max + 1)
        yield Piece(at, end, chunk)
        at = end
    if at < chunk_stop:
        raise DataLost(at, chunk_stop)
    if at < stop:
        yield Piece(at, stop, None)


def as_of(generation: int, chunks: Iterable[Marked], first: int) -> int:
    """Return the sequence up to which a shard had come at a generation of its chunks."""
    lasts = (last for chunk in chunks for at, last in chunk.marks if at <= generation)
    return max(first, 1 + max(lasts, default=first - 1))


def floor(log_first: int, chunks: Sequence[Ranged]) -> int:
    """Return the first sequence that can be read."""
    return min(chunks[0].sequence_min, log_first) if chunks else log_first
