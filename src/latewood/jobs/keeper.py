"""Keeper: what a pool does between jobs: heartbeats, cancellations, and leases of workers that fell silent."""

import logging
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from latewood.errors import ClosedError, ConflictError, JobCancelled, LatewoodError, LeaseLost, NotFoundError
from latewood.jobs.handlers.context import JobContext
from latewood.jobs.lease import LeaseWatch, elapsed_ms, is_heartbeat_due
from latewood.jobs.manager import JobManager
from latewood.types import JobId

if TYPE_CHECKING:
    from concurrent.futures import Future

_logger: Final = logging.getLogger(__name__)


class Running:
    """The attempts that are under way in a pool.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: dict[JobId, JobContext] = {}

    def add(self, context: JobContext) -> None:
        """Note that an attempt begins."""
        with self._lock:
            self._contexts[context.job.job_id] = context

    def remove(self, context: JobContext) -> None:
        """Note that it is over; a later attempt at the same job stays."""
        with self._lock:
            if self._contexts.get(context.job.job_id) is context:
                del self._contexts[context.job.job_id]

    def all(self) -> list[JobContext]:
        """Return those that are under way now."""
        with self._lock:
            return list(self._contexts.values())

    def __len__(self) -> int:
        with self._lock:
            return len(self._contexts)


class Keeper:
    """Watches over a pool's jobs.  `tick` belongs to one thread."""

    def __init__(self, manager: JobManager, running: Running) -> None:
        self._manager, self._running = manager, running
        self._step_ms_max = manager.options.heartbeat_ms
        self._watch = LeaseWatch(self._step_ms_max)
        self._last_ms: int | None = None

    @property
    def period_ms(self) -> int:
        """How often to tick, so that no heartbeat comes more than half of one late."""
        return max(1, self._manager.options.heartbeat_ms // 2)

    def tick(self) -> None:
        """Do what is due.

        Raises:
            LatewoodError: the catalog cannot be read or written now; ClosedError: nor ever.
        """
        now_ms = self._manager.now_ms()
        contexts = self._running.all()
        self._renew(contexts, now_ms)
        self._heed_cancellations(contexts)
        own = {(context.job.job_id, context.lease.attempt) for context in contexts if not self._hangs(context)}
        self._break_off_silent(own, now_ms)
        if self._last_ms is None or now_ms < self._last_ms:
            self._manager.redate()
        self._last_ms = now_ms

    def _renew(self, contexts: Collection[JobContext], now_ms: int) -> None:
        sent: list[tuple[JobContext, Future[Any]]] = []
        for context in contexts:
            context.run_ms += elapsed_ms(self._last_ms, now_ms, self._step_ms_max)
            is_due = is_heartbeat_due(context.renewed_at_ms, now_ms, self._manager.options.heartbeat_ms)
            if is_due and not context.lost and not self._hangs(context):
                done, total = context.told()
                future = self._manager.heartbeat_async(context.job.job_id, context.lease, done=done, total=total)
                sent.append((context, future))
        for context, future in sent:
            self._take(context, future, now_ms)

    @staticmethod
    def _take(context: JobContext, future: "Future[Any]", now_ms: int) -> None:
        try:
            future.result()
        except (LeaseLost, NotFoundError):
            context.end_with(LeaseLost)
        except ClosedError:
            raise
        except LatewoodError as error:
            _logger.warning("heartbeat of job %d: %s", context.job.job_id, error)
        else:
            context.renewed_at_ms = now_ms

    def _hangs(self, context: JobContext) -> bool:
        return context.run_ms >= self._manager.options.run_ms_max

    def _heed_cancellations(self, contexts: Collection[JobContext]) -> None:
        if not contexts:
            return
        jobs = self._manager.catalog.read(lambda view: [view.job(context.job.job_id) for context in contexts])
        for context, job in zip(contexts, jobs, strict=True):
            if job is None or job.attempts != context.lease.attempt:
                context.end_with(LeaseLost)
            elif job.cancel_requested:
                context.end_with(JobCancelled)

    def _break_off_silent(self, own: Collection[tuple[JobId, int]], now_ms: int) -> None:
        """Take jobs from workers that fell silent.  Those that this pool renews are not among them."""
        others = [lease for lease in self._manager.leases() if (lease.job_id, lease.attempt) not in own]
        for lease in self._watch.look(now_ms, others):
            _logger.warning("job %d: its worker fell silent at attempt %d", lease.job_id, lease.attempt)
            try:
                self._manager.break_off(lease)
            except ConflictError:
                continue  # It spoke after all, just now.
