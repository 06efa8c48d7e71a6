"""Operations on jobs that the catalog has not: each is decided and applied within the writer's transaction."""

from msgspec.structs import replace

from latewood.catalog import Op
from latewood.catalog.changes import truncate_changes
from latewood.catalog.job_ops import JobOp
from latewood.catalog.ops import PutJob, RemoveCursor, RemoveJob
from latewood.catalog.rows import RowWriter
from latewood.catalog.tables import CHANGE_CURSOR, DB, JOB, AwaitingRepair, DbTombstoned, Pending
from latewood.errors import NotFoundError


class RequireDatabase(Op, frozen=True):
    """A condition: a database is there, and not tombstoned."""

    db_id: int

    def apply(self, rows: RowWriter) -> None:
        """Raise NotFoundError unless it holds: recovery would drop the job."""
        record = rows.get(DB, self.db_id)
        if record is None or isinstance(record.status, DbTombstoned):
            message = f"there is no database {self.db_id}"
            raise NotFoundError(message)


class RedateJob(JobOp, frozen=True):
    """Bring forward a retry that a clock which was set back had put far off."""

    not_before_ms: int
    instead_of_ms: int
    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Change when it is due, unless something else happened to it."""
        job = rows.get(JOB, self.job_id)
        if job is not None and isinstance(job.state, Pending) and job.not_before_ms == self.instead_of_ms:
            PutJob(replace(job, not_before_ms=self.not_before_ms, updated_at_ms=self.at_ms)).apply(rows)


class ForgetJob(Op, frozen=True):
    """Remove a finished job, unless somebody needs it still."""

    job_id: int

    def apply(self, rows: RowWriter) -> None:
        """Keep it if it was revived, or is a repair that failed: its gate waits for it."""
        job = rows.get(JOB, self.job_id)
        if job is None or not job.is_finished:
            return
        repaired = None if job.repairs_job_id is None else rows.get(JOB, job.repairs_job_id)
        if repaired is None or not isinstance(repaired.state, AwaitingRepair):
            RemoveJob(self.job_id).apply(rows)


class ForgetCursor(Op, frozen=True):
    """Remove a cursor of the change log, unless it acknowledged something meanwhile."""

    name: str
    acknowledged_at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Remove it with what only it needed."""
        record = rows.get(CHANGE_CURSOR, self.name)
        if record is not None and record.acknowledged_at_ms == self.acknowledged_at_ms:
            RemoveCursor(self.name).apply(rows)


class TruncateChanges(Op, frozen=True):
    """Drop some of the changes that no cursor needs."""

    def apply(self, rows: RowWriter) -> None:
        """Drop as many as one transaction should."""
        truncate_changes(rows)
