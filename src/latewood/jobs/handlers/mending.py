"""The repair that a job ends with when it has met chunks that are not what they should be."""

from collections.abc import Sequence

from latewood.catalog import Op
from latewood.catalog.job_ops import EnqueueJob
from latewood.catalog.tables import JobKind, JobRecord
from latewood.jobs.handlers.attempt import Attempt
from latewood.types import ChunkId


def mending(attempt: Attempt, chunk_ids: Sequence[ChunkId]) -> list[Op]:
    """Return what enqueues a repair of chunks, for this job to end with; nothing if one waits already."""
    if not chunk_ids or attempt.context.read(lambda view: view.pending_job(attempt.db_id, JobKind.MEND)) is not None:
        return []
    now_ms = attempt.now_ms()
    job = JobRecord(
        job_id=attempt.store.catalog.reserve_job_id(),
        created_at_ms=now_ms,
        kind=JobKind.MEND,
        db_id=attempt.db_id,
        payload={"chunk_ids": sorted(chunk_ids)},
        attempts_max=attempt.context.manager.options.attempts_max,
        updated_at_ms=now_ms,
    )
    return [EnqueueJob(job)]
