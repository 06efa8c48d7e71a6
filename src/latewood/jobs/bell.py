"""Bell: how threads of the pool wait for each other, so that a test can wait in their place."""

import threading
from typing import Protocol


class Bell(Protocol):
    """Something that rings, and can be waited for."""

    def count(self) -> int:
        """Return how often it rang.  Look at this before you look whether there is something to do."""
        ...

    def ring(self) -> None:
        """Wake whoever waits.  Any thread may."""
        ...

    def wait(self, seen: int, seconds: float) -> None:
        """Return when it has rung more often than `seen`, or so many seconds have passed."""
        ...


class ThreadBell:
    """The real one."""

    def __init__(self) -> None:
        self._count = 0
        self._rung = threading.Condition()

    def count(self) -> int:
        """Return how often it rang."""
        with self._rung:
            return self._count

    def ring(self) -> None:
        """Wake whoever waits."""
        with self._rung:
            self._count += 1
            self._rung.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Return when it has rung more often than `seen`, or the time is over."""
        with self._rung:
            self._rung.wait_for(lambda: self._count > seen, max(0.0, seconds))
