"""Tasks that go wrong on executors: what is sent instead of the function that does a task."""

import os
from collections.abc import Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from latewood.errors import TierUnavailable
from latewood.spark.engine import SparkEngine
from latewood.tasks.engine import no_check


class FaultyEngine:
    """An engine whose tasks meet a fault."""

    is_staged = True

    def __init__(self, inner: SparkEngine, fault: Any, *arguments: Any) -> None:
        self._inner, self._fault, self.lanes = inner, partial(fault, *arguments), inner.lanes

    def map(self, run: Any, tasks: Iterable[Any], check: Any = no_check) -> Generator[Any]:
        return self._inner.map(partial(self._fault, run), tasks, check)


def done_twice(run: Any, task: Any, tools: Any) -> list[Any]:
    """Do the task, then once more, as a task is that is tried again, or speculated on: only the second counts."""
    list(run(task, tools))
    return list(run(task, tools))


def dying_once(mark: str, run: Any, task: Any, tools: Any) -> list[Any]:
    """Do the task and then, at the first time, let the executor's process die before it can say so."""
    found = list(run(task, tools))
    if _is_first(mark):
        os._exit(1)
    return found


def unavailable_once(mark: str, run: Any, task: Any, tools: Any) -> list[Any]:
    """Fail in the middle of the first task, in a way that another try may mend."""
    found = []
    for one in run(task, tools):
        found.append(one)
        if _is_first(mark):
            raise TierUnavailable("it does not answer")
    return found


def never(run: Any, task: Any, tools: Any) -> list[Any]:
    """Fail each time, after the work."""
    list(run(task, tools))
    raise TierUnavailable("it never answers")


def noting(directory: str, run: Any, task: Any, tools: Any) -> list[Any]:
    """Do the task, and note the host that Spark has it done on."""
    arguments = Path(f"/proc/{executor_pid()}/cmdline").read_text().split("\0")
    (Path(directory) / arguments[arguments.index("--hostname") + 1]).touch()
    return list(run(task, tools))


def executor_pid() -> int:
    """Return the nearest ancestor that is Java."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def _is_first(mark: str) -> bool:
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
