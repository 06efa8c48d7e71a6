"""`latewood evict STORE [DATABASE]...`: remove local files of chunks that are archived."""

from pathlib import Path

import click

from latewood.cli.confirmation import confirmed
from latewood.cli.output import Output
from latewood.cli.store_jobs import job_options


@click.command()
@job_options
@click.option("--due-only", is_flag=True, help="Only those that the database's evict_local_after_ms lets go.")
@confirmed
def evict(
    path: Path,
    names: tuple[str, ...],
    output: Output,
    *,
    wait: bool,
    workers: int | None,
    due_only: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Enqueue the removal of local files whose copies in the archive were read back and proved.

    The records stay readable: they are read from the archive.
    """
    from latewood.cli.store_job_run import Work, check_archive, run_work  # noqa: PLC0415 - as in `flush`
    from latewood.cli.store_removal import may_evict  # noqa: PLC0415 - as above

    if not may_evict(path, names, output, due_only=due_only, dry_run=dry_run, yes=yes):
        return int(not dry_run)
    work = [Work("evict", {} if due_only else {"now": True})]
    return run_work(path, names, work, output, wait=wait, workers=workers, check=check_archive)
