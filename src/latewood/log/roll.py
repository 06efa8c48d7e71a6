"""When to roll, and what to do when an append finds no room.  Pure."""

from enum import Enum, auto
from typing import NamedTuple

from latewood.errors import RecordTooLarge
from latewood.format.record import payload_bytes_max, record_bytes
from latewood.format.segment import HEADER_SIZE
from latewood.limits import CHECKPOINT_BYTES, FILL_BYTES_PER_S, RESERVE_BYTES


class Room(Enum):
    """What makes room for a record."""

    ROLL = auto()
    """The segment is full: seal it and begin the next."""

    ALLOW = auto()
    """The segment has room that is already reserved: let appends into it."""

    RESERVE = auto()
    """The segment has room that must be reserved first, by a checkpoint."""


class Fill(NamedTuple):
    """How full the open segment is."""

    offset: int
    record_count: int
    reserved_end: int
    records_end_max: int
    records_max: int


def check_payload(payload_bytes: int, segment_bytes_max: int) -> None:
    """Raise if no segment of this size could hold the payload.

    Raises:
        RecordTooLarge: none could.
    """
    largest = payload_bytes_max(segment_bytes_max - HEADER_SIZE)
    if payload_bytes > largest:
        raise RecordTooLarge(payload_bytes, largest)


def room_for(payload_bytes: int, fill: Fill) -> Room:
    """Say what an append of this size must wait for.  An exact fit is a fit."""
    end = fill.offset + record_bytes(payload_bytes)
    if end > fill.records_end_max or fill.record_count >= fill.records_max:
        return Room.ROLL
    return Room.ALLOW if end <= fill.reserved_end else Room.RESERVE


def allowed_end(offset: int, payload_bytes: int, reserved_end: int) -> int:
    """Return how far single appends may go before the next checkpoint is asked for."""
    return min(reserved_end, max(offset + CHECKPOINT_BYTES, offset + record_bytes(payload_bytes)))


def reservation_end(offset: int, payload_bytes: int, records_end_max: int) -> int:
    """Return how far a checkpoint at `offset` lets appends go."""
    return min(records_end_max, offset + max(RESERVE_BYTES, record_bytes(payload_bytes)))


def may_fill(offset: int, created_ns: int, now_ns: int) -> bool:
    """Say whether a segment that has come so far since then leaves the disk time to fill the next one."""
    return offset * 1_000_000_000 <= FILL_BYTES_PER_S * (now_ns - created_ns)


def is_old(first_append_ns: int, age_max_ms: int, now_ns: int) -> bool:
    """Say whether a segment that got its first record then has reached its age."""
    return now_ns - first_append_ns >= age_max_ms * 1_000_000
