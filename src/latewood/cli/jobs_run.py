"""`latewood jobs run CATALOG`: run the jobs that wait."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType

from latewood.catalog import Catalog, recover
from latewood.catalog.tables import FailedPermanent
from latewood.cli.catalog_argument import open_catalog
from latewood.cli.errors import ExitCode, say
from latewood.cli.job_rows import state_name
from latewood.cli.output import Output
from latewood.clock import SystemClock
from latewood.errors import UsageError
from latewood.jobs import (
    Handlers,
    JobContext,
    JobManager,
    JobOptions,
    Outcome,
    WorkerPool,
    kind_name,
    kind_of,
    upkeep_handlers,
)

_COLUMNS = ("job_id", "kind", "db_id", "attempt", "outcome", "state", "error")
_USUAL = JobOptions()


def run_jobs(
    path: Path,
    workers: int,
    sources: tuple[str, ...],
    kinds: tuple[str, ...],
    lease_ms: int | None,
    stop_ms: int | None,
    output: Output,
    *,
    follow: bool,
) -> int:
    """Do what `latewood jobs run` says."""
    handlers = _handlers(sources)
    enqueued = [kind_of(name) for name in kinds]
    with open_catalog(path, "w") as catalog:
        say(f"recovered: {recover(catalog, SystemClock()).summary}")
        manager = JobManager(catalog, JobOptions(lease_ms=lease_ms or _USUAL.lease_ms))
        for kind in enqueued:
            manager.enqueue(kind)
        journal = Journal(manager, output)
        pool = WorkerPool(manager, handlers, workers=workers, on_outcome=journal.note)
        with journal.printed():
            _work(pool, follow=follow, stop_ms=30_000 if stop_ms is None else stop_ms)
        _tell_what_waits(catalog, handlers)
    return ExitCode.FAILED if journal.has_failed else ExitCode.OK


def _handlers(sources: tuple[str, ...]) -> Handlers:
    handlers = upkeep_handlers()
    for source in sources:
        handlers.update(_load(source))
    return handlers


def _load(source: str) -> Handlers:
    """Return the handlers that a module has under a name.

    Raises:
        UsageError: it has none.
    """
    module_name, _, name = source.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # As `python -m` does.
    try:
        found = getattr(import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"--handlers {source}: {error}; write it as package.module:name"
        raise UsageError(message) from error
    if not isinstance(found, Handlers):
        message = f"--handlers {source}: this is no latewood.jobs.Handlers, but a {type(found).__name__}"
        raise UsageError(message)
    return found


def _work(pool: WorkerPool, *, follow: bool, stop_ms: int) -> None:
    try:
        with _terminable(), pool_started(pool):
            if follow:
                threading.Event().wait()
            pool.wait_until_idle()
    finally:
        left = pool.stop(stop_ms)
        if left:
            say(f"left at work: jobs {', '.join(map(str, left))}; the next run repairs them")


@contextmanager
def pool_started(pool: WorkerPool) -> Iterator[None]:
    """Start a pool; whoever started it stops it."""
    pool.start()
    yield


@contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM end the command as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    del signal_number, frame
    raise KeyboardInterrupt


def _tell_what_waits(catalog: Catalog, handlers: Handlers) -> None:
    waiting = dict[str, int]()
    for _, live in catalog.read(lambda view: list(view.live_jobs())):
        name = kind_name(live.kind) + ("" if live.kind in handlers else " (no handler)")
        waiting[name] = waiting.get(name, 0) + 1
    if waiting:
        say("still not finished: " + ", ".join(f"{count} {name}" for name, count in waiting.items()))


class Journal:
    """What came of the attempts; told by the workers' threads, one at a time."""

    def __init__(self, manager: JobManager, output: Output) -> None:
        self._manager, self._output = manager, output
        self._lock = threading.Lock()
        self._rows: list[tuple[object, ...]] = []
        self.has_failed = False

    def note(self, context: JobContext, outcome: Outcome) -> None:
        """Print, or keep, one line."""
        job = self._manager.catalog.read(lambda view: view.job(context.job.job_id)) or context.job  # perhaps forgotten
        error = job.last_error if job.last_error and job.last_error.attempt == context.lease.attempt else None
        text = f"{error.kind}: {error.message}" if error else None
        name = outcome.name.lower()
        row = (job.job_id, kind_name(job.kind), job.db_id, context.lease.attempt, name, state_name(job), text)
        with self._lock:
            self.has_failed = self.has_failed or isinstance(job.state, FailedPermanent)
            if self._output.format == "jsonl":
                self._output.rows(_COLUMNS, [row])
            else:
                self._rows.append(row)

    @contextmanager
    def printed(self) -> Iterator[None]:
        """Print at the end what could not be printed line by line."""
        try:
            yield
        finally:
            if self._output.format != "jsonl":
                self._output.rows(_COLUMNS, self._rows)
