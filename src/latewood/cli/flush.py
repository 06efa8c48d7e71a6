"""`latewood flush STORE [DATABASE]...`: make chunks of what is in the logs of a store."""

from pathlib import Path

import click

from latewood.cli.engine_option import EngineChoice, engine_options
from latewood.cli.output import Output
from latewood.cli.store_jobs import job_options


@click.command()
@job_options
@engine_options
@click.option("--sealed-only", is_flag=True, help="Leave the open segments alone.")
@click.option("--keep-log", is_flag=True, help="Do not let the logs go of what is in chunks.")
def flush(
    path: Path,
    names: tuple[str, ...],
    output: Output,
    choice: EngineChoice,
    *,
    wait: bool,
    workers: int | None,
    sealed_only: bool,
    keep_log: bool,
) -> int:
    """Enqueue a flush of these databases, or of all: what is in their logs becomes Parquet chunks.

    A checkpoint follows: it reads the chunks back, and what they have may leave the logs, once every reader of a log
    has passed it.  Exits 1 if a job that was waited for has failed, 5 if another process has the store open to write.
    """
    from latewood.cli.store_job_run import Work, run_work  # noqa: PLC0415 - LMDB and Arrow, not for the help

    work = [Work("flush", {} if sealed_only else {"seal": True})]
    work += [] if keep_log else [Work("checkpoint")]
    return run_work(path, names, work, output, wait=wait, workers=workers, choice=choice)
