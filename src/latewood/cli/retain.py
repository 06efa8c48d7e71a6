"""`latewood retain STORE [DATABASE]...`: let go of chunks that the retention of a database does not keep."""

from pathlib import Path

import click

from latewood.cli.confirmation import confirmed
from latewood.cli.engine_option import EngineChoice, engine_options
from latewood.cli.output import Output
from latewood.cli.store_jobs import job_options


@click.command()
@job_options
@engine_options
@confirmed
def retain(
    path: Path,
    names: tuple[str, ...],
    output: Output,
    choice: EngineChoice,
    *,
    wait: bool,
    workers: int | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Enqueue what the retention of these databases, or of all, says: old chunks go, in every tier.

    Whatever a reader has not passed stays, and so does everything where no bound is set.  Records that go are not
    readable any more at once; files and objects follow after the grace period of the database, at the next run.
    """
    from latewood.cli.store_job_run import Work, run_work  # noqa: PLC0415 - LMDB and Arrow, not for the help
    from latewood.cli.store_removal import may_retain  # noqa: PLC0415 - as above

    if not may_retain(path, names, output, dry_run=dry_run, yes=yes):
        return int(not dry_run)
    return run_work(path, names, [Work("retain")], output, wait=wait, workers=workers, choice=choice)
