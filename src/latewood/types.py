"""Small values that every layer speaks of."""

from typing import NamedTuple


class Position(NamedTuple):
    """Where a record begins, or where the next one will."""

    segment_id: int
    """The segment's number: 0, 1, 2 … in the order of creation."""

    offset: int
    """Byte distance from the start of that segment's file."""

    sequence: int
    """The record's number in its log."""
