"""A lock that refuses whoever already holds it.

A signal handler or a finalizer runs inside whatever its thread was doing.  One that appends while its own thread is in
the middle of an append would find the log half changed, and a lock that lets it in, or makes it wait for itself,
is no help: so it is told.
"""

import threading
from types import TracebackType

from latewood.errors import UsageError


class Exclusion:
    """A lock for one thread at a time, once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        """Take it, when no other thread has it.

        Raises:
            UsageError: this very thread has it: we are in a signal handler or a finalizer.
        """
        if self._owner == threading.get_ident():
            raise UsageError("the log is in the middle of a call of this thread; a signal handler must not write to it")
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner = None
        self._lock.release()
