r"""UniqueJobGate: who may wait, who may work, and what a job that broke off leaves behind.  Pure.

Of each database and kind, at most one job is pending and at most one is in flight.  A job in flight closes the gate.
If it ends by itself, well or badly, it opens the gate in the same commit.  If it breaks off (its lease ran out, its
process died) the gate stays closed, and a repair job is made, which alone may pass and open it; the job that broke off
is then pending again.  Jobs without a database, or with `unique=False`, have no gate.

| from \ to       | pending                   | in flight | awaiting repair | finished              |
| --------------- | ------------------------- | --------- | --------------- | --------------------- |
| pending         |                           | acquire   |                 | cancel                |
| in flight       | retry, release, break_off | renew     | break_off       | complete, fail, abort |
| awaiting repair | its repair's complete     |           |                 | its repair's complete |
| finished        | revive                    |           |                 |                       |

Every function takes what is stored and returns the operations that make up the transition; `job_ops` applies them in
one transaction.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from latewood.catalog.ops import Op, PutGate, PutJob, SetFlushGate
from latewood.catalog.tables.job import (
    AwaitingRepair,
    Cancelled,
    Completed,
    FailedPermanent,
    InFlight,
    JobError,
    JobKind,
    JobRecord,
    JobState,
    Pending,
)
from latewood.catalog.tables.job_gate import GateKey, GateRecord
from latewood.catalog.tables.wal_state import FlushGateState
from latewood.errors import ConflictError, GateClosed, LeaseLost, UniqueJobAlreadyPending, UsageError

REPAIR_PRIORITY = 0
"""A repair is more urgent than what waits behind its gate."""


class Lease(NamedTuple):
    """A worker's proof that a job is its own: the attempt tells one lease of a job from the next."""

    worker_id: str
    attempt: int


