"""The loop behind `latewood work`: a pool of workers, until a signal or the last job ends it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from latewood.cli.errors import ExitCode, say
from latewood.cli.jobs_run import Journal
from latewood.cli.output import Output
from latewood.cli.store_argument import open_store
from latewood.cli.store_job_run import KINDS
from latewood.errors import UniqueJobAlreadyPending
from latewood.jobs import WorkerPool
from latewood.runtime import Store

_UPKEEP = ("flush", "checkpoint", "compact", "retain")
_WITH_ARCHIVE = ("archive", "evict")
_FOREVER_S = 3600.0


class _Ending:
    """Which signal came."""

    signal_number: int | None = None

    def receive(self, signal_number: int, frame: FrameType | None) -> None:
        """Note it, and end whatever the main thread waits for."""
        del frame
        self.signal_number = signal_number
        raise KeyboardInterrupt


def run(path: Path, workers: int | None, every_ms: int | None, stop_ms: int, output: Output, *, once: bool) -> int:
    """Do what `latewood work` says."""
    ending = _Ending()
    with _heard(ending), open_store(path, "w") as store:
        if store.recovered is not None:
            say(f"recovered: {store.recovered.summary}")
        journal = Journal(store.jobs, output)
        pool = WorkerPool(
            store.jobs, store.handlers, workers=workers or store.settings.workers, on_outcome=journal.note
        )
        with journal.printed():
            code = _work(store, pool, ending, every_ms, stop_ms, once=once)
    return ExitCode.FAILED if once and code == ExitCode.OK and journal.has_failed else code


def enqueue_upkeep(store: Store) -> None:
    """Have every database looked after, unless that waits already."""
    kinds = (*_UPKEEP, *(_WITH_ARCHIVE if store.settings.archive_url else ()))
    for _, record in store.databases():
        for kind in kinds:
            with suppress(UniqueJobAlreadyPending):
                store.enqueue(KINDS[kind], record.name)


def _work(
    store: Store, pool: WorkerPool, ending: _Ending, every_ms: int | None, stop_ms: int, *, once: bool
) -> ExitCode:
    pool.start()
    try:
        if every_ms is not None:
            enqueue_upkeep(store)
        if once:
            pool.wait_until_idle()
        while not once:
            threading.Event().wait(_FOREVER_S if every_ms is None else every_ms / 1000)
            if every_ms is not None:
                enqueue_upkeep(store)
    except KeyboardInterrupt:
        return ExitCode.OK if ending.signal_number == signal.SIGTERM else ExitCode.INTERRUPTED
    finally:
        left = pool.stop(stop_ms)
        if left:
            say(f"left at work: jobs {', '.join(map(str, left))}; the next run repairs them")
    return ExitCode.OK


@contextmanager
def _heard(ending: _Ending) -> Iterator[None]:
    """Have both signals end the loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, ending.receive)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
