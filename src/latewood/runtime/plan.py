"""Where the records of one shard are to be read from.  Pure.

Whatever the log still has is read from the log; what came before, from chunks.  Both overlap for a while, and never
leave a gap: a record leaves the log only when a verified chunk has it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from latewood.catalog.tables import ChunkRecord
from latewood.errors import DataLost


class Piece(NamedTuple):
    """A stretch of sequences, `start` to `stop`, and the chunk that holds it; None: the log."""

    start: int
    stop: int
    chunk: ChunkRecord | None


def cover(start: int, stop: int, log_first: int, chunks: Sequence[ChunkRecord]) -> list[Piece]:
    """Return pieces that cover `start` to `stop` exactly once, in order.  `chunks` are live, sorted and contiguous.

    Raises:
        DataLost: retention has removed what `start` begins with, or a chunk is missing.
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


def floor(log_first: int, chunks: Sequence[ChunkRecord]) -> int:
    """Return the first sequence that can be read."""
    return min(chunks[0].sequence_min, log_first) if chunks else log_first


def as_of(generation: int, chunks: Sequence[ChunkRecord], first: int) -> int:
    """Return the sequence up to which a shard had come at a generation of its chunks.

    Each chunk remembers its marks: when which of its records had become part of a chunk.
    """
    stop = first
    for chunk in chunks:
        marks = (chunk.columns or {}).get("marks") or [[chunk.generation, chunk.sequence_max]]
        for at, sequence_max in marks:
            if at <= generation:
                stop = max(stop, sequence_max + 1)
    return stop
