"""A lock that refuses the thread that already holds it.

A signal handler or a finalizer runs inside whatever its thread was doing.  One that appends while its own thread is in
the middle of an append would find the log half changed.  A lock that let it in would do harm, and one that made it
wait would wait for ever, so this lock raises.
"""

import threading
from collections.abc import Callable

from latewood.errors import UsageError


class Exclusion:
    """A lock for one thread at a time, once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @property
    def __enter__(self) -> Callable[[], bool]:
        """Take it, when no other thread has it.

        A property, so that `with` takes the lock itself: an interrupt in a method of ours would come between.

        Raises:
            UsageError: this very thread has it, and is in a signal handler or a finalizer.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined] # noqa: SLF001 - what `threading.Condition` asks, too
            raise UsageError("the log is in the middle of a call of this thread; a signal handler must not write to it")
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302, PYI036 - the lock's own method has the arguments
        """Give it up."""
        return self._lock.__exit__
