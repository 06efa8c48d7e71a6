"""Which chunks are worth making one of.  Pure.

Neighbours that are small become one chunk of up to the target size.  A chunk is rewritten only together with others
that are at least half as large as itself in sum: so what a record is part of grows by half each time, and a record is
rewritten a few times at most, however often small chunks come in behind it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from latewood.types import ChunkId

COUNT_MIN: Final = 2
COUNT_MAX: Final = 1024
"""Chunks that one compaction reads: each has a file open."""

_RATIO_MAX: Final = 2


class Piece(NamedTuple):
    """A live chunk of one shard."""

    chunk_id: ChunkId
    sequence_min: int
    sequence_max: int
    size_bytes: int


def plan(pieces: Sequence[Piece], target_bytes: int, *, eager: bool = False) -> list[list[Piece]]:
    """Return runs of neighbours to make one chunk of each; `pieces` are of one shard, in order.

    With `eager` whatever fits is joined, however often it was before.
    """
    runs = _runs(pieces, target_bytes)
    return [group for run in runs for group in ([run] if eager else _worthwhile(run)) if len(group) >= COUNT_MIN]


def _runs(pieces: Sequence[Piece], target_bytes: int) -> Iterator[list[Piece]]:
    """Yield stretches of neighbours that fit the target together."""
    run, size = list[Piece](), 0
    for piece in pieces:
        follows = bool(run) and run[-1].sequence_max + 1 == piece.sequence_min
        if not follows or size + piece.size_bytes > target_bytes or len(run) >= COUNT_MAX:
            yield run
            run, size = [], 0
        run.append(piece)
        size += piece.size_bytes
    yield run


def _worthwhile(run: list[Piece]) -> Iterator[list[Piece]]:
    """Yield the parts of a run in which no chunk is more than twice as large as all others together."""
    if len(run) < COUNT_MIN:
        return
    largest = max(range(len(run)), key=lambda index: run[index].size_bytes)
    rest = sum(piece.size_bytes for piece in run) - run[largest].size_bytes
    if run[largest].size_bytes <= _RATIO_MAX * rest:
        yield run
        return
    yield from _worthwhile(run[:largest])
    yield from _worthwhile(run[largest + 1 :])
