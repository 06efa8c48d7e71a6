"""What a forked child must let go of.

A child shares its parent's file descriptions and mappings, so a log or lock that it inherits would write
into the parent's files.  Each such object registers here and is told, in the child, to abandon itself.
"""

import os
import weakref
from contextlib import suppress
from typing import Final, Protocol


class Abandonable(Protocol):
    """Something that a child process must not use."""

    def abandon_after_fork(self) -> None:
        """Become unusable in this, the child process, without touching shared state."""
        ...


_LIVING: Final[weakref.WeakSet[Abandonable]] = weakref.WeakSet()
"""The one mutable global: fork handlers cannot be unregistered, so one handler serves all objects."""


def close_after_fork(thing: Abandonable) -> None:
    """Have `thing` abandoned in every child that is forked while it lives."""
    _LIVING.add(thing)


def _abandon_all() -> None:
    for thing in list(_LIVING):
        with suppress(Exception):  # One that cannot let go must not keep the others from it.
            thing.abandon_after_fork()


os.register_at_fork(after_in_child=_abandon_all)
