"""`--engine` and `--master`: where the work of a job is done."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from latewood.errors import UsageError

if TYPE_CHECKING:
    from latewood.tasks.engine import Engine

F = TypeVar("F", bound=Callable[..., Any])


class EngineChoice(NamedTuple):
    """Where the work is to be done."""

    name: str = "local"
    master: str | None = None

    @property
    def is_spark(self) -> bool:
        """Whether that is on Spark."""
        return self.name == "spark"

    def engine(self, root: Path) -> "Engine | None":
        """Return an engine for what is in a directory, starting a session if need be; None: this process.

        Raises:
            UsageError: `pyspark` is not installed.
            NotFoundError: there is no Java.
        """
        if not self.is_spark:
            return None
        try:
            from latewood.runtime.spark_jobs import engine_of, session  # noqa: PLC0415 - pyspark takes its time
        except ModuleNotFoundError as error:
            raise UsageError(f"--engine spark needs {error.name}: install latewood[spark]") from error
        return engine_of(session(self.master), root)


HERE: Final = EngineChoice()


def engine_options(function: F) -> Callable[..., Any]:
    """Give a command where its work is done, as `choice`."""

    @wraps(function)
    def command(*arguments: Any, engine: str, master: str | None, **options: Any) -> Any:
        if master is not None and engine != "spark":
            raise click.UsageError("--master is for --engine spark")
        return function(*arguments, choice=EngineChoice(engine, master), **options)

    kinds = click.Choice(["local", "spark"])
    place = click.option(
        "--engine", type=kinds, default="local", help="Where the work on files is done; spark implies --wait."
    )
    master = click.option("--master", help="Of Spark, such as local[4] or spark://host:7077.  [default: local[*,3]]")
    return place(master(command))
