"""Retention of jobs: which finished ones are forgotten, and the change log with them.

The decision is pure.  Pruning goes through the table once, in the order of ids, and commits a few hundred at a time;
it may be cut off anywhere and begun again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from latewood.catalog import Catalog, Op
from latewood.catalog.tables import CHANGE_CURSOR, CHANGE_LOG, JOB, JOB_LIVE, FailedPermanent, JobRecord
from latewood.jobs.ops import ForgetCursor, ForgetJob, TruncateChanges
from latewood.jobs.options import JobRetention

_OPS_IN_A_COMMIT: Final = 256
_TRUNCATIONS_MAX: Final = 100_000
"""Each drops a thousand changes; more cannot be waiting."""

Commit = Callable[[Sequence[Op]], object]


class Pruned(NamedTuple):
    """What was forgotten."""

    jobs: int
    kept: int
    """Finished jobs that stay."""
    cursors: list[str]
    changes: int


def is_forgettable(job: JobRecord, retention: JobRetention, now_ms: int, *, is_beyond: bool) -> bool:
    """Say whether a job may go; `is_beyond`: more than enough newer ones are finished."""
    if not job.is_finished:
        return False
    is_failed = isinstance(job.state, FailedPermanent)
    age_max_ms = retention.failed_age_max_ms if is_failed else retention.completed_age_max_ms
    finished_at_ms: int = job.state.finished_at_ms  # type: ignore[union-attr]  # finished states have it
    return is_beyond or (age_max_ms is not None and now_ms - finished_at_ms > age_max_ms)


def forgettable(catalog: Catalog, retention: JobRetention, now_ms: int) -> Iterator[JobRecord]:
    """Yield the finished jobs that a policy lets go, the oldest first."""
    finished = catalog.read(lambda view: view.count(JOB) - view.count(JOB_LIVE))
    beyond = finished - retention.finished_max
    for _, job in catalog.scan_jobs():
        if is_forgettable(job, retention, now_ms, is_beyond=beyond > 0):
            beyond -= 1
            yield job


def silent_cursors(catalog: Catalog, retention: JobRetention, now_ms: int) -> list[ForgetCursor]:
    """Return what removes the cursors of the change log that were silent for too long."""
    silent_ms = retention.cursors_silent_ms
    if silent_ms is None:
        return []
    return [
        ForgetCursor(name, record.acknowledged_at_ms)
        for name, record in catalog.scan(CHANGE_CURSOR)
        if now_ms - record.acknowledged_at_ms > silent_ms
    ]


def prune(
    catalog: Catalog,
    retention: JobRetention,
    now_ms: int,
    *,
    commit: Commit | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Pruned:
    """Forget what a policy lets go, and return how much that was.  `commit` is how; a job's own is fenced."""
    commit = commit or (lambda ops: catalog.apply(*ops))
    jobs_before, changes_before = catalog.read(lambda view: (view.count(JOB), view.count(CHANGE_LOG)))
    cursors = silent_cursors(catalog, retention, now_ms)
    done = 0
    for ops in _batched([*cursors]):
        commit(ops)
    for ops in _batched(ForgetJob(job.job_id) for job in forgettable(catalog, retention, now_ms)):
        commit(ops)
        done += len(ops)
        progress(done, jobs_before)
    _truncate(catalog, commit)
    jobs, live, changes = catalog.read(lambda view: (view.count(JOB), view.count(JOB_LIVE), view.count(CHANGE_LOG)))
    return Pruned(
        jobs=max(0, jobs_before - jobs),
        kept=jobs - live,
        cursors=[op.name for op in cursors],
        changes=max(0, changes_before - changes),
    )


def _truncate(catalog: Catalog, commit: Commit) -> None:
    """Drop changes that no cursor needs, until nothing more goes."""
    for _ in range(_TRUNCATIONS_MAX):
        before = catalog.read(lambda view: view.count(CHANGE_LOG))
        if not before:
            return
        commit([TruncateChanges()])
        if catalog.read(lambda view: view.count(CHANGE_LOG)) >= before:
            return


def _batched(ops: Iterable[Op]) -> Iterator[list[Op]]:
    remaining = iter(ops)
    while batch := list(islice(remaining, _OPS_IN_A_COMMIT)):
        yield batch
