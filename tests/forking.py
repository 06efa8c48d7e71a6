"""Forks as users do them: of a process that has threads, which Python 3.12 and later warn of, with children that work.

A child's failure is raised in the test, with the child's own traceback; a child that hangs is killed, which is one too.
"""

import os
import pickle
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

SECONDS_MAX: Final = 60


class Gate:
    """Opened by one process, and waited for by others.  Made before they are forked."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def open(self) -> None:
        """Let everybody through, for good."""
        os.write(self._writing, b".")

    def wait(self) -> None:
        """Return once it is open; that it stays shut is an error."""
        assert select.select([self._reading], [], [], SECONDS_MAX)[0], "waited in vain"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reading)
        os.close(self._writing)


class Forks:
    """Children that work at the same time as their parent, each on its own function."""

    def __init__(self) -> None:
        self._children: list[tuple[int, int]] = []

    def start(self, work: Callable[[], Any]) -> None:
        """Fork a child that does `work()`."""
        reading, writing = os.pipe()
        child = fork()
        if child == 0:  # pragma: no cover - another process
            os.close(reading)
            _work(work, writing)
        os.close(writing)
        self._children.append((child, reading))

    def results(self) -> list[Any]:
        """Return what each of them returned, once all have ended."""
        children, self._children = self._children, []
        return [_result(child, reading) for child, reading in children]


def fork() -> int:
    """Fork, though other threads run: what the child then can and cannot do is what is tested."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], Any]) -> Any:
    """Return what `work()` returns in a forked child."""
    forks = Forks()
    forks.start(work)
    return forks.results()[0]


def _work(work: Callable[[], Any], writing: int) -> None:  # pragma: no cover - another process
    try:
        outcome = True, work()
    except BaseException:  # noqa: BLE001 - the top of a process
        outcome = False, traceback.format_exc()
    try:
        os.write(writing, pickle.dumps(outcome))
    finally:
        os._exit(0)


def _result(child: int, reading: int) -> Any:
    parts = []
    try:
        while select.select([reading], [], [], SECONDS_MAX)[0] and (part := os.read(reading, 1 << 16)):
            parts.append(part)
    finally:
        os.close(reading)
    if not parts:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert parts, f"the child hung or died: {status}"
    is_well, value = pickle.loads(b"".join(parts))  # noqa: S301 - from our own child
    assert is_well, f"in the child:\n{value}"
    return value
