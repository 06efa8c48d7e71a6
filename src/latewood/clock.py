"""The time, as a collaborator that tests can replace."""

import time
from typing import Protocol


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
