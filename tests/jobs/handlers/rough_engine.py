"""An engine that is as rough as a cluster may be: everything is sent by value, and every task is done twice at once.

What comes back is of the second attempt; the other one's files are nobody's.  It never asks for a step, and its
disk makes no directory, as that of an executor.
"""

import pickle
import random
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Final

from latewood.errors import LatewoodError, NotFoundError
from latewood.tasks.engine import Tools, no_check

LANES: Final = 3


class NarrowFS:
    """A disk on which no directory is made."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def make_directory(self, path: Path) -> None:
        if not self._inner.exists(path):
            raise NotFoundError(f"{path} is not there")


class RoughEngine:
    """Does tasks in waves, each task twice."""

    lanes = LANES
    is_staged = True

    def __init__(self, tools: Callable[[], Tools]) -> None:
        self._tools = tools
        self.waves = 0
        self.calls: list[Any] = []

    def map(self, run: Any, tasks: Iterable[Any], check: Callable[[], None] = no_check) -> Generator[Any]:
        left = iter(tasks)
        while wave := list(islice(left, self.lanes)):
            check()
            self.waves += 1
            self.calls += wave
            for outcome in self._done(run, wave):
                if isinstance(outcome, LatewoodError):
                    raise outcome
                yield from outcome

    def _done(self, run: Any, wave: list[Any]) -> list[Any]:
        sent = [pickle.dumps((run, task)) for task in wave for _ in range(2)]
        with ThreadPoolExecutor(len(sent)) as pool:
            return [pickle.loads(outcome) for outcome in list(pool.map(self._once, sent))[1::2]]  # noqa: S301 - our own

    def _once(self, sent: bytes) -> bytes:
        run, task = pickle.loads(sent)  # noqa: S301 - our own
        try:
            return pickle.dumps(list(run(task, self._tools())))
        except LatewoodError as error:
            return pickle.dumps(error)


def tools_of(lake: Any) -> Callable[[], Tools]:
    """Return what makes tools for the tasks of a lake."""

    def made() -> Tools:
        keys, randomness = lake.keys_to_read or lake.keys, random.Random()
        fs: Any = NarrowFS(lake.fs)
        return Tools(fs=fs, clock=lake.clock, random_bytes=randomness.randbytes, tier=lambda: lake.tier, keys=keys)

    return made
