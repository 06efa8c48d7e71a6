"""`latewood jobs`: list, run, retry, cancel, watch and prune the jobs of a catalog."""

from pathlib import Path
from typing import Final

import click

from latewood.cli.arguments import DURATION
from latewood.cli.catalog_argument import catalog_argument
from latewood.cli.confirmation import confirmed
from latewood.cli.output import Output, output_format

# ruff: noqa: PLC0415 - LMDB is loaded when a command runs, not for its help

JOB_ID: Final = click.IntRange(min=1)
STATES: Final = ("pending", "in-flight", "awaiting-repair", "completed", "failed", "cancelled")


@click.group()
def jobs() -> None:
    """List, run, retry, cancel and watch jobs.  CATALOG is a catalog's file, or the directory of its store."""


@jobs.command()
@catalog_argument
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only jobs like this.")
@click.option("--kind", metavar="KIND", help="Only jobs of this kind: its name or number.")
@click.option("--db", "db_id", type=click.IntRange(min=1), help="Only jobs of the database with this id.")
@click.option("--last", type=click.IntRange(min=1), help="Only the newest of them, this many.")
@output_format
def ls(
    path: Path, states: tuple[str, ...], kind: str | None, db_id: int | None, last: int | None, output: Output
) -> int:
    """List jobs, in the order in which they were enqueued.  Works beside whoever runs them."""
    from latewood.cli.job_actions import list_jobs

    return list_jobs(path, states, kind, db_id, last, output)


@jobs.command()
@catalog_argument
@click.argument("job_id", type=JOB_ID)
@output_format
def show(path: Path, job_id: int, output: Output) -> int:
    """Show one job with its payload, and with the error of its last attempt."""
    from latewood.cli.job_actions import show_job

    return show_job(path, job_id, output)


@jobs.command()
@catalog_argument
@click.argument("job_ids", metavar="JOB_ID...", type=JOB_ID, nargs=-1, required=True)
@output_format
def retry(path: Path, job_ids: tuple[int, ...], output: Output) -> int:
    """Let jobs that failed or were cancelled wait again, with as many attempts as a new job.

    Exits 5 if another process has the catalog open to write.
    """
    from latewood.cli.job_actions import retry_jobs

    return retry_jobs(path, job_ids, output)


@jobs.command()
@catalog_argument
@click.argument("job_ids", metavar="JOB_ID...", type=JOB_ID, nargs=-1, required=True)
@output_format
def cancel(path: Path, job_ids: tuple[int, ...], output: Output) -> int:
    """Call jobs off: those that wait at once, those at work as soon as their handlers heed it.

    Exits 5 if another process has the catalog open to write: then its program must cancel them.
    """
    from latewood.cli.job_actions import cancel_jobs

    return cancel_jobs(path, job_ids, output)


@jobs.command()
@catalog_argument
@confirmed
@click.option("--keep", type=click.IntRange(min=0), help="Keep the newest, so many.  [default: 10000]")
@click.option("--max-age", type=DURATION, help="Forget jobs completed or cancelled so long ago.  [default: 7d]")
@click.option("--max-age-failed", type=DURATION, help="Forget jobs that failed so long ago.  [default: 30d]")
@click.option(
    "--cursors-silent-for", "silent", type=DURATION, help="Remove cursors of the change log silent for so long."
)
@output_format
def prune(
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
    """Forget finished jobs, and the changes that nobody waits for.  Exits 5 beside a writer; --dry-run works there."""
    from latewood.cli.job_actions import forget_jobs

    return forget_jobs(path, keep, max_age, max_age_failed, silent, output, dry_run=dry_run, yes=yes)


@jobs.command()
@catalog_argument
@click.option("--workers", type=click.IntRange(1, 256), default=2, show_default=True, help="Jobs at a time.")
@click.option(
    "--handlers", "sources", metavar="MODULE:NAME", multiple=True, help="Handlers of your own: a Handlers object."
)
@click.option(
    "--enqueue", "kinds", metavar="KIND", multiple=True, help="First enqueue a job of this kind, without payload."
)
@click.option("--follow", "-f", is_flag=True, help="Go on with jobs that come or become due, until interrupted.")
@click.option("--lease", "lease_ms", type=DURATION, help="How long a worker may be silent.  [default: 30s]")
@click.option(
    "--stop-wait", "stop_ms", type=DURATION, help="How long to wait for handlers when interrupted.  [default: 30s]"
)
@output_format
def run(
    path: Path,
    workers: int,
    sources: tuple[str, ...],
    kinds: tuple[str, ...],
    lease_ms: int | None,
    stop_ms: int | None,
    output: Output,
    *,
    follow: bool,
) -> int:
    """Run the jobs that wait and are due, and print what came of each attempt.

    First the catalog is recovered: jobs that another process left in flight are repaired and tried again.  Built in are
    the kinds catalog-check and catalog-prune; --handlers adds those of a module, which is looked for in the current
    directory too.  Jobs of other kinds are left alone.  An interrupt stops it gracefully: handlers that heed it give
    their jobs back.  Exits 1 if a job has failed for good, 5 if another process has the catalog open to write.
    """
    from latewood.cli.jobs_run import run_jobs

    return run_jobs(path, workers, sources, kinds, lease_ms, stop_ms, output, follow=follow)


@jobs.command()
@catalog_argument
@click.argument("job_ids", metavar="[JOB_ID]...", type=click.IntRange(min=1), nargs=-1)
@output_format
def watch(path: Path, job_ids: tuple[int, ...], output: Output) -> int:
    """Show how far jobs are, until they are finished: those with these ids, else all that are not finished.

    A terminal is drawn over; JSON Lines and CSV get a line for every change, the other formats only the end.  Works
    beside whoever runs the jobs.  Exits 1 if a job that was watched has failed for good.
    """
    from latewood.cli.jobs_watch import watch_jobs

    return watch_jobs(path, job_ids, output)
