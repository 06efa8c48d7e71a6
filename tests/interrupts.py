"""Ctrl-C at every moment at which Python can act on it: where a function begins, and where one written in C returns."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def as_usual() -> Iterator[None]:
    """Have Ctrl-C raise KeyboardInterrupt while the block runs, whatever runs the tests makes of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _acts_at(event: str, argument: Any) -> bool:
    """Say whether Python may act on a signal at an event of the profiler.

    Python 3.14 also acts between the `__enter__` of a lock and the block that would release it.  No program can do
    anything about that moment, so it is left out: latewood/interrupts.py.
    """
    if sys.version_info >= (3, 14) and getattr(argument, "__name__", "") == "__enter__":
        return False
    return event in {"call", "c_return", "c_exception"}


def interrupted(work: Callable[[], Any], at: int) -> tuple[bool, Any]:
    """Do `work()`, with a Ctrl-C at moment `at` of it; return whether it was cut, and else what it returned.

    A tracer is called at just these moments, and a signal that is raised in it acts there.
    """
    left = at

    def look(_frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        if _acts_at(event, argument):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    before = sys.getprofile()
    try:
        sys.setprofile(look)
        try:
            return False, work()
        finally:
            sys.setprofile(before)
    except KeyboardInterrupt:
        return True, None


def moments(work: Callable[[], Any], most: int) -> range:
    """Return the moments of `work()`, or `most` of them that are spread evenly."""
    count = 0

    def look(_frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += _acts_at(event, argument)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(before)
    return range(1, count + 1, -(-count // most))
