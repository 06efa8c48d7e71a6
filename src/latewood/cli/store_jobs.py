"""What the commands that enqueue a job of a store have in common: `STORE [DATABASE]...`, `--wait` and `--workers`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from latewood.cli.output import output_format
from latewood.cli.store_argument import databases_argument

F = TypeVar("F", bound=Callable[..., Any])


def job_options(function: F) -> Callable[..., Any]:
    """Give a command the databases whose jobs it enqueues, and whether to wait for them."""
    wait = click.option("--wait", is_flag=True, help="Run the jobs here, and return when they are finished.")
    workers = click.option(
        "--workers", type=click.IntRange(1, 256), help="With --wait, jobs at a time.  [default: as the settings say]"
    )
    return databases_argument(wait(workers(output_format(function))))
