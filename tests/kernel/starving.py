"""Calls of the native module in which allocations of the interpreter fail: one alone, or one with all after it."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Protocol, TypeVar

from latewood.errors import UsageError

FAILURES_MAX = 20_000


class Bench(Protocol):
    """What calls are made on."""

    def begin(self) -> None:
        """Make anew whatever a call changes."""

    def check(self, found: str) -> None:
        """Look whether a call that came to `found` has left something half done."""


_Bench = TypeVar("_Bench", bound=Bench)


def outcome(call: Callable[[_Bench], object], on: _Bench, first: int, stop: int) -> str:
    """Return what a call comes to if allocations from `first` up to `stop` (0: for ever) fail."""
    import _testcapi  # type: ignore[import-not-found] # noqa: PLC0415 - not every Python has it

    try:
        _testcapi.set_nomemory(first, stop)
        try:
            call(on)
        finally:
            _testcapi.remove_mem_hooks()
    except MemoryError:
        return "MemoryError"
    return "done"


def refused(call: Callable[[], object]) -> None:
    """Make a call that is an error."""
    try:
        call()
    except (UsageError, ValueError):
        return
    except SystemError as error:  # Python 3.11's own, if it has no memory for a traceback.
        assert str(error) == "error return without exception set"  # noqa: PT017 - only this one
        return
    message = "it was not refused"
    raise AssertionError(message)


def starve(bench: Callable[[ModuleType], _Bench], call: Callable[[_Bench], object]) -> set[str]:
    """Return all that a call comes to, whichever allocation fails.

    To be run in a child process: an abort is then an error of one test.
    """
    on = bench(importlib.import_module("latewood._native"))
    call(on)
    seen = set()
    for lasting in (False, True):
        for first in range(FAILURES_MAX):
            on.begin()
            seen.add(found := outcome(call, on, first, 0 if lasting else first + 1))
            on.check(found)
            if found == "done" and first:  # At first the frame of the call itself may be what is missing.
                break
    return seen
