"""`latewood work STORE`: run the jobs of a store."""

from pathlib import Path

import click

from latewood.cli.arguments import DURATION
from latewood.cli.output import Output, output_format
from latewood.cli.store_argument import store_argument


@click.command()
@store_argument
@click.option("--workers", type=click.IntRange(1, 256), help="Jobs at a time.  [default: as the settings say]")
@click.option("--once", is_flag=True, help="End when no job is left that could run now.")
@click.option(
    "--every",
    "every_ms",
    type=DURATION,
    help="So often, enqueue flush, checkpoint, compact, archive, evict and retain of every database.",
)
@click.option("--stop-wait", "stop_ms", type=DURATION, default="30s", help="How long to wait for handlers at the end.")
@output_format
def work(path: Path, workers: int | None, every_ms: int | None, stop_ms: int, output: Output, *, once: bool) -> int:
    """Run the jobs of STORE until interrupted, and print what came of each attempt.

    First, what another process left in flight is repaired and tried again.  An interrupt, and SIGTERM, stop it
    gracefully: handlers that heed it give their jobs back.  Exits 130 when interrupted and 0 after SIGTERM; with
    --once, 1 if a job has failed for good.  Exits 5 if another process has the store open to write.
    """
    from latewood.cli.work_loop import run  # noqa: PLC0415 - LMDB and Arrow, not for the help

    return run(path, workers, every_ms, stop_ms, output, once=once)
