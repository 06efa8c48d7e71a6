"""Tables for people: drawn by rich on a terminal that has it, as plain aligned text everywhere else."""

import importlib.util
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO

from latewood.cli.human import cell, heading

if TYPE_CHECKING:
    from rich.table import Table

_GAP = "  "


def draw_rows(
    columns: Sequence[str], rows: Sequence[Sequence[object]], stream: TextIO, spare: Sequence[str] = ()
) -> None:
    """Write a table with a heading; columns of numbers are aligned to the right.

    A terminal that is too narrow for it does not see the columns in `spare`, or the first few of them.
    """
    cells = [[cell(name, value) for name, value in zip(columns, row, strict=True)] for row in rows]
    right = [_is_right(column) for column in zip_longest(*rows)] if rows else [False] * len(columns)
    headings = [heading(name) for name in columns]
    if stream.isatty():
        kept = _fitting(columns, [headings, *cells], spare, get_terminal_size().columns)
        headings, right = [headings[place] for place in kept], [right[place] for place in kept]
        cells = [[row[place] for place in kept] for row in cells]
    if _has_rich(stream):
        _draw_with_rich(headings, cells, right, stream)
    else:
        stream.write("".join(f"{line}\n" for line in _aligned([headings, *cells], right)))


def draw_fields(fields: Mapping[str, object], stream: TextIO) -> None:
    """Write one thing, a field on each line."""
    cells = [[heading(name), cell(name, value)] for name, value in fields.items()]
    if _has_rich(stream):
        _draw_with_rich(None, cells, [False, False], stream)
    else:
        stream.write("".join(f"{line}\n" for line in _aligned(cells, [False, False])))


def _fitting(columns: Sequence[str], cells: Sequence[Sequence[str]], spare: Sequence[str], width: int) -> list[int]:
    """Return the places of the columns that a line of `width` characters has room for."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    kept = list(range(len(columns)))
    for name in spare:
        if sum(widths[place] for place in kept) + len(_GAP) * (len(kept) - 1) <= width:
            break
        kept.remove(columns.index(name))
    return kept


def _is_right(values: Sequence[object]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(type(value) in (int, float) for value in present)


def _aligned(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        _GAP.join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]


def _has_rich(stream: TextIO) -> bool:
    return stream.isatty() and importlib.util.find_spec("rich") is not None


def _draw_with_rich(headings: list[str] | None, cells: list[list[str]], right: Sequence[bool], stream: TextIO) -> None:
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it

    Console(file=stream, soft_wrap=True).print(_rich_table(headings, cells, right))


def _rich_table(headings: list[str] | None, cells: list[list[str]], right: Sequence[bool]) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, show_header=headings is not None, pad_edge=False, header_style="bold")
    for text, is_right in zip(headings or ["", ""], right, strict=True):
        options: dict[str, Any] = {"justify": "right" if is_right else "left", "overflow": "fold"}
        table.add_column(text, **options, style="bold" if headings is None and not table.columns else None)
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    return table
