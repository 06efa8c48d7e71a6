"""JobManager: everything that is done to jobs, each in one catalog commit.

What is decided is decided by `catalog.gate`, within the writer's transaction.  Whoever works on a job shows its lease
with every call: if the job went to another meanwhile, the call fails with LeaseLost and changes nothing.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from latewood.catalog import Catalog, CatalogTxn, CatalogView, CommitReceipt, Lease, Op
from latewood.catalog.tables import InFlight, JobError, JobPhase, JobRecord
from latewood.catalog.tables.job import PRIORITY_USUAL
from latewood.clock import Clock, checked
from latewood.errors import ConflictError, NotFoundError
from latewood.forking import OwnLock
from latewood.jobs.lease import Candidate, LeaseState, pick, redated
from latewood.jobs.ops import RedateJob, RequireDatabase
from latewood.jobs.options import JobOptions
from latewood.limits import U32_MAX, check_number
from latewood.types import DbId, JobId

if TYPE_CHECKING:
    from concurrent.futures import Future

_MS: Final = 1_000_000
_CLAIMS_MAX: Final = 16
"""How often a claim looks again when others were quicker."""


class JobManager:
    """The jobs of one catalog.  Thread-safe; any number may stand before the same catalog."""

    def __init__(
        self,
        catalog: Catalog,
        options: JobOptions | None = None,
        *,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`chance()` is from 0 up to 1, and spreads retries."""
        self.catalog: Final = catalog
        self.options: Final = options or JobOptions()
        self.clock: Final = checked(clock)
        self._chance = chance
        self._claiming = OwnLock()
        self._being_claimed: set[JobId] = set()
        """Picked by a thread of ours, whose commit is under way: others pick others, and commit together with it."""

    def now_ms(self) -> int:
        """Return the time by the clock that was passed in."""
        return self.clock.now_ns() // _MS

    # -- for whoever wants something done ---------------------------------------------------------------------

    def enqueue(
        self,
        kind: int,
        payload: Mapping[str, Any] | None = None,
        *,
        db_id: DbId | None = None,
        unique: bool = True,
        priority: int = PRIORITY_USUAL,
        delay_ms: int = 0,
        attempts_max: int | None = None,
    ) -> JobId:
        """Let a job wait and return its id.  Durable on return.

        With a database and `unique`, at most one job of its kind waits, and at most one is at work.

        Raises:
            UniqueJobAlreadyPending: one waits already; the error has its id.
            NotFoundError: there is no such database.
            UsageError: a field holds what cannot be stored.
        """
        txn = self.catalog.begin_write()
        job_id = self.enqueue_in(
            txn,
            kind,
            payload,
            db_id=db_id,
            unique=unique,
            priority=priority,
            delay_ms=delay_ms,
            attempts_max=attempts_max,
        )
        txn.commit()
        return job_id

    def enqueue_in(
        self,
        txn: CatalogTxn,
        kind: int,
        payload: Mapping[str, Any] | None = None,
        *,
        db_id: DbId | None = None,
        unique: bool = True,
        priority: int = PRIORITY_USUAL,
        delay_ms: int = 0,
        attempts_max: int | None = None,
    ) -> JobId:
        """As `enqueue`, but in a batch of the caller's: the job is there if and only if the rest of it is."""
        now_ms = self.now_ms()
        check_number(delay_ms, U32_MAX * 1000, "delay_ms")
        if db_id is not None:
            txn.require(RequireDatabase(db_id))
        return txn.enqueue_job(
            JobRecord(
                job_id=0,
                created_at_ms=now_ms,
                kind=kind,
                db_id=db_id,
                payload=dict(payload or {}),
                unique=unique,
                priority=priority,
                not_before_ms=now_ms + delay_ms if delay_ms else 0,
                attempts_max=attempts_max or self.options.attempts_max,
                updated_at_ms=now_ms,
            )
        )

    def cancel(self, job_id: JobId) -> JobRecord:
        """Call a job off and return it: at once if it waits, else its worker is asked.  A finished one stays as it is.

        Raises:
            NotFoundError: there is no such job.
            UsageError: it is a repair, without which its gate would stay closed.
        """
        self._commit(lambda txn: txn.cancel_job(job_id))
        return self.get(job_id)

    def retry(self, job_id: JobId) -> JobRecord:
        """Let a job that failed or was cancelled wait again, with as many attempts as a new one, and return it.

        Raises:
            NotFoundError: there is no such job.
            ConflictError: it is not finished, or was completed.
            UniqueJobAlreadyPending: another waits in its place.
        """
        self._commit(lambda txn: txn.revive_job(job_id, self.options.attempts_max))
        return self.get(job_id)

    def get(self, job_id: JobId) -> JobRecord:
        """Return a job.

        Raises:
            NotFoundError: there is none of that id, or it was forgotten.
        """
        job = self.catalog.read(lambda view: view.job(job_id))
        if job is None:
            message = f"there is no job {job_id} in {self.catalog.path}"
            raise NotFoundError(message)
        return job

    def jobs(self) -> Iterator[JobRecord]:
        """Yield every job in the order of ids, in pages: it may change meanwhile."""
        return (job for _, job in self.catalog.scan_jobs())

    # -- for workers ------------------------------------------------------------------------------------------

    def claim(self, worker_id: str, kinds: Collection[int]) -> JobRecord | None:
        """Take the most urgent job of these kinds and return it as it is now, in flight; None if there is none."""
        for _ in range(_CLAIMS_MAX):
            with self._claiming:
                job_id = self.next_claimable(kinds)
                if job_id is None:
                    return None
                self._being_claimed.add(job_id)
            try:
                self._acquire(job_id, worker_id)
                return self.get(job_id)
            except (ConflictError, NotFoundError):
                continue  # Somebody else took it, called it off, or closed its gate.
            finally:
                with self._claiming:
                    self._being_claimed.remove(job_id)
        return None

    def next_claimable(self, kinds: Collection[int]) -> JobId | None:
        """Return the job that `claim` would take now."""
        now_ms = self.now_ms()
        return self.catalog.read(lambda view: _pick(view, kinds, now_ms, self._being_claimed))

    def heartbeat(self, job_id: JobId, lease: Lease, *, done: int | None = None, total: int | None = None) -> None:
        """Let a lease run from now, and note progress.  LeaseLost if it is another's by now."""
        self.heartbeat_async(job_id, lease, done=done, total=total).result()

    def heartbeat_async(
        self, job_id: JobId, lease: Lease, *, done: int | None = None, total: int | None = None
    ) -> "Future[CommitReceipt]":
        """As `heartbeat`, without waiting: many of them become durable together."""
        txn = self.catalog.begin_write()
        txn.renew_job(job_id, lease, self.options.lease_ms, done=done, total=total)
        return txn.commit_async()

    def progress(self, job_id: JobId, lease: Lease, done: int, total: int | None = None) -> None:
        """Note how far a job is; this is a heartbeat too.  LeaseLost as above."""
        self.heartbeat(job_id, lease, done=done, total=total)

    def finish(self, job_id: JobId, lease: Lease, ops: Iterable[Op] = ()) -> None:
        """End a job well, together with changes that are its result: all of it or nothing.  LeaseLost as above."""

        def add(txn: CatalogTxn) -> None:
            txn.require_lease(job_id, lease)
            txn.extend(ops)
            txn.complete_job(job_id, lease)

        self._commit(add)

    def fail(self, job_id: JobId, lease: Lease, error: JobError, *, for_good: bool = False) -> None:
        """Note that an attempt failed: the job waits for the next one, or has failed for good.  LeaseLost as above."""
        pause_ms = self.options.backoff.pause_ms(lease.attempt, self._chance())

        def add(txn: CatalogTxn) -> None:
            if for_good:
                txn.fail_job(job_id, lease, error)
            else:
                txn.retry_job(job_id, lease, error, self.now_ms() + pause_ms)

        self._commit(add)

    def abort(self, job_id: JobId, lease: Lease) -> None:
        """End a job that was called off while at work.  LeaseLost as above."""
        self._commit(lambda txn: txn.abort_job(job_id, lease))

    def release(self, job_id: JobId, lease: Lease, error: JobError) -> None:
        """Give a job back; the attempt does not count.  `error` says why, should another wait in its place."""
        self._commit(lambda txn: txn.release_job(job_id, lease, error))

    # -- for whoever watches over workers ---------------------------------------------------------------------

    def leases(self) -> list[LeaseState]:
        """Return every lease there is."""
        return self.catalog.read(lambda view: list(_leases(view)))

    def break_off(self, lease: LeaseState) -> None:
        """Take a job from a worker that fell silent.  ConflictError if it did not, after all."""

        def add(txn: CatalogTxn) -> None:
            txn.break_off_job(lease.job_id, lease.attempt)

        self._commit(add)

    def redate(self) -> int:
        """Bring forward the retries that a clock which was set back has put off, and return how many."""
        now_ms = self.now_ms()
        late = self.catalog.read(lambda view: list(_redated(view, now_ms)))
        for op in late:
            self._apply(op)
        return len(late)

    def next_due_ms(self) -> int | None:
        """Return when the first pending job is due; None if none is pending."""
        return self.catalog.read(lambda view: view.next_due_ms())

    def _acquire(self, job_id: JobId, worker_id: str) -> None:
        txn = self.catalog.begin_write()
        txn.acquire_job(job_id, worker_id, self.options.lease_ms)
        txn.commit()

    def _apply(self, op: Op) -> None:
        self._commit(lambda txn: txn.add(op))

    def _commit(self, add: Callable[[CatalogTxn], object]) -> None:
        txn = self.catalog.begin_write()
        add(txn)
        txn.commit()


