"""What a forked child must let go of.

A child shares its parent's file descriptions and mappings, so a log or lock that it inherits would write into the
parent's files.  Each such object registers here and is told, in the child, to abandon itself.  What must not even be
finalised there is kept for ever.

Threads: the handlers run in the thread that forks, in the child the only one.
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
"""Held by a fork, and by a thread that takes something over which a child must know of from its first moment on."""


def close_after_fork(thing: Abandonable) -> None:
    """Have `thing` abandoned in every child that is forked while it lives."""
    _LIVING.add(thing)


def no_fork() -> AbstractContextManager[bool]:
    """Let no other thread fork while a block runs; it must not wait for anything but an import.

    A module that another thread is importing at the fork can never be imported in the child.  So what a call imports
    late, it imports in such a block.
    """
    return _UNDIVIDED  # The lock itself: a context manager in Python could be interrupted between the steps of `with`.


def keep_for_ever(thing: object) -> None:
    """Never finalise `thing` in this process, not even when the interpreter ends."""
    with suppress(ImportError, AttributeError):  # An interpreter that counts no references.
        import ctypes  # noqa: PLC0415 - only processes that fork need it; `_before` has imported it

        increment: Any = ctypes.pythonapi.Py_IncRef
        increment(ctypes.py_object(thing))


def forked(what: object) -> Forked:
    """Return the error of whoever uses, in the child, what the parent process opened."""
    return Forked(f"{what} was opened by the parent process, before a fork; open it again in this one")


class OwnLock:
    """A lock that a forked child gets unlocked: the thread that held it in the parent is not there.

    What it guards must not be used in the child, only refused.
    """

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self._make, self._lock = make, make()
        close_after_fork(self)

    @property
    def __enter__(self) -> Callable[[], bool]:
        """Take it.  A property, so that `with` takes the lock itself: an interrupt in a method would come between."""
        enter: Callable[[], bool] = self._lock.__enter__
        return enter

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PLE0302, PYI036 - the lock's own method has the arguments
        """Give up the lock that was taken: in a child that was forked meanwhile not the one that is new there."""
        leave: Callable[..., None] = self._lock.__exit__
        return leave

    def abandon_after_fork(self) -> None:
        """Be another lock, which nobody holds."""
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
