"""`latewood hydrate STORE [DATABASE]...`: bring archived chunks back as local files."""

from pathlib import Path

import click

from latewood.cli.arguments import SEQUENCE
from latewood.cli.output import Output
from latewood.cli.store_jobs import job_options


@click.command()
@job_options
@click.option("--shard", type=click.IntRange(min=0), help="Only chunks of this shard.")
@click.option("--start", type=SEQUENCE, help="Only chunks with this sequence or later ones.")
@click.option("--stop", type=SEQUENCE, help="Only chunks with sequences before this.")
def hydrate(
    path: Path,
    names: tuple[str, ...],
    output: Output,
    *,
    wait: bool,
    workers: int | None,
    shard: int | None,
    start: int | None,
    stop: int | None,
) -> int:
    """Enqueue the download of chunks that are only in the archive, of these databases or of all."""
    from latewood.cli.store_job_run import Work, check_archive, run_work  # noqa: PLC0415 - as in `flush`

    asked = {"shard": shard, "start": start, "stop": stop}
    work = Work("hydrate", {name: value for name, value in asked.items() if value is not None})
    return run_work(path, names, [work], output, wait=wait, workers=workers, check=check_archive)
