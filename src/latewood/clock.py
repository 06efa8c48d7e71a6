"""The time, as a collaborator that tests can replace."""

import time
from typing import Protocol

from latewood.limits import TIMESTAMP_NS_MAX, check_number


class Clock(Protocol):
    """Tells the time of day in nanoseconds since 1970."""

    def now_ns(self) -> int:
        """Return the present time."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        """Return the present time."""
        return time.time_ns()


class CheckedClock:
    """A clock that the program passed in.  Its times are checked here, because many places compare and store them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ns(self) -> int:
        """Return the present time.

        Raises:
            UsageError: the clock's answer is no time from 1970 to 2262 in whole nanoseconds.
        """
        return check_number(self._clock.now_ns(), TIMESTAMP_NS_MAX, "what the clock tells, in nanoseconds since 1970,")


def checked(clock: Clock | None) -> Clock:
    """Return a clock whose times can be stored: the machine's if none is given."""
    if clock is None:
        return SystemClock()
    return clock if type(clock) in {SystemClock, CheckedClock} else CheckedClock(clock)
