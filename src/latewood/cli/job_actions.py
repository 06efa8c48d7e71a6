"""What `latewood jobs` prints and does.  Apart from the commands, so that their help loads no LMDB."""

from collections import deque
from pathlib import Path

from latewood.cli.catalog_argument import open_catalog
from latewood.cli.confirmation import ask
from latewood.cli.errors import ExitCode, say
from latewood.cli.job_rows import BRIEF, COLUMNS, SPARE, job_fields, job_row, state_name
from latewood.cli.output import Output
from latewood.jobs import JobManager, JobRetention, kind_of
from latewood.jobs import prune as prune_jobs
from latewood.jobs.retention import forgettable, silent_cursors

_USUAL = JobRetention()


def list_jobs(
    path: Path, states: tuple[str, ...], kind: str | None, db_id: int | None, last: int | None, output: Output
) -> int:
    """Do what `latewood jobs ls` says."""
    wanted = None if kind is None else kind_of(kind)
    with open_catalog(path) as catalog:
        found = (
            job_row(job)
            for _, job in catalog.scan_jobs()
            if (not states or state_name(job) in states) and wanted in (None, job.kind) and db_id in (None, job.db_id)
        )
        output.rows(COLUMNS, found if last is None else deque(found, last), brief=BRIEF, spare=SPARE)
    return ExitCode.OK


def show_job(path: Path, job_id: int, output: Output) -> int:
    """Do what `latewood jobs show` says."""
    with open_catalog(path) as catalog:
        output.show(job_fields(JobManager(catalog).get(job_id)))
    return ExitCode.OK


def retry_jobs(path: Path, job_ids: tuple[int, ...], output: Output) -> int:
    """Do what `latewood jobs retry` says."""
    with open_catalog(path, "w") as catalog:
        manager = JobManager(catalog)
        output.rows(COLUMNS, [job_row(manager.retry(job_id)) for job_id in job_ids], brief=BRIEF, spare=SPARE)
    return ExitCode.OK


def cancel_jobs(path: Path, job_ids: tuple[int, ...], output: Output) -> int:
    """Do what `latewood jobs cancel` says."""
    with open_catalog(path, "w") as catalog:
        manager = JobManager(catalog)
        output.rows(COLUMNS, [job_row(manager.cancel(job_id)) for job_id in job_ids], brief=BRIEF, spare=SPARE)
    return ExitCode.OK


def forget_jobs(
    path: Path,
    keep: int | None,
    max_age: int | None,
    max_age_failed: int | None,
    silent: int | None,
    output: Output,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Do what `latewood jobs prune` says."""
    retention = JobRetention(
        finished_max=_USUAL.finished_max if keep is None else keep,
        completed_age_max_ms=_USUAL.completed_age_max_ms if max_age is None else max_age,
        failed_age_max_ms=_USUAL.failed_age_max_ms if max_age_failed is None else max_age_failed,
        cursors_silent_ms=silent,
    )
    with open_catalog(path, "r" if dry_run else "w") as catalog:
        now_ms = JobManager(catalog).now_ms()
        count = sum(1 for _ in forgettable(catalog, retention, now_ms))
        cursors = [op.name for op in silent_cursors(catalog, retention, now_ms)]
        if dry_run:
            output.show({"jobs": count, "cursors": cursors, "deleted": False})
            return ExitCode.OK
        if not ask(f"Forget {count:,} jobs and {len(cursors)} cursors?", yes=yes):
            say("nothing was deleted")
            return ExitCode.FAILED
        pruned = prune_jobs(catalog, retention, now_ms)
    output.show(
        {
            "jobs": pruned.jobs,
            "kept": pruned.kept,
            "cursors": pruned.cursors,
            "changes": pruned.changes,
            "deleted": True,
        }
    )
    return ExitCode.OK
