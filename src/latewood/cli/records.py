"""Records as commands print them.

A payload that is UTF-8 is printed as text, under `payload`; any other is base64, under `payload_base64`.  `latewood
append --json` reads both back.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import click

from latewood.cli.human import format_time, printable
from latewood.cli.output import FORMATS, Format, csv_lines, default_format, write_bytes
from latewood.kernel import Record

F = TypeVar("F", bound=Callable[..., Any])
RecordFormat = Format | None
"""None is raw."""

_FieldsOf: TypeAlias = Callable[[Any], dict[str, object]]


class RecordLayout(NamedTuple):
    """How records of one kind are printed."""

    columns: tuple[str, ...]
    fields: _FieldsOf
    """A record as JSON has it."""
    heading: str
    line: Callable[[Any], str]
    """A record as a line of a table."""


def record_format(function: F) -> F:
    """Give a command `--format` and `--raw`; `chosen_format` makes one of the two."""
    format_option = click.option(
        "--format",
        "format_name",
        type=click.Choice(FORMATS),
        help="How to print records.  [default: table on a terminal, jsonl in a pipe]",
    )
    raw_option = click.option("--raw", is_flag=True, help="Print payloads alone, each with a newline after it.")
    return format_option(raw_option(function))


def chosen_format(format_name: Format | None, *, raw: bool) -> RecordFormat:
    """Return what `--format` and `--raw` ask for together.

    Raises:
        UsageError: they contradict each other.
    """
    if raw and format_name:
        message = "--raw and --format exclude each other"
        raise click.UsageError(message, click.get_current_context())
    return None if raw else format_name or default_format()


def print_records(batches: Iterable[Sequence[Any]], chosen: RecordFormat, layout: RecordLayout | None = None) -> None:
    """Print records batch by batch: each is seen before the next is asked for.  They are a log's, or of a `layout`."""
    for lines in encode(batches, chosen, layout or LOG_LAYOUT):
        write_bytes(lines)


def encode(batches: Iterable[Sequence[Any]], chosen: RecordFormat, layout: RecordLayout) -> Iterator[bytes]:
    """Yield what to write for each batch."""
    match chosen:
        case "jsonl":
            return map(_json_lines(layout.fields), batches)
        case "json":
            return _encode_array(batches, layout)
        case "csv":
            return _encode_csv(batches, layout)
        case "table":
            return _encode_table(batches, layout)
        case _:
            return (b"".join(record.payload + b"\n" for record in batch) for batch in batches)


def text_or_base64(name: str, data: bytes) -> dict[str, object]:
    """Return a field with the text in `data`, or one called `…_base64` if it is none."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def shown(name: str, fields: dict[str, object]) -> str:
    """Return what `text_or_base64` made, as a table shows it."""
    return printable(str(fields[name])) if name in fields else f"base64:{fields[f'{name}_base64']}"


def _json_lines(fields: _FieldsOf) -> Callable[[Sequence[Any]], bytes]:
    """Return what turns records into JSON Lines."""
    import msgspec  # noqa: PLC0415 - not every command prints JSON

    encoder = msgspec.json.Encoder()

    def lines(batch: Sequence[Any]) -> bytes:
        return encoder.encode_lines([fields(record) for record in batch])

    return lines


def _encode_array(batches: Iterable[Sequence[Any]], layout: RecordLayout) -> Iterator[bytes]:
    lines, opening = _json_lines(layout.fields), b"[\n"
    for batch in batches:
        if batch:
            yield opening + b",\n".join(lines(batch).splitlines())
            opening = b",\n"
    yield b"[]\n" if opening == b"[\n" else b"\n]\n"


def _encode_csv(batches: Iterable[Sequence[Any]], layout: RecordLayout) -> Iterator[bytes]:
    yield ",".join(layout.columns).encode() + b"\n"
    for batch in batches:
        rows = [[fields.get(name) for name in layout.columns] for fields in map(layout.fields, batch)]
        yield csv_lines(rows)


def _encode_table(batches: Iterable[Sequence[Any]], layout: RecordLayout) -> Iterator[bytes]:
    """Yield lines of fixed columns, because the widest cell is not known before the end."""
    yield f"{layout.heading}\n".encode()
    for batch in batches:
        yield "".join(f"{layout.line(record)}\n" for record in batch).encode()


def _fields(record: Record) -> dict[str, object]:
    sequence, timestamp_ns, ext_id, payload = record
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        base64 = b64encode(payload).decode()
        return {"sequence": sequence, "timestamp_ns": timestamp_ns, "ext_id": ext_id, "payload_base64": base64}
    return {"sequence": sequence, "timestamp_ns": timestamp_ns, "ext_id": ext_id, "payload": text}


def _table_line(record: Record) -> str:
    text = shown("payload", _fields(record))
    return f"{record.sequence:>12}  {format_time(record.timestamp_ns)}  {record.ext_id:>8}  {text}"


LOG_LAYOUT: Final = RecordLayout(
    ("sequence", "timestamp_ns", "ext_id", "payload", "payload_base64"),
    _fields,
    f"{'sequence':>12}  {'timestamp':<24}  {'ext id':>8}  payload",
    _table_line,
)
