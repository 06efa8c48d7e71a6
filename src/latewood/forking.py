"""Fork: how a child process gives up what it inherits open.

A child shares its parent's open files and mappings, so a log or lock that it inherits would write into the parent's
files.  Each such object registers with `close_after_fork`, and in the child its `abandon_after_fork` is called.
`no_fork` keeps forks out of a block, `OwnLock` is a lock that the child finds free, and `keep_for_ever` is for objects
whose finaliser would touch what the parent uses.

Threads: the handlers run in the thread that forks, which is the only one in the child.
"""

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Protocol

from latewood.errors import Forked


class Abandonable(Protocol):
    """Something that a child process must not use."""

    def abandon_after_fork(self) -> None:
        """Become unusable in this, the child process, without touching shared state."""
        ...


_LIVING: Final[weakref.WeakSet[Abandonable]] = weakref.WeakSet()
"""A mutable global, as is `_UNDIVIDED`: fork handlers cannot be unregistered, so one handler serves all objects."""
_UNDIVIDED: Final = threading.RLock()
"""Held during a fork, and by a thread while it opens something that a child must give up."""


def close_after_fork(thing: Abandonable) -> None:
    """Have `thing` abandoned in every child that is forked while it lives."""
    _LIVING.add(thing)


def no_fork() -> AbstractContextManager[bool]:
    """Let no other thread fork while a block runs.  The block may wait for the disk and for imports, and nothing else.

    A module that another thread is importing at the fork can never be imported in the child.  So imports within
    functions are made in such a block.
    """
    return _UNDIVIDED  # The lock itself: a context manager in Python could be interrupted between the steps of `with`.


def keep_for_ever(thing: object) -> None:
    """Never finalise `thing` in this process, not even when the interpreter ends."""
    with suppress(ImportError, AttributeError):  # An interpreter that counts no references.
        import ctypes  # noqa: PLC0415 - only processes that fork need it; `_before` has imported it

        increment: Any = ctypes.pythonapi.Py_IncRef
        increment(ctypes.py_object(thing))


def forked(what: object) -> Forked:
    """Return the error for the use, in a child, of something that the parent process opened."""
    return Forked(f"{what} was opened by the parent process, before a fork; open it again in this one")


class OwnLock:
    """A lock that is free in a forked child, where the thread that held it in the parent does not exist.

    The child must refuse every use of what the lock guards: it may be half changed.
    """

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self._make, self._lock = make, make()
        close_after_fork(self)

    @property
    def __enter__(self) -> Callable[[], bool]:
        """Take it.  A property, so that `with` takes the lock itself, and no interrupt comes between in a method."""
        enter: Callable[[], bool] = self._lock.__enter__
        return enter

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302, PYI036 - the lock's own method has the arguments
        """Give up the lock that was taken, which in a child forked since is not the one that is used there now."""
        leave: Callable[..., None] = self._lock.__exit__
        return leave

    def abandon_after_fork(self) -> None:
        """Use another lock from now on, which is free."""
        self._lock = self._make()


def _before() -> None:
    _UNDIVIDED.acquire()
    if _LIVING:
        with suppress(ImportError):  # Here, because in the child a lock of the import system may be held for ever.
            import ctypes  # noqa: F401, PLC0415 - as above


def _after_in_child() -> None:
    _UNDIVIDED.release()
    for thing in list(_LIVING):
        with suppress(Exception):  # One that cannot let go must not keep the others from it.
            thing.abandon_after_fork()


os.register_at_fork(before=_before, after_in_parent=_UNDIVIDED.release, after_in_child=_after_in_child)
