"""Small values that every layer speaks of."""

from typing import NamedTuple, TypeAlias

DbId: TypeAlias = int
"""A database's number in the catalog: 1, 2, 3 … never used again."""

ChunkId: TypeAlias = int
"""A chunk's number in its database."""

JobId: TypeAlias = int
"""A job's number in the catalog: never used again, and larger than those of all jobs before it."""

Generation: TypeAlias = int
"""One component's commit counter in the catalog."""


class Position(NamedTuple):
    """Where a record begins, or where the next one will."""

    segment_id: int
    """The segment's number: 0, 1, 2 … in the order of creation."""

    offset: int
    """Byte distance from the start of that segment's file."""

    sequence: int
    """The record's number in its log."""
