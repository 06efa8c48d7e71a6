"""JobContext: what a handler is given.

A handler asks `check` now and then, or uses `progress`, which asks too: that is where a cancellation, the end of the
pool and a lost lease reach it.  Whatever it writes to the catalog goes through `commit`, so that a worker which was
taken for dead cannot undo the work of the one that came after it.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from latewood.catalog import CatalogTxn, CatalogView, CommitReceipt, Lease
from latewood.catalog.tables import InFlight, JobRecord
from latewood.errors import JobCancelled, JobStopped, LeaseLost
from latewood.jobs.lease import is_heartbeat_due
from latewood.jobs.manager import JobManager

T = TypeVar("T")


class JobContext:
    """One attempt at one job.  For the handler's thread; the flags are set by the pool's keeper."""

    def __init__(self, manager: JobManager, job: JobRecord) -> None:
        """`job` is in flight, as `claim` returned it."""
        assert isinstance(job.state, InFlight)
        self.job: Final = job
        self.lease: Final = Lease(job.state.worker_id, job.attempts)
        self.manager: Final = manager
        self.renewed_at_ms = job.state.heartbeat_at_ms
        """When the lease was last renewed."""
        self.run_ms = 0
        """How long the handler has been at work, as the keeper counts it."""
        self._done, self._total = job.progress_done, job.progress_total
        self._noted_at_ms: int | None = None
        self._must_end = threading.Event()
        self._flags: set[type[Exception]] = set()

    @property
    def payload(self) -> dict[str, Any]:
        """What the job was enqueued with."""
        return self.job.payload

    @property
    def cancelled(self) -> bool:
        """Whether the job was called off."""
        return JobCancelled in self._flags

    @property
    def stopping(self) -> bool:
        """Whether the pool stops: finish soon, or let `check` end this attempt."""
        return JobStopped in self._flags

    @property
    def lost(self) -> bool:
        """Whether the job is another's by now."""
        return LeaseLost in self._flags

    def check(self) -> None:
        """Return if there is no reason to end.

        Raises:
            LeaseLost: the job is another's by now.
            JobCancelled: it was called off.
            JobStopped: the pool stops.
        """
        job_id = self.job.job_id
        if self.lost:
            message = f"job {job_id} is not leased to {self.lease.worker_id!r} any more"
            raise LeaseLost(message)
        if self.cancelled:
            message = f"job {job_id} was called off"
            raise JobCancelled(message)
        if self.stopping:
            message = f"the pool stops in the middle of job {job_id}"
            raise JobStopped(message)

    def wait(self, ms: int) -> None:
        """Wait, but not when there is a reason to end; raises as `check` does."""
        self._must_end.wait(ms / 1000)
        self.check()

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the job is.  Durable now and then, and at the end; raises as `check` does."""
        self._done, self._total = done, self._total if total is None else total
        self.check()
        now_ms, noted_ms = self.manager.now_ms(), self._noted_at_ms
        if noted_ms is None or done == total or is_heartbeat_due(noted_ms, now_ms, self.manager.options.progress_ms):
            self.heartbeat()

    def heartbeat(self) -> None:
        """Renew the lease and note the progress, durably.  The pool does that by itself; rarely needed.

        Raises:
            LeaseLost: the job is another's by now.
        """
        done, total = self.told()
        now_ms = self.manager.now_ms()
        try:
            self.manager.heartbeat(self.job.job_id, self.lease, done=done, total=total)
        except LeaseLost:
            self.end_with(LeaseLost)
            raise
        self.renewed_at_ms = self._noted_at_ms = now_ms

    def told(self) -> tuple[int, int | None]:
        """Return how far the handler said it is."""
        return self._done, self._total

    def read(self, callback: Callable[[CatalogView], T]) -> T:
        """Return `callback(view)` of one snapshot of the catalog."""
        return self.manager.catalog.read(callback)

    def begin_write(self) -> CatalogTxn:
        """Return an empty batch, for `commit`."""
        return self.manager.catalog.begin_write()

    def commit(self, txn: CatalogTxn) -> CommitReceipt:
        """Commit a batch if the job is still this worker's.

        Raises:
            LeaseLost: it is not; nothing was written.
            LatewoodError: whatever else `CatalogTxn.commit` says.
        """
        txn.require_lease(self.job.job_id, self.lease)
        try:
            return txn.commit()
        except LeaseLost:
            self.end_with(LeaseLost)
            raise

    def end_with(self, reason: type[Exception]) -> None:
        """Have `check` raise LeaseLost, JobCancelled or JobStopped from now on.  For the pool; any thread may."""
        self._flags.add(reason)
        self._must_end.set()
