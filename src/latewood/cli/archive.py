"""`latewood archive STORE [DATABASE]...`: copy chunks to the archive, and prove the copies."""

from pathlib import Path

import click

from latewood.cli.output import Output
from latewood.cli.store_jobs import job_options


@click.command()
@job_options
def archive(path: Path, names: tuple[str, ...], output: Output, *, wait: bool, workers: int | None) -> int:
    """Enqueue the upload of every chunk of these databases, or of all, that the archive does not have.

    Each is read back and compared before it counts as archived.  Where the archive is, the setting archive.url says.
    """
    from latewood.cli.store_job_run import Work, check_archive_to_fill, run_work  # noqa: PLC0415 - as in `flush`

    return run_work(path, names, [Work("archive")], output, wait=wait, workers=workers, check=check_archive_to_fill)
