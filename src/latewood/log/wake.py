"""Sleeping until somebody appends, in this process or another.

The file `wake` holds two words in memory that all share: a flag that a sleeper sets, and an epoch that the
writer advances when it finds the flag set.  An append that nobody waits for costs no system call; a reader
that dies asleep leaves a flag that the next append clears.  Where the directory cannot be written, readers
look again every few milliseconds instead.
"""

import time
from collections.abc import Callable

from latewood.errors import LatewoodError, NotFoundError, ReadOnlyError
from latewood.fs import FileSystem, Mapping
from latewood.kernel import arm, wait, wake_all
from latewood.log.layout import NANOSECONDS, Layout

WAKE_BYTES = 64
_SPINS = 20
_NAP_S = 0.005
_SLEEP_MAX_NS = NANOSECONDS
"""A sleeper looks again this often, so that a writer that died between append and wake delays it no longer."""


class Wake:
    """The shared words of one log."""

    def __init__(self, fs: FileSystem, layout: Layout, *, create: bool) -> None:
        self._mapping = _mapped(fs, layout, create=create)

    @property
    def view(self) -> memoryview | None:
        """The words, for the appender."""
        return self._mapping.view if self._mapping else None

    def wake(self) -> None:
        """Wake all sleepers."""
        if mapping := self._mapping:
            wake_all(mapping.view)

    def wait(self, ready: Callable[[], bool], timeout_s: float | None, check: Callable[[], None] | None = None) -> bool:
        """Return True as soon as `ready()` is, or False when the time is up.  Calls `check` after vain sleeps."""
        deadline = None if timeout_s is None else time.monotonic_ns() + int(timeout_s * NANOSECONDS)
        for _ in range(_SPINS):
            if ready():
                return True
        while True:
            left = _SLEEP_MAX_NS if deadline is None else min(_SLEEP_MAX_NS, deadline - time.monotonic_ns())
            if left <= 0:
                return ready()
            if self._sleep(ready, left):
                return True
            if check is not None:
                check()

    def close(self) -> None:
        """Let go of the words; sleepers in other threads hold them until they wake."""
        self._mapping = None

    def _sleep(self, ready: Callable[[], bool], left_ns: int) -> bool:
        mapping = self._mapping
        if mapping is None:
            time.sleep(min(_NAP_S, left_ns / NANOSECONDS))
            return ready()
        # Set the flag, then look once more: an append before the flag is seen here, one after it wakes us.
        epoch = arm(mapping.view)
        if ready():
            return True
        wait(mapping.view, epoch, left_ns)
        return ready()


def _mapped(fs: FileSystem, layout: Layout, *, create: bool) -> Mapping | None:
    try:
        file = fs.open(layout.wake, write=True, create=create)
    except (NotFoundError, ReadOnlyError):
        return None
    try:
        if create:
            file.allocate(WAKE_BYTES)
        return file.map(WAKE_BYTES, writable=True) if file.size() >= WAKE_BYTES else None
    except LatewoodError:
        if create:
            raise
        return None
    finally:
        file.close()
