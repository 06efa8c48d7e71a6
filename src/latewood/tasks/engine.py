"""Engine: where tasks are done.  Here, one after the other, or on a cluster, many at a time.

Whoever has tasks plans them, hands them to an engine, and commits what comes back, in the order of the tasks; so that
code is the same whatever the engine is.  A function of tasks is at the top of a module, and a task is a plain value:
both are sent by name and by value.
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from latewood.archive.names import RandomBytes
from latewood.archive.sink import Hook, no_hook
from latewood.archive.tier import Tier
from latewood.clock import Clock
from latewood.fs import FileSystem

if TYPE_CHECKING:
    from latewood.archive.keys import KeyRing

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What tasks are done with, where they are done."""

    fs: FileSystem
    clock: Clock
    random_bytes: RandomBytes
    tier: Callable[[], Tier]
    """Returns the archive; raises what tells that there is none."""
    keys: "KeyRing | None" = None
    """All keys that there are."""
    step: Hook = no_hook
    """Called with the name of each step that another process could see."""


Run: TypeAlias = Callable[[T, Tools], Iterable[R]]
"""Does one task.  It may be done twice, also at the same time, and be cut at any moment."""

Check: TypeAlias = Callable[[], None]
"""Returns if there is no reason to end; raises it."""


def no_check() -> None:
    """See no reason to end."""


class Engine(Protocol):
    """Does tasks."""

    lanes: int
    """How many are done at a time, about.  1: there is no use in cutting work into pieces."""
    is_staged: bool
    """Whether a task may be done twice, or go on when nobody waits for it: new files must not be made in place then."""

    def map(self, run: "Run[T, R]", tasks: Iterable[T], check: Check = no_check) -> "Generator[R]":
        """Yield what the tasks come to, in their order.  Tasks are asked for when there is room for them.

        Whoever stops before the end closes the iterator; what is under way is then called off.

        Raises:
            LatewoodError: what a task raised; what came before it was yielded.
            UnavailableError: the engine gave up on a task; another attempt may succeed.
        """
        ...


class LocalEngine:
    """Does each task here, when its results are asked for: the next one begins when those are done with."""

    lanes = 1
    is_staged = False

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def map(self, run: "Run[T, R]", tasks: Iterable[T], check: Check = no_check) -> "Generator[R]":
        """Yield what the tasks come to, one after the other."""
        for task in tasks:
            check()
            yield from run(task, self._tools)
