"""An engine for tasks on Spark: many at a time, on whatever executors there are.

Tasks go out in waves: a wave is one Spark job of a few tasks for each lane, and the next is under way while the results
of one are used.  So cores do not idle, progress is seen, and what is committed is never far behind what was done.  One
way for all sessions: a table of numbers, and a function that does the task of each; there are no RDDs on Spark Connect.
"""

import logging
import pickle
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from latewood.errors import UnavailableError, UsageError
from latewood.spark.archive import ArchiveNames
from latewood.spark.executor import OUTCOMES, worker
from latewood.tasks.engine import Check, Run, no_check

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

LANES_MAX: Final = 4096
SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What Spark raises when it cannot do what it was asked for."""
_LANES_UNKNOWN: Final = 8
"""Where Spark does not tell how many cores it has, as behind Spark Connect."""
_TASKS_IN_A_LANE: Final = 4
"""Of one wave: as some take longer, the other lanes have another one."""
_WAVES: Final = 2
_LOOK_S: Final = 0.2
"""How often the driver looks, while it waits, whether there is a reason to end."""
_CALLS_MAX: Final = 300
"""How often tasks that go on are called off: for a minute."""
_MESSAGE_CHARS_MAX: Final = 2000
_logger: Final = logging.getLogger(__name__)


class SparkEngine:
    """Does tasks on Spark.  Thread-safe: jobs that run beside each other share it."""

    is_staged = True

    def __init__(self, spark: "SparkSession", names: ArchiveNames, *, lanes: int | None = None) -> None:
        """`lanes` is how many tasks Spark does at a time; it is asked if that is not given.

        Raises:
            UsageError: too few or too many lanes.
        """
        self._spark, self._names = spark, names
        self.lanes = min(max(2, _lanes(spark)), LANES_MAX) if lanes is None else lanes
        if not 1 < self.lanes <= LANES_MAX:
            raise UsageError(f"lanes must be from 2 to {LANES_MAX}, not {self.lanes}")

    def map(self, run: "Run[T, R]", tasks: Iterable[T], check: Check = no_check) -> "Generator[R]":
        """Yield what the tasks come to, in their order, a wave at a time.

        Raises:
            LatewoodError: what a task raised; what came before it was yielded.
            UnavailableError: Spark gave up on a task.
        """
        tag, left = f"latewood-{uuid4().hex}", iter(tasks)
        pool = ThreadPoolExecutor(_WAVES, thread_name_prefix="latewood-spark")
        waves: deque[Future[list[Any]]] = deque()
        called_off = threading.Event()
        try:
            while True:
                while len(waves) < _WAVES and (wave := list(islice(left, self.lanes * _TASKS_IN_A_LANE))):
                    waves.append(pool.submit(self._wave, run, wave, tag, called_off))
                if not waves:
                    return
                for results, error in _awaited(waves[0], check):
                    yield from results
                    if error is not None:
                        raise error
                waves.popleft()
        finally:
            called_off.set()
            pool.shutdown(wait=False, cancel_futures=True)
            self._call_off(tag, list(waves))

    def _wave(self, run: "Run[Any, Any]", tasks: list[Any], tag: str, called_off: threading.Event) -> list[Any]:
        """Return what each task came to: its results, and its error or None."""
        if called_off.is_set():
            return []
        context = _context(self._spark)
        context.addJobTag(tag) if context else self._spark.addTag(tag)  # Of this thread alone.
        try:
            numbers = self._spark.range(0, len(tasks), 1, len(tasks))
            rows = numbers.mapInArrow(worker(run, tasks, self._names), OUTCOMES).collect()
        except SPARK_ERRORS as error:
            raise UnavailableError(f"Spark gave up on a task: {reason_of(error)}") from error
        finally:
            context.removeJobTag(tag) if context else self._spark.removeTag(tag)
        rows.sort(key=lambda row: row["number"])
        return [pickle.loads(row["outcome"]) for row in rows]  # noqa: S301 - from executors, which ran this program

    def _call_off(self, tag: str, waves: "list[Future[list[Any]]]") -> None:
        """End waves that are under way, and return when they have; again and again: one may be about to begin.

        Tags of a session end nothing in a classic one; those of its context do.
        """
        context = _context(self._spark)
        for _ in range(_CALLS_MAX):
            if all(wave.done() for wave in waves):
                return
            with suppress(*SPARK_ERRORS):
                context.cancelJobsWithTag(tag) if context else self._spark.interruptTag(tag)
            wait(waves, _LOOK_S)
        _logger.warning("Spark does not end the tasks %s; what they make is removed, now or by the next job", tag)


def _awaited(wave: "Future[list[Any]]", check: Check) -> list[Any]:
    """Return what a wave came to; meanwhile, see whether there is a reason to end."""
    while not wave.done():
        check()
        wait([wave], _LOOK_S)
    return wave.result()


def _context(spark: "SparkSession") -> "SparkContext | None":
    try:
        return spark.sparkContext
    except (PySparkException, AttributeError):  # There is no such thing on Spark Connect.
        return None


def _lanes(spark: "SparkSession") -> int:
    context = _context(spark)
    return context.defaultParallelism if context else _LANES_UNKNOWN


def reason_of(error: Exception) -> str:
    """Return what of a long story from another machine tells most: the Python error at its end, or its first line."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
    if "Traceback" in str(error):
        lines = [line for line in lines if "Traceback" not in line][-1:]
    told = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred while calling")]
    return (told[0] if told else type(error).__name__)[:_MESSAGE_CHARS_MAX]
