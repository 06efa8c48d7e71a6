"""`latewood compact STORE [DATABASE]...`: make few large chunks of many small ones."""

from pathlib import Path

import click

from latewood.cli.engine_option import EngineChoice, engine_options
from latewood.cli.output import Output
from latewood.cli.store_jobs import job_options


@click.command()
@job_options
@engine_options
def compact(
    path: Path, names: tuple[str, ...], output: Output, choice: EngineChoice, *, wait: bool, workers: int | None
) -> int:
    """Enqueue a compaction of these databases, or of all: adjacent small chunks become one.

    What was replaced stays for a grace period, for those who read it; `latewood retain` removes it then.
    """
    from latewood.cli.store_job_run import Work, run_work  # noqa: PLC0415 - LMDB and Arrow, not for the help

    return run_work(path, names, [Work("compact")], output, wait=wait, workers=workers, choice=choice)
