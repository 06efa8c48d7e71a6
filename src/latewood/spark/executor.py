"""What an executor does: some tasks of a job, one after the other, with tools that it makes itself.

No secret comes with a task: archive and keys are found by their names, where the task runs.  It never sees the catalog.
"""

import pickle
import secrets
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import pyarrow as pa

from latewood.archive.tier import Tier
from latewood.clock import SystemClock
from latewood.errors import KeyNotFound, LatewoodError, NotFoundError, UnavailableError, UsageError
from latewood.fs import PosixFS
from latewood.spark.archive import ArchiveNames, open_archive, open_keys
from latewood.spark.worker_heap import settle
from latewood.tasks.engine import Run, Tools

OUTCOMES: Final = "number BIGINT NOT NULL, outcome BINARY NOT NULL"
_ARROW: Final = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
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
        tools = cache(lambda: tools_of(names))  # Made anew for each call: keys may have been added since.
        for batch in batches:
            for number in batch.column("id").to_pylist():
                row = {"number": number, "outcome": done(sent[number], tools)}
                yield pa.RecordBatch.from_pylist([row], schema=_ARROW)

    return work


def done(sent: bytes, tools: Callable[[], Tools]) -> bytes:
    """Return what a task came to: its results, and an error that another try would meet again, or None.

    Raises:
        UnavailableError: another try may succeed; and whatever is no error of ours.
    """
    run, task = pickle.loads(sent)  # noqa: S301 - from the driver, which sent this program, too
    settle()  # What the task needs is loaded now.
    results: list[Any] = []
    try:
        for result in run(task, tools()):
            results.append(result)  # noqa: PERF402 - what came before an error counts
    except UnavailableError:
        raise
    except LatewoodError as error:
        return pickle.dumps((results, error))
    return pickle.dumps((results, None))


def tools_of(names: ArchiveNames) -> Tools:
    """Return what tasks are done with in this process.

    Raises:
        UsageError: the store is not seen from here.
    """
    fs = ExecutorFS()
    if not fs.exists(Path(names.root)):
        message = (
            f"{names.root} is not seen on {gethostname()}: executors must see it under the same path as the driver"
        )
        raise UsageError(message)

    @cache
    def tier() -> Tier:
        try:
            return open_archive(fs, names)
        except NotFoundError as error:  # Of the archive, and not of what is in it.
            raise UsageError(str(error)) from error

    try:
        keys = open_keys(fs, names)
    except KeyNotFound:  # Whoever needs one says so; others do without.
        keys = None
    return Tools(fs=fs, clock=SystemClock(), random_bytes=secrets.token_bytes, tier=tier, keys=keys)
