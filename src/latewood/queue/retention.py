"""Which segments may go.  Pure.

A sealed segment may go once every reader has passed it.  Without readers nothing goes, unless the policy says how
much or how long to keep.  A reader that has been silent for longer than the policy allows holds nothing back, unless it
is one of ours.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from latewood.errors import UsageError
from latewood.limits import READER_PREFIX_OWN

_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """What may be deleted beyond what every reader has passed."""

    max_bytes: int | None = None
    """Without readers, keep at most this much in sealed segments."""

    max_age_ms: int | None = None
    """Without readers, keep segments this long after their seal."""

    ignore_readers_silent_ms: int | None = None
    """A reader that has committed nothing for this long holds nothing back; it may meet DataLost."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value that is no whole number, or below zero.
        """
        for name in ("max_bytes", "max_age_ms", "ignore_readers_silent_ms"):
            value: object = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                unit = "bytes" if name == "max_bytes" else "milliseconds"
                message = f"{name} must be a whole number of {unit}, not {value!r}"
                raise UsageError(message)
            if value < 0:
                message = f"{name} must be 0 or more, not {value}"
                raise UsageError(message)


class SealedSegment(NamedTuple):
    """What retention needs to know of a segment."""

    segment_id: int
    end_sequence: int
    """Its last sequence, included."""
    size: int
    sealed_at_ns: int


class ReaderState(NamedTuple):
    """What retention needs to know of a reader."""

    name: str
    sequence: int
    """The next record it wants."""
    committed_at_ns: int
    """0 if an older program stored the position, and no time: such a reader is never called silent."""


class Plan(NamedTuple):
    """What to retire, and who keeps the rest."""

    retire: list[int]
    held_by: list[str]
    """Readers that still need the oldest segment that stays."""


def plan(
    segments: Iterable[SealedSegment],
    sealed_bytes: int,
    readers: list[ReaderState],
    policy: RetentionPolicy,
    now_ns: int,
) -> Plan:
    """Decide, from the oldest segment on; `segments` is read no further than the first that stays."""
    active = [reader for reader in readers if not _is_ignored(reader, policy, now_ns)]
    retire: list[int] = []
    for segment in segments:
        holders = [reader.name for reader in active if reader.sequence <= segment.end_sequence]
        if holders:
            return Plan(retire, sorted(holders))
        if not active and not _is_surplus(segment, sealed_bytes, policy, now_ns):
            break
        retire.append(segment.segment_id)
        sealed_bytes -= segment.size
    return Plan(retire, [])


def _is_ignored(reader: ReaderState, policy: RetentionPolicy, now_ns: int) -> bool:
    silent_ms = policy.ignore_readers_silent_ms
    if silent_ms is None or not reader.committed_at_ns or reader.name.startswith(READER_PREFIX_OWN):
        return False
    return now_ns - reader.committed_at_ns > silent_ms * _MS


def _is_surplus(segment: SealedSegment, sealed_bytes: int, policy: RetentionPolicy, now_ns: int) -> bool:
    too_much = policy.max_bytes is not None and sealed_bytes > policy.max_bytes
    too_old = policy.max_age_ms is not None and now_ns - segment.sealed_at_ns > policy.max_age_ms * _MS
    return too_much or too_old
