"""What a user may choose about a log."""

from dataclasses import dataclass, replace
from typing import Any

from latewood.errors import UsageError
from latewood.limits import SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, KiB, MiB

_INTERVAL_MAX = 1 << 20
_SEQUENCE_MAX = 1 << 62


class _Unchosen(int):
    """A default: where there is a log already, what it has counts instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a log rolls and flushes.

    A log may be reopened with others.  Size and index interval of a segment hold from the next segment on, and are
    kept in the log: whoever opens it without them goes on with those that it has.
    """

    segment_bytes_max: int = _Unchosen(64 * MiB)
    """Roll before header and records pass this. Larger: fewer files, longer retention steps."""

    segment_records_max: int | None = None
    """Roll before a segment holds more records than this."""

    segment_age_max_ms: int | None = None
    """Roll a segment that has records once it is this old, also when nothing is appended."""

    index_interval: int = _Unchosen(1024)
    """Records between two entries of a segment's index. Smaller: faster seeks, larger files."""

    keyed: bool = False
    """Whether payloads begin with a key, as a database's do; noted when the log is made, which itself does not look."""

    first_sequence: int = 0
    """Of a log that is made now: the sequence of its first record.  For logs that go on where others end."""

    fill: bool = False
    """Write zeros to segments ahead, while the log grows slowly enough. Flushes of several blocks take about half as
    long, because the file system has no books to keep; the disk writes as many bytes again. Small batches are
    written by a call, which a flush right after favours."""

    flush_bytes: int | None = None
    """Flush after this many bytes. The appender that passes the mark waits for the disk."""

    flush_ms: int | None = None
    """Flush at the latest this long after an append, in the background."""

    flush_every_append: bool = False
    """Make every append durable before it returns."""

    def __post_init__(self) -> None:
        """Check every field once.

        Raises:
            UsageError: a value of the wrong type, or out of bounds; the text says which.
        """
        _check("segment_bytes_max", self.segment_bytes_max, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
        _check("index_interval", self.index_interval, 1, _INTERVAL_MAX)
        _check("first_sequence", self.first_sequence, 0, _SEQUENCE_MAX)
        for name in ("segment_records_max", "segment_age_max_ms", "flush_bytes", "flush_ms"):
            value = getattr(self, name)
            if value is not None:
                _check(name, value, 1, 1 << 62)
        for name in ("fill", "flush_every_append", "keyed"):
            flag: object = getattr(self, name)
            if not isinstance(flag, bool):
                message = f"{name} must be True or False, not {flag!r}"
                raise UsageError(message)

    @property
    def file_bytes_max(self) -> int:
        """`segment_bytes_max`, rounded down to where a record can end."""
        return self.segment_bytes_max // 8 * 8

    def inheriting(self, segment_bytes_max: int, index_interval: int) -> "LogOptions":
        """Return these options, with what nobody chose as a log has it."""
        kept: dict[str, Any] = {"segment_bytes_max": segment_bytes_max, "index_interval": index_interval}
        taken = {name: value for name, value in kept.items() if isinstance(getattr(self, name), _Unchosen)}
        return replace(self, **taken) if taken else self


def _check(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        message = f"{name} must be a whole number from {low:,} to {high:,}, not {value!r}"
        raise UsageError(message)


__all__ = ["KiB", "LogOptions", "MiB"]
