"""WorkerPool: threads that claim jobs and run their handlers.

Each worker thread claims a job, runs it, notes what came of it, and claims the next.  One more thread, the keeper's,
renews the leases of all, passes cancellations on and takes jobs from workers that fell silent.  Who has nothing to do
waits for the bell, which rings whenever a job is enqueued, ended or called off in this process.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

from latewood.catalog import WaitHandle
from latewood.catalog.tables import Component, JobRecord
from latewood.closing import Closing, close_behind
from latewood.errors import ClosedError, JobStopped, LatewoodError, UsageError
from latewood.forking import close_after_fork, forked
from latewood.jobs.bell import Bell, ThreadBell
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.handlers.registry import Handlers
from latewood.jobs.keeper import Keeper, Running
from latewood.jobs.manager import JobManager
from latewood.jobs.outcome import Outcome
from latewood.jobs.runner import Runner
from latewood.types import JobId

_logger: Final = logging.getLogger(__name__)
WORKERS_MAX: Final = 256
"""Threads that commit in turn: more only wait for each other."""
_KEEPER_REST_S: Final = 0.02
"""However often the bell rings, the keeper does not tick more often: it would take the time of the workers."""


class WorkerPool:
    """Runs the jobs of one catalog in threads of its own.  Call `start`, then `stop`; or use it as a context manager.

    Everything that a thread does is also a method, so that a test, or a program with a loop of its own, can do without
    threads: `run_next` and `tick`.
    """

    def __init__(
        self,
        manager: JobManager,
        handlers: Handlers,
        *,
        workers: int = 2,
        name: str | None = None,
        bell: Bell | None = None,
        on_outcome: Callable[[JobContext, Outcome], None] | None = None,
    ) -> None:
        """`name` begins the worker ids that jobs show; by default it is made up.

        `on_outcome` is told of every attempt that is over, by the worker's thread.

        Raises:
            UsageError: too few or too many workers.
        """
        if not 0 < workers <= WORKERS_MAX:
            message = f"workers must be from 1 to {WORKERS_MAX}, not {workers}"
            raise UsageError(message)
        self._manager, self._handlers = manager, handlers
        self._name = name or f"pool-{random.getrandbits(32):08x}"
        self.bell: Final = bell or ThreadBell()
        self._calm = ThreadBell()
        """Rings when a claim or an attempt is over; apart, so that idle workers do not wake each other for nothing."""
        self._on_outcome = on_outcome
        self._running = Running()
        self._runner = Runner(manager, handlers, self.bell)
        self._keeper = Keeper(manager, self._running)
        self._claiming = threading.Lock()
        self._claims = 0
        """Claims under way: they may turn into attempts at any moment."""
        self._is_stopping = False
        self._forked: ClosedError | None = None
        """Why a forked child can do nothing with it."""
        self._over = threading.Event()
        self._ear: WaitHandle | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"{self._name}-{number}", daemon=True)
            for number in range(workers)
        ]
        self._keeping = threading.Thread(target=self._keep, name=f"{self._name}-keeper", daemon=True)
        close_after_fork(self)

    # -- one step at a time -----------------------------------------------------------------------------------

    def run_next(self, worker: int = 0) -> Outcome | None:
        """Claim the most urgent job, run it, and return what came of it; None if there is none to claim.

        Raises:
            ClosedError: the catalog is closed.
            LatewoodError: nothing can be claimed now.
        """
        context = self._claim(f"{self._name}-{worker}")
        if context is None:
            return None
        try:
            outcome = self._runner.attempt(context)
            if self._on_outcome is not None:
                self._on_outcome(context, outcome)
            return outcome
        finally:
            self._running.remove(context)
            self._calm.ring()

    def tick(self) -> None:
        """Renew leases, pass cancellations on, take jobs from silent workers.  The keeper's thread does this."""
        self._check_mine()
        self._keeper.tick()

    def running(self) -> list[JobContext]:
        """Return the attempts that are under way."""
        self._check_mine()
        return self._running.all()

    # -- threads ----------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to work.

        Raises:
            RuntimeError: it was started before.
            ClosedError: the catalog is closed.
        """
        self._check_mine()
        self._listen()
        for thread in (self._keeping, *self._threads):
            thread.start()
        return self

    def stop(self, wait_ms: int = 30_000) -> list[JobId]:
        """Claim nothing more, let handlers end, and return the jobs of those that did not end in time.

        A handler that heeds `check` ends early, and its job is given back.  Leases are renewed as long as this waits.
        What is returned runs on by itself: if it ends within its lease it counts, else its job is taken from it.
        """
        if self._forked:  # Its threads are the parent's.
            return []
        with self._claiming:
            self._is_stopping = True
        for context in self._running.all():
            context.end_with(JobStopped)
        self.bell.ring()
        end_s = time.monotonic() + wait_ms / 1000
        with Closing() as closing:
            for thread in self._threads:
                if thread.ident is not None:
                    closing(partial(_join, thread, end_s))
            closing(self._end)
        return [context.job.job_id for context in self._running.all()]

    def wait_until_idle(self) -> None:
        """Return when no handler runs and no job can be claimed now, or the pool has stopped."""
        self._check_mine()
        while not self._over.is_set():
            seen = self._calm.count()
            if self._is_idle():
                return
            self._calm.wait(seen, self._manager.options.poll_ms / 1000)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        close_behind(self.stop, value)

    # -- inside -----------------------------------------------------------------------------------------------

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child, in which its threads are not."""
        self._forked = forked(f"the pool {self._name}")

    def _check_mine(self) -> None:
        if self._forked:
            raise type(self._forked)(*self._forked.args)

    def _is_idle(self) -> bool:
        with self._claiming:
            is_quiet = not self._claims and not len(self._running)
        try:
            return is_quiet and self._manager.next_claimable(self._handlers) is None
        except ClosedError:
            return is_quiet

    def _claim(self, worker_id: str) -> JobContext | None:
        self._check_mine()
        with self._claiming:
            if self._is_stopping:
                return None
            self._claims += 1
        try:
            return self._begin(self._manager.claim(worker_id, self._handlers))
        finally:
            with self._claiming:
                self._claims -= 1
            self._calm.ring()

    def _begin(self, job: JobRecord | None) -> JobContext | None:
        """Return the context of an attempt, and have the keeper watch over it."""
        if job is None:
            return None
        context = JobContext(self._manager, job)
        with self._claiming:
            self._running.add(context)
            if self._is_stopping:
                context.end_with(JobStopped)
        return context

    def _work(self, number: int) -> None:
        while not self._is_stopping:
            seen = self.bell.count()
            if self._survive(lambda: self.run_next(number)) is None:
                self.bell.wait(seen, self._idle_s())

    def _keep(self) -> None:
        while not self._over.is_set():
            seen = self.bell.count()
            self._survive(self._keeper.tick)
            self.bell.wait(seen, 0.0 if self._over.is_set() else self._keeper.period_ms / 1000)
            self._over.wait(_KEEPER_REST_S)

    def _survive(self, step: Callable[[], Outcome | None]) -> Outcome | None:
        """Do one step of a thread; whatever goes wrong is told once, here, and the thread goes on."""
        try:
            return step()
        except ClosedError as error:
            if not self._over.is_set():
                _logger.warning("the pool %s ends: %s", self._name, error)
            self._is_stopping = True
            self._over.set()
            self.bell.ring()
        except LatewoodError as error:
            _logger.warning("the pool %s: %s", self._name, error)
        except BaseException:  # The thread must not die: nobody would take jobs, or renew leases.
            _logger.exception("the pool %s", self._name)
        return None

    def _idle_s(self) -> float:
        """Return how long a worker without a job may sleep: until the next one is due, or the next look."""
        options = self._manager.options
        try:
            due_ms = self._manager.next_due_ms()
        except LatewoodError:  # The next claim meets it again, and tells.
            due_ms = None
        ahead_ms = options.poll_ms if due_ms is None else due_ms - self._manager.now_ms()
        return min(ahead_ms if ahead_ms > 0 else options.poll_ms, options.poll_ms) / 1000

    def _listen(self) -> None:
        """Have the bell ring at the next change of jobs."""
        target = self._manager.catalog.generation(Component.JOBS) + 1
        self._ear = self._manager.catalog.register_waiter(Component.JOBS, target)
        self._ear.add_done_callback(self._hear)

    def _hear(self, _: WaitHandle) -> None:
        if not self._over.is_set():
            with suppress(ClosedError):
                self._listen()
        self.bell.ring()  # Behind that: of a change in between nobody else would tell.

    def _end(self) -> None:
        self._over.set()
        if self._ear is not None:
            self._ear.cancel()
        self.bell.ring()
        if self._keeping.ident is not None:
            self._keeping.join()


def _join(thread: threading.Thread, end_s: float) -> None:
    """Wait for a thread's end until a time of the monotonic clock."""
    thread.join(max(0.0, end_s - time.monotonic()))