class UniqueJobGate(NamedTuple):
    """A job before its gate, with all that a decision about it takes."""

    job: JobRecord
    gate: GateRecord = GateRecord()
    """The gate of the job's database and `gate_kind`; open if the job has none."""
    pending_job_id: int | None = None
    """Who waits in the job's place."""
    interrupted: JobRecord | None = None
    """Of a repair: the job that broke off, if it still awaits that."""
    interrupted_pending_job_id: int | None = None
    """Of a repair: who waits in that job's place."""

    def may_pass(self) -> bool:
        """Say whether the gate lets this job through."""
        return not self.job.is_gated or self.gate.is_open or self.gate.repair_job_id == self.job.job_id

    def enqueue(self) -> list[Op]:
        """Let a new job wait.

        Raises:
            UniqueJobAlreadyPending: one of its database and kind waits already.
            UsageError: it is not pending.
        """
        if not isinstance(self.job.state, Pending):
            message = f"a new job is pending, not {type(self.job.state).__name__}"
            raise UsageError(message)
        self._check_place()
        return [PutJob(self.job)]

    def acquire(self, worker_id: str, at_ms: int, lease_ms: int) -> list[Op]:
        """Give a pending job to a worker, and close the gate behind it.

        Raises:
            ConflictError: it is not pending any more, or not due.
            GateClosed: another job, or a repair that is due, holds the gate.
        """
        if not isinstance(self.job.state, Pending) or at_ms < self.job.not_before_ms:
            message = f"job {self.job.job_id} is {_name(self.job)}, not pending and due"
            raise ConflictError(message)
        state = InFlight(worker_id=worker_id, leased_at_ms=at_ms, expires_at_ms=at_ms + lease_ms, heartbeat_at_ms=at_ms)
        job = replace(self.job, state=state, attempts=self.job.attempts + 1, updated_at_ms=at_ms)
        return [PutJob(job), *self._closed(at_ms)]

    def renew(
        self, lease: Lease, at_ms: int, lease_ms: int, *, done: int | None = None, total: int | None = None
    ) -> list[Op]:
        """Note a heartbeat and progress, and let the lease run from now.  A clock set back never shortens it.

        Raises:
            LeaseLost: the job is no longer this worker's.
        """
        state = self.check_lease(lease)
        expires_at_ms = max(state.expires_at_ms, at_ms + lease_ms)
        job = replace(
            self.job,
            state=replace(state, heartbeat_at_ms=at_ms, expires_at_ms=expires_at_ms),
            progress_done=self.job.progress_done if done is None else done,
            progress_total=self.job.progress_total if total is None else total,
            updated_at_ms=at_ms,
        )
        return [PutJob(job)]

    def complete(self, lease: Lease, at_ms: int) -> list[Op]:
        """End a job well and open the gate; a repair also puts the job that broke off back.

        Raises:
            LeaseLost: the job is no longer this worker's.
        """
        self.check_lease(lease)
        job = replace(self.job, state=Completed(finished_at_ms=at_ms), cancel_requested=False, updated_at_ms=at_ms)
        returned = [PutJob(self._returned(at_ms))] if self.interrupted else []
        gate = replace(
            self.gate,
            active_job_id=None,
            repair_job_id=None,
            closed_since_ms=None,
            errored_since_ms=None,
            last_success_at_ms=at_ms,
        )
        return [PutJob(job), *returned, *self._gate_ops(gate)]

    def retry(self, lease: Lease, at_ms: int, error: JobError, not_before_ms: int) -> list[Op]:
        """Let a job that failed wait for its next attempt; at the last one it fails for good.

        Raises:
            LeaseLost: the job is no longer this worker's.
        """
        self.check_lease(lease)
        if self.job.attempts >= self.job.attempts_max:
            return self.fail(lease, at_ms, error)
        return [PutJob(self._back(at_ms, error, not_before_ms)), *self._errored(at_ms)]

    def fail(self, lease: Lease, at_ms: int, error: JobError) -> list[Op]:
        """End a job badly.  The gate opens, unless the job is a repair: then it stays closed.

        Raises:
            LeaseLost: the job is no longer this worker's.
        """
        self.check_lease(lease)
        job = replace(self.job, state=FailedPermanent(finished_at_ms=at_ms), last_error=error, updated_at_ms=at_ms)
        return [PutJob(job), *self._errored(at_ms)]

    def cancel(self, at_ms: int) -> list[Op]:
        """Call a job off: at once if it waits, else by asking its worker.  A finished job stays as it is.

        Raises:
            UsageError: it is a repair, without which its gate would stay closed.
        """
        if self.job.is_finished:
            return []
        if self.job.repairs_kind is not None:
            message = f"job {self.job.job_id} is a repair: without it the gate stays closed"
            raise UsageError(message)
        if isinstance(self.job.state, Pending):
            return [PutJob(_cancelled(self.job, at_ms, "Cancelled", "called off before it began"))]
        return [PutJob(replace(self.job, cancel_requested=True, updated_at_ms=at_ms))]

    def abort(self, lease: Lease, at_ms: int) -> list[Op]:
        """End a job in flight whose worker heeds that it was called off.  The gate opens, but for a repair.

        Raises:
            LeaseLost: the job is no longer this worker's.
        """
        self.check_lease(lease)
        job = _cancelled(self.job, at_ms, "Cancelled", "called off at work")
        return [PutJob(job), *self._opened()]

    def break_off(self, attempt: int, at_ms: int, repair_job_id: int) -> list[Op]:
        """Take a job from a worker that is dead or silent.

        Without a gate the job is pending again, or failed at its last attempt; so is a repair, whose gate stays closed.
        Any other awaits a repair, which is enqueued under `repair_job_id`.

        Raises:
            ConflictError: it is not in flight at that attempt any more.
        """
        if not isinstance(self.job.state, InFlight) or self.job.attempts != attempt:
            message = f"job {self.job.job_id} is {_name(self.job)} at attempt {self.job.attempts}"
            raise ConflictError(message)
        error = JobError(
            at_ms=at_ms,
            attempt=attempt,
            kind="LeaseExpired",
            message=f"worker {self.job.state.worker_id!r} fell silent, or died with its process",
        )
        if not self.job.is_gated or self.job.repairs_kind is not None:
            return [PutJob(self._again(at_ms, error)), *self._errored(at_ms)]
        waiting = AwaitingRepair(since_ms=at_ms, repair_job_id=repair_job_id)
        job = replace(self.job, state=waiting, last_error=error, updated_at_ms=at_ms)
        gate = replace(
            self.gate,
            active_job_id=self.job.job_id,
            repair_job_id=repair_job_id,
            closed_since_ms=self.gate.closed_since_ms or at_ms,
            errored_since_ms=self.gate.errored_since_ms or at_ms,
        )
        return [PutJob(job), PutJob(repair_of(self.job, repair_job_id, at_ms)), *self._gate_ops(gate)]

    def release(self, lease: Lease, at_ms: int, error: JobError) -> list[Op]:
        """Take a job back that was neither done nor failed; `error` says why, should another wait in its place.

        The attempt does not count.  Attempts are never taken back, because they tell leases apart: one more is allowed.

        Raises:
            LeaseLost: the job is no longer this worker's.
        """
        self.check_lease(lease)
        if self.job.cancel_requested:
            return self.abort(lease, at_ms)
        own = self._replace(job=replace(self.job, attempts_max=self.job.attempts_max + 1))
        if self.pending_job_id is not None:
            return own.retry(lease, at_ms, error, 0)
        return own.move(Pending(), at_ms)

    def revive(self, at_ms: int, attempts_more: int) -> list[Op]:
        """Let a job that failed or was called off wait again, with so many attempts more.

        Those that it had stay counted: one of them may still think that it is at work, and must not equal a new one.

        Raises:
            ConflictError: it is not finished, or was completed.
            UniqueJobAlreadyPending: another waits in its place.
        """
        if not isinstance(self.job.state, FailedPermanent | Cancelled):
            message = f"job {self.job.job_id} is {_name(self.job)}: only one that failed or was called off comes back"
            raise ConflictError(message)
        self._check_place()
        return [
            PutJob(
                replace(
                    self.job,
                    state=Pending(),
                    attempts_max=self.job.attempts + attempts_more,
                    not_before_ms=0,
                    cancel_requested=False,
                    updated_at_ms=at_ms,
                )
            )
        ]

    def move(self, state: JobState, at_ms: int) -> list[Op]:
        """Put a job into any state, its gate and places in step: for tools that mend.

        Raises:
            GateClosed: it cannot be in flight, another is.
            UniqueJobAlreadyPending: it cannot be pending, another is.
        """
        job = replace(self.job, state=state, updated_at_ms=at_ms)
        if isinstance(state, InFlight):
            return [PutJob(replace(job, attempts=job.attempts + 1)), *self._closed(at_ms)]
        if isinstance(state, Pending):
            self._check_place()
        holds = self.job.is_gated and self.gate.active_job_id == self.job.job_id
        return [PutJob(job), *(self._opened() if holds and self.gate.repair_job_id is None else [])]

    def _check_place(self) -> None:
        if self.job.is_gated and self.pending_job_id not in (None, self.job.job_id):
            assert self.job.db_id is not None
            assert self.pending_job_id is not None
            raise UniqueJobAlreadyPending(self.job.db_id, self.job.kind, self.pending_job_id)

    def check_lease(self, lease: Lease) -> InFlight:
        """Return the state of a job that is this worker's.

        Raises:
            LeaseLost: it is not, or no longer.
        """
        state = self.job.state
        if isinstance(state, InFlight) and (state.worker_id, self.job.attempts) == lease:
            return state
        message = f"job {self.job.job_id} is {_name(self.job)}, not leased to {lease.worker_id!r} for {lease.attempt}"
        raise LeaseLost(message)

    def _closed(self, at_ms: int) -> list[Op]:
        """Return what closes the gate behind this job."""
        if not self.job.is_gated or self.gate.repair_job_id == self.job.job_id:
            return []
        if not self.gate.is_open:
            assert self.job.db_id is not None
            assert self.gate.active_job_id is not None
            raise GateClosed(self.job.db_id, self.job.gate_kind, self.gate.active_job_id, self.gate.repair_job_id)
        return self._gate_ops(replace(self.gate, active_job_id=self.job.job_id, closed_since_ms=at_ms))

    def _opened(self) -> list[Op]:
        """Return what opens the gate again; a repair that did not succeed leaves it closed."""
        if not self.job.is_gated or self.gate.active_job_id != self.job.job_id:
            return []
        return self._gate_ops(replace(self.gate, active_job_id=None, repair_job_id=None, closed_since_ms=None))

    def _errored(self, at_ms: int) -> list[Op]:
        """Return what opens the gate after a failure, and notes since when there are any."""
        errored = replace(self.gate, errored_since_ms=self.gate.errored_since_ms or at_ms)
        if self.job.is_gated and self.gate.active_job_id == self.job.job_id:
            return self._gate_ops(replace(errored, active_job_id=None, repair_job_id=None, closed_since_ms=None))
        return self._gate_ops(errored)

    def _gate_ops(self, gate: GateRecord) -> list[Op]:
        if not self.job.is_gated or gate == self.gate:
            return []
        assert self.job.db_id is not None
        ops: list[Op] = [PutGate(GateKey(self.job.db_id, self.job.gate_kind), gate)]
        if self.job.gate_kind == JobKind.FLUSH:
            ops.append(SetFlushGate(self.job.db_id, flush_gate_state(gate)))
        return ops

    def _back(self, at_ms: int, error: JobError, not_before_ms: int) -> JobRecord:
        """Return this job as it waits for its next attempt, or gives way to one that waits in its place."""
        job = replace(self.job, last_error=error, not_before_ms=not_before_ms, updated_at_ms=at_ms)
        if self.job.cancel_requested:
            return _cancelled(job, at_ms, "Cancelled", "called off between two attempts")
        if self.job.is_gated and self.pending_job_id is not None:
            return _cancelled(job, at_ms, "Superseded", f"job {self.pending_job_id} waits in its place")
        return replace(job, state=Pending())

    def _again(self, at_ms: int, error: JobError) -> JobRecord:
        """Return this job after a break: waiting again, or failed if that was its last attempt."""
        if self.job.attempts >= self.job.attempts_max and not self.job.cancel_requested:
            return replace(self.job, state=FailedPermanent(finished_at_ms=at_ms), last_error=error, updated_at_ms=at_ms)
        return self._back(at_ms, error, self.job.not_before_ms)

    def _returned(self, at_ms: int) -> JobRecord:
        """Return the job that broke off, now that it is repaired."""
        assert self.interrupted is not None
        error = self.interrupted.last_error or JobError(
            at_ms=at_ms, attempt=self.interrupted.attempts, kind="LeaseExpired", message="broke off"
        )
        own = UniqueJobGate(self.interrupted, self.gate, self.interrupted_pending_job_id)
        return own._again(at_ms, error)


