"""Records as commands print them.

A payload that is UTF-8 is printed as text, under `payload`; any other is base64, under `payload_base64`.  `latewood
append --json` reads both back.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from latewood.cli.human import format_time, printable
from latewood.cli.output import FORMATS, Format, csv_lines, default_format, write_bytes
from latewood.kernel import Record

F = TypeVar("F", bound=Callable[..., Any])
RecordFormat = Format | None
"""None is raw."""

COLUMNS: Final = ("sequence", "timestamp_ns", "ext_id", "payload", "payload_base64")


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


def print_records(batches: Iterable[Sequence[Record]], chosen: RecordFormat) -> None:
    """Print records batch by batch: each is seen before the next is asked for."""
    for lines in encode(batches, chosen):
        write_bytes(lines)


def encode(batches: Iterable[Sequence[Record]], chosen: RecordFormat) -> Iterator[bytes]:
    """Yield what to write for each batch."""
    match chosen:
        case "jsonl":
            return _encode_lines(batches)
        case "json":
            return _encode_array(batches)
        case "csv":
            return _encode_csv(batches)
        case "table":
            return _encode_table(batches)
        case _:
            return (b"".join(record.payload + b"\n" for record in batch) for batch in batches)


def _json_lines() -> Callable[[Sequence[Record]], bytes]:
    """Return what turns records into JSON Lines."""
    import msgspec  # noqa: PLC0415 - not every command prints JSON

    encoder = msgspec.json.Encoder()

    def lines(batch: Sequence[Record]) -> bytes:
        return encoder.encode_lines([_fields(record) for record in batch])

    return lines


def _fields(record: Record) -> dict[str, object]:
    sequence, timestamp_ns, ext_id, payload = record
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        base64 = b64encode(payload).decode()
        return {"sequence": sequence, "timestamp_ns": timestamp_ns, "ext_id": ext_id, "payload_base64": base64}
    return {"sequence": sequence, "timestamp_ns": timestamp_ns, "ext_id": ext_id, "payload": text}


def _encode_lines(batches: Iterable[Sequence[Record]]) -> Iterator[bytes]:
    return map(_json_lines(), batches)


def _encode_array(batches: Iterable[Sequence[Record]]) -> Iterator[bytes]:
    lines, opening = _json_lines(), b"[\n"
    for batch in batches:
        if batch:
            yield opening + b",\n".join(lines(batch).splitlines())
            opening = b",\n"
    yield b"[]\n" if opening == b"[\n" else b"\n]\n"


def _encode_csv(batches: Iterable[Sequence[Record]]) -> Iterator[bytes]:
    yield ",".join(COLUMNS).encode() + b"\n"
    for batch in batches:
        rows = [[fields.get(name) for name in COLUMNS] for fields in map(_fields, batch)]
        yield csv_lines(rows)


def _encode_table(batches: Iterable[Sequence[Record]]) -> Iterator[bytes]:
    """Yield lines of fixed columns, because the widest cell is not known before the end."""
    yield f"{'sequence':>12}  {'timestamp':<24}  {'ext id':>8}  payload\n".encode()
    for batch in batches:
        yield "".join(_table_line(record) for record in batch).encode()


def _table_line(record: Record) -> str:
    fields = _fields(record)
    text = printable(str(fields["payload"])) if "payload" in fields else f"base64:{fields['payload_base64']}"
    return f"{record.sequence:>12}  {format_time(record.timestamp_ns)}  {record.ext_id:>8}  {text}\n"
