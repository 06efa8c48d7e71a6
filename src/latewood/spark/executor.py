"""What an executor does: some tasks of a job, one after the other, with tools that it makes itself.

No secret comes with a task: archive and keys are found by their names, where the task runs.  It never sees the catalog.
"""

import pickle
import secrets
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from latewood.archive.tier import Tier
from latewood.clock import SystemClock
from latewood.errors import LatewoodError, NotFoundError, UnavailableError, UsageError
from latewood.fs import PosixFS
from latewood.spark.archive import ArchiveNames, open_archive, open_keys
from latewood.tasks.engine import Run, Tools

OUTCOMES: Final = "number BIGINT NOT NULL, is_error BOOLEAN NOT NULL, outcome BINARY NOT NULL"
_ARROW: Final = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("is_error", pa.bool_(), nullable=False),
        pa.field("outcome", pa.binary(), nullable=False),
    ]
)


class ExecutorFS(PosixFS):
    """The disk, as a task may use it: it makes no directory.

    A task that nobody waits for any more finds the directory of its files gone, and must not make it again.
    """

    def make_directory(self, path: Path) -> None:
        """Raise NotFoundError unless the directory is there."""
        if not path.is_dir():
            raise NotFoundError(f"{path} is not there: it was removed, and nobody waits for this task any more")


def worker(run: "Run[Any, Any]", tasks: list[Any], names: ArchiveNames) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what does the tasks whose numbers it is given, and yields what each came to."""
    sent = [pickle.dumps((run, task)) for task in tasks]

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        tools = tools_of(names)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                is_error, outcome = done(sent[number], tools)
                yield pa.RecordBatch.from_pylist(
                    [{"number": number, "is_error": is_error, "outcome": outcome}], schema=_ARROW
                )

    return work


def done(sent: bytes, tools: Tools) -> tuple[bool, bytes]:
    """Return what a task came to: its results, or an error that another try would meet again.

    Raises:
        UnavailableError: another try may succeed; and whatever is no error of ours.
    """
    run, task = pickle.loads(sent)  # noqa: S301 - from the driver, which sent this program, too
    try:
        return False, pickle.dumps(list(run(task, tools)))
    except UnavailableError:
        raise
    except LatewoodError as error:
        return True, pickle.dumps(error)


def tools_of(names: ArchiveNames) -> Tools:
    """Return what tasks are done with in this process.  Made anew each time: keys may have been added since."""
    fs = ExecutorFS()

    @cache
    def tier() -> Tier:
        try:
            return open_archive(fs, names)
        except NotFoundError as error:  # Of the archive, and not of what is in it.
            raise UsageError(str(error)) from error

    return Tools(fs=fs, clock=SystemClock(), random_bytes=secrets.token_bytes, tier=tier, keys=open_keys(fs, names))
