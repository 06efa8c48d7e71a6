"""What a command prints: one class that knows the four formats.

A table is for people: units are written out, and there may be colour.  The others are for programs: numbers stay
numbers, names end in their unit, and everything is UTF-8 whatever the locale says.
"""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import click

R = TypeVar("R")
Format = Literal["table", "json", "jsonl", "csv"]
FORMATS: Final = ("table", "json", "jsonl", "csv")


class Output:
    """Writes a command's result to stdout, in one format."""

    def __init__(self, format_name: Format) -> None:
        self.format: Final = format_name

    def show(self, fields: Mapping[str, object]) -> None:
        """Print one thing."""
        with suppress(BrokenPipeError):  # Whoever closed the pipe has seen enough; our exit code still counts.
            match self.format:
                case "table":
                    self._draw_fields(fields)
                case "csv":
                    write_bytes(csv_lines([list(fields), list(fields.values())]))
                case _:
                    write_json(fields, pretty=self.format == "json")

    def rows(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        brief: Sequence[str] | None = None,
        spare: Sequence[str] = (),
    ) -> None:
        """Print many things of one kind.

        A table has only the columns in `brief`; on a terminal that is too narrow for them, it goes without those in
        `spare`, the first of them first.
        """
        with suppress(BrokenPipeError):  # as above
            match self.format:
                case "table":
                    places = [columns.index(name) for name in brief or columns]
                    self._draw_rows(brief or columns, ([row[place] for place in places] for row in rows), spare)
                case "csv":
                    write_bytes(csv_lines([columns]))
                    for row in rows:
                        write_bytes(csv_lines([row]))
                case "json":
                    write_json([dict(zip(columns, row, strict=True)) for row in rows], pretty=True)
                case "jsonl":
                    for row in rows:
                        write_json(dict(zip(columns, row, strict=True)), pretty=False)

    def report(
        self, summary: Mapping[str, object], name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        """Print one thing with a list in it: `name` is what the list is called.  CSV has the list alone."""
        if self.format == "csv":
            self.rows(columns, rows)
        elif self.format == "table":
            if rows:
                self.rows(columns, rows)
            self.show(summary)
        else:
            self.show({**summary, name: [dict(zip(columns, row, strict=True)) for row in rows]})

    @staticmethod
    def _draw_fields(fields: Mapping[str, object]) -> None:
        from latewood.cli.table import draw_fields  # noqa: PLC0415 - only people pay for it

        draw_fields(fields, sys.stdout)
        sys.stdout.flush()

    @staticmethod
    def _draw_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], spare: Sequence[str]) -> None:
        from latewood.cli.table import draw_rows  # noqa: PLC0415 - only people pay for it

        draw_rows(columns, list(rows), sys.stdout, spare)
        sys.stdout.flush()


def output_format(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command `--format`, and the Output for it as its argument `output`."""

    @click.option(
        "--format",
        "format_name",
        type=click.Choice(FORMATS),
        help="How to print.  [default: table on a terminal, jsonl in a pipe]",
    )
    @wraps(function)
    def command(*args: Any, format_name: Format | None, **kwargs: Any) -> R:
        return function(*args, output=Output(format_name or default_format()), **kwargs)

    return command


def default_format() -> Format:
    """Return the format for whoever is at the other end of stdout."""
    return "table" if sys.stdout.isatty() else "jsonl"


def csv_lines(rows: Iterable[Sequence[object]]) -> bytes:
    """Return comma-separated values; what is missing is an empty field."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_plain(value) for value in row] for row in rows)
    return text.getvalue().encode(errors="surrogateescape")


def write_json(value: object, *, pretty: bool) -> None:
    """Write one JSON value and a line's end."""
    import msgspec  # noqa: PLC0415 - not every command prints JSON

    encoded = msgspec.json.encode(value, enc_hook=str)
    write_bytes((msgspec.json.format(encoded) if pretty else encoded) + b"\n")


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout, and have whoever reads it see them now."""
    stream = cast("io.BufferedIOBase", sys.stdout.buffer)
    stream.write(data)
    stream.flush()


def _plain(value: object) -> object:
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return " ".join(str(one) for one in value)
        case Path():
            return str(value)
        case _:
            return value
