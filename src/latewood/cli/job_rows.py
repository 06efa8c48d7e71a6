"""A job as the command line shows it."""

from latewood.catalog.tables import (
    AwaitingRepair,
    Cancelled,
    Completed,
    FailedPermanent,
    InFlight,
    JobRecord,
    Pending,
)
from latewood.jobs import kind_name

_MS = 1_000_000
STATES = {
    Pending: "pending",
    InFlight: "in-flight",
    AwaitingRepair: "awaiting-repair",
    Completed: "completed",
    FailedPermanent: "failed",
    Cancelled: "cancelled",
}
COLUMNS = (
    "job_id",
    "kind",
    "db_id",
    "state",
    "priority",
    "attempts",
    "attempts_max",
    "done",
    "total",
    "worker",
    "created_at_ns",
    "updated_at_ns",
    "not_before_ns",
    "error",
)
BRIEF = ("job_id", "kind", "db_id", "state", "attempts", "done", "total", "updated_at_ns", "error")
SPARE = ("updated_at_ns", "error", "db_id")


def state_name(job: JobRecord) -> str:
    """Return a job's state."""
    return STATES[type(job.state)]


def job_row(job: JobRecord) -> tuple[object, ...]:
    """Return the cells of COLUMNS."""
    return (
        job.job_id,
        kind_name(job.kind),
        job.db_id,
        state_name(job),
        job.priority,
        job.attempts,
        job.attempts_max,
        job.progress_done,
        job.progress_total,
        job.state.worker_id if isinstance(job.state, InFlight) else None,
        job.created_at_ms * _MS,
        job.updated_at_ms * _MS,
        job.not_before_ms * _MS or None,
        None if job.last_error is None else f"{job.last_error.kind}: {job.last_error.message}",
    )


def job_fields(job: JobRecord) -> dict[str, object]:
    """Return all there is to say of a job."""
    fields = dict(zip(COLUMNS, job_row(job), strict=True))
    fields["unique"], fields["cancel_requested"] = job.unique, job.cancel_requested
    fields["repairs_job_id"] = job.repairs_job_id
    fields["repair_job_id"] = job.state.repair_job_id if isinstance(job.state, AwaitingRepair) else None
    if isinstance(job.state, InFlight):
        fields["leased_at_ns"] = job.state.leased_at_ms * _MS
        fields["heartbeat_at_ns"] = job.state.heartbeat_at_ms * _MS
        fields["expires_at_ns"] = job.state.expires_at_ms * _MS
    fields["payload"] = job.payload
    fields["traceback"] = job.last_error.traceback if job.last_error else None
    return fields
