"""The call that is made for every record: straight to the appender, and on only if that finds no room.

It outlives the segments, so a caller may keep it: whoever opens a segment sets its appender here.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from latewood.kernel.pure_appender import Appender

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Slow = Callable[[Any, int, int | None, bool], int]


class Door:
    """Appends to whichever segment is open."""

    def __init__(self, slow: Slow) -> None:
        """`slow(payload, ext_id, timestamp_ns, durable)` is called for what the appender cannot do."""
        self._appender: Appender | None = None
        self._has_time = True
        self._slow = slow

    def set(self, appender: Appender | None, *, has_time: bool = True) -> None:
        """Send appends to `appender`, or, without one, all to `slow`; without `has_time`, only those with a time."""
        self._appender, self._has_time = appender, has_time

    def append(
        self, payload: "ReadableBuffer", *, ext_id: int = 0, timestamp_ns: int | None = None, durable: bool = False
    ) -> int:
        """Append one record and return its sequence."""
        appender = self._appender
        if appender is not None and not durable and (self._has_time or timestamp_ns is not None):
            with suppress(OverflowError):  # `slow` says better what is wrong.
                sequence = appender.append(payload, ext_id, timestamp_ns)
                if sequence >= 0:
                    return sequence
        return self._slow(payload, ext_id, timestamp_ns, durable)


def largest(payloads: "Iterable[ReadableBuffer]") -> int:
    """Return the length of the largest of some bytes-likes."""
    return max([len(one) if type(one) is bytes else memoryview(one).nbytes for one in payloads], default=0)