def repair_of(job: JobRecord, repair_job_id: int, at_ms: int) -> JobRecord:
    """Return the job that repairs what `job` left behind, and opens its gate."""
    payload: dict[str, Any] = {"job_id": job.job_id, "kind": int(job.kind), "payload": job.payload}
    return JobRecord(
        job_id=repair_job_id,
        created_at_ms=at_ms,
        kind=JobKind.REPAIR,
        db_id=job.db_id,
        payload=payload,
        priority=REPAIR_PRIORITY,
        attempts_max=job.attempts_max,
        repairs_job_id=job.job_id,
        repairs_kind=int(job.kind),
        updated_at_ms=at_ms,
    )


def flush_gate_state(gate: GateRecord) -> FlushGateState:
    """Return what the shards show of their database's flush gate."""
    return FlushGateState(
        active_job_id=gate.active_job_id,
        last_success_at_ms=gate.last_success_at_ms,
        errored_since_ms=gate.errored_since_ms,
    )


def _cancelled(job: JobRecord, at_ms: int, kind: str, message: str) -> JobRecord:
    error = JobError(at_ms=at_ms, attempt=job.attempts, kind=kind, message=message)
    return replace(job, state=Cancelled(finished_at_ms=at_ms), last_error=error, updated_at_ms=at_ms)


def _name(job: JobRecord) -> str:
    return type(job.state).__name__
