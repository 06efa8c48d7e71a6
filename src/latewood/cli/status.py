"""`latewood status STORE`: a store on one screen."""

from pathlib import Path

import click

from latewood.cli.output import Output, output_format
from latewood.cli.store_argument import store_argument


@click.command()
@store_argument
@output_format
def status(path: Path, output: Output) -> int:
    """Show STORE on one screen: databases, shards, readers and their lag, tiers and their bytes, jobs.

    Works beside a writer.  CSV has the databases alone.
    """
    from latewood.cli.status_screen import show_status  # noqa: PLC0415 - LMDB and Arrow, not for the help

    return show_status(path, output)
