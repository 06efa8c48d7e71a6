"""The kinds of arguments that commands take, and those that many commands share."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from latewood.cli.human import parse_time
from latewood.settings.units import parse_duration, parse_size

if TYPE_CHECKING:
    _IntegerType = click.ParamType[int]
else:
    _IntegerType = click.ParamType  # Older releases of click have no type to fill in.

F = TypeVar("F", bound=Callable[..., Any])


class _Parsed(_IntegerType):
    """A text that one function turns into a number."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with what would have been right."""
        if isinstance(value, int):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _NamedPath(click.Path):
    """A path that is not empty: that would be the current directory, which nobody named."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail."""
        if value == "":
            self.fail('a path must not be empty; the current directory is "."', param, ctx)
        return super().convert(value, param, ctx)


SIZE: Final = _Parsed("size", parse_size)
"""Bytes: `4096`, `64MiB`."""

DURATION: Final = _Parsed("duration", parse_duration)
"""Milliseconds: `250ms`, `1h30m`."""

TIME: Final = _Parsed("time", lambda text: parse_time(text, time.time_ns()))
"""Nanoseconds since 1970: `2026-01-31T12:00Z`, `2h` ago."""

SEQUENCE: Final = click.IntRange(min=0)
"""The number of a record."""

PATH: Final = _NamedPath(path_type=Path)
"""A path that the library looks for: it knows how to say what is missing."""


def directory(function: F) -> F:
    """Give a command its DIR."""
    return click.argument("directory", metavar="DIR", type=PATH)(function)


def segment_options(function: F) -> F:
    """Give a command the options that a log keeps: every segment's header holds them."""
    size = click.option("--segment-bytes", type=SIZE, help="Roll before a segment passes this size.  [new log: 64MiB]")
    interval = click.option(
        "--index-interval",
        type=click.IntRange(min=1),
        help="Records between two entries of a segment's index.  [new log: 1024]",
    )
    return size(interval(function))


def refuse_options(options: Mapping[str, object], what: str) -> None:
    """Refuse options that only something else has.

    Raises:
        UsageError: one of them was given.
    """
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        message = f"--{given[0].replace('_', '-')} is for {what}"
        raise click.UsageError(message, click.get_current_context())