def _pick(view: CatalogView, kinds: Collection[int], now_ms: int, taken: Collection[JobId]) -> JobId | None:
    candidates = (
        Candidate(key.job_id, record.kind, record.db_id, record.gate_kind)
        for key, record in view.due_jobs(now_ms)
        if key.job_id not in taken
    )
    return pick(candidates, kinds, lambda candidate: _may_pass(view, candidate))


def _may_pass(view: CatalogView, candidate: Candidate) -> bool:
    assert candidate.db_id is not None
    gate = view.gate(candidate.db_id, candidate.gate_kind)
    return gate.is_open or gate.repair_job_id == candidate.job_id


def _leases(view: CatalogView) -> Iterator[LeaseState]:
    for key, _ in view.live_jobs(JobPhase.IN_FLIGHT):
        job = view.job(key.job_id)
        if job is not None and isinstance(job.state, InFlight):
            yield LeaseState(job.job_id, job.attempts, job.state.heartbeat_at_ms, job.state.expires_at_ms)


def _redated(view: CatalogView, now_ms: int) -> Iterator[RedateJob]:
    for key, _ in view.live_jobs(JobPhase.PENDING):
        job = view.job(key.job_id) if key.due_ms > now_ms else None
        if job is None or not job.attempts:
            continue  # A time that somebody chose is meant as it stands.
        not_before_ms = redated(job.not_before_ms, job.updated_at_ms, now_ms)
        if not_before_ms is not None:
            yield RedateJob(job.job_id, not_before_ms, job.not_before_ms, now_ms)
