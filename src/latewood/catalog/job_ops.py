"""The operations that move a job: each loads what `gate` decides on, and applies what it decides.

They run in the writer's transaction, so nothing can come between the look and the change.
"""

from latewood.catalog.gate import Lease, UniqueJobGate
from latewood.catalog.ops import Op
from latewood.catalog.rows import RowWriter
from latewood.catalog.tables.job import JOB, AwaitingRepair, JobError, JobRecord, JobState
from latewood.catalog.tables.job_gate import JOB_GATE, GateKey, GateRecord
from latewood.catalog.tables.job_index import JOB_PENDING, pending_key
from latewood.errors import ConflictError, LeaseLost, NotFoundError


def gate_before(rows: RowWriter, job: JobRecord) -> UniqueJobGate:
    """Return a job before its gate, as this transaction sees them."""
    interrupted = None if job.repairs_job_id is None else rows.get(JOB, job.repairs_job_id)
    if interrupted is not None and interrupted.state != AwaitingRepair(
        since_ms=getattr(interrupted.state, "since_ms", 0), repair_job_id=job.job_id
    ):
        interrupted = None
    gate = None
    if job.is_gated:
        assert job.db_id is not None
        gate = rows.get(JOB_GATE, GateKey(job.db_id, job.gate_kind))
    return UniqueJobGate(
        job,
        gate or GateRecord(),
        _waiting(rows, job),
        interrupted,
        None if interrupted is None else _waiting(rows, interrupted),
    )


def _waiting(rows: RowWriter, job: JobRecord) -> int | None:
    place = pending_key(job)
    holder = None if place is None else rows.get(JOB_PENDING, place)
    return None if holder is None or holder.job_id == job.job_id else holder.job_id


def _apply(rows: RowWriter, ops: list[Op]) -> None:
    for op in ops:
        op.apply(rows)


class JobOp(Op, frozen=True):
    """What is done to a job that is there."""

    job_id: int

    def gate(self, rows: RowWriter) -> UniqueJobGate:
        """Return the job before its gate.

        Raises:
            NotFoundError: there is no such job.
        """
        job = rows.get(JOB, self.job_id)
        if job is None:
            message = f"there is no job {self.job_id}"
            raise NotFoundError(message)
        return gate_before(rows, job)


class EnqueueJob(Op, frozen=True):
    """Let a new job wait.  Its id must not have been used."""

    record: JobRecord

    def apply(self, rows: RowWriter) -> None:
        """Store it with its places in the indices."""
        if rows.get(JOB, self.record.job_id) is not None:
            message = f"there is a job {self.record.job_id} already"
            raise ConflictError(message)
        _apply(rows, gate_before(rows, self.record).enqueue())


class AcquireJob(JobOp, frozen=True):
    """Give a pending job to a worker."""

    worker_id: str
    at_ms: int
    lease_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Close the gate behind it."""
        _apply(rows, self.gate(rows).acquire(self.worker_id, self.at_ms, self.lease_ms))


class RenewJob(JobOp, frozen=True):
    """Note a worker's heartbeat and progress."""

    lease: Lease
    at_ms: int
    lease_ms: int
    done: int | None = None
    total: int | None = None

    def apply(self, rows: RowWriter) -> None:
        """Let the lease run from now."""
        _apply(rows, self.gate(rows).renew(self.lease, self.at_ms, self.lease_ms, done=self.done, total=self.total))


class CompleteJob(JobOp, frozen=True):
    """End a job well."""

    lease: Lease
    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Open the gate; of a repair, put the job back that it repaired."""
        _apply(rows, self.gate(rows).complete(self.lease, self.at_ms))


class RetryJob(JobOp, frozen=True):
    """Let a job that failed wait for its next attempt."""

    lease: Lease
    at_ms: int
    error: JobError
    not_before_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Open the gate, or fail the job if it was the last attempt."""
        _apply(rows, self.gate(rows).retry(self.lease, self.at_ms, self.error, self.not_before_ms))


class FailJob(JobOp, frozen=True):
    """End a job badly."""

    lease: Lease
    at_ms: int
    error: JobError

    def apply(self, rows: RowWriter) -> None:
        """Open the gate, but not for a repair."""
        _apply(rows, self.gate(rows).fail(self.lease, self.at_ms, self.error))


class CancelJob(JobOp, frozen=True):
    """Call a job off."""

    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """End it if it waits, else ask its worker."""
        _apply(rows, self.gate(rows).cancel(self.at_ms))


class AbortJob(JobOp, frozen=True):
    """End a job in flight whose worker heeds that it was called off."""

    lease: Lease
    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Open the gate, but not for a repair."""
        _apply(rows, self.gate(rows).abort(self.lease, self.at_ms))


class BreakOffJob(JobOp, frozen=True):
    """Take a job from a worker that is dead or silent."""

    attempt: int
    at_ms: int
    repair_job_id: int

    def apply(self, rows: RowWriter) -> None:
        """Leave the gate closed, with a repair that is to open it."""
        _apply(rows, self.gate(rows).break_off(self.attempt, self.at_ms, self.repair_job_id))


class ReleaseJob(JobOp, frozen=True):
    """Give a job back that was neither done nor failed."""

    lease: Lease
    at_ms: int
    error: JobError

    def apply(self, rows: RowWriter) -> None:
        """Open the gate, and let it wait again, unless it was called off or another waits in its place."""
        _apply(rows, self.gate(rows).release(self.lease, self.at_ms, self.error))


class ReviveJob(JobOp, frozen=True):
    """Let a job that failed or was called off wait again."""

    at_ms: int
    attempts_more: int

    def apply(self, rows: RowWriter) -> None:
        """Allow it more attempts."""
        _apply(rows, self.gate(rows).revive(self.at_ms, self.attempts_more))


class UpdateJobState(JobOp, frozen=True):
    """Put a job into a state, its indices and gate in step."""

    state: JobState
    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Store it."""
        _apply(rows, self.gate(rows).move(self.state, self.at_ms))


class RequireLease(JobOp, frozen=True):
    """A condition: a job is leased to this worker, for this attempt."""

    lease: Lease

    def apply(self, rows: RowWriter) -> None:
        """Raise LeaseLost unless it holds."""
        try:
            gate = self.gate(rows)
        except NotFoundError as error:
            raise LeaseLost(str(error)) from error
        gate.check_lease(self.lease)
