"""Records of a database as commands print them: those of a log, and shard and key."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from latewood.cli.human import format_time
from latewood.cli.records import RecordLayout, shown, text_or_base64
from latewood.errors import LatewoodError
from latewood.limits import READ_RECORDS_MAX
from latewood.runtime import DatabaseRecord

T = TypeVar("T")
_COLUMNS = ("shard", "sequence", "timestamp_ns", "ext_id", "key", "key_base64", "payload", "payload_base64")


def database_layout(*, keyed: bool) -> RecordLayout:
    """Return how the records of a database are printed."""
    heading = f"{'shard':>5}  {'sequence':>12}  {'timestamp':<24}  {'ext id':>8}  "
    if not keyed:
        columns = tuple(name for name in _COLUMNS if not name.startswith("key"))
        return RecordLayout(columns, _plain_fields, f"{heading}payload", _plain_line)
    return RecordLayout(_COLUMNS, _keyed_fields, f"{heading}{'key':<16}  payload", _keyed_line)


def in_batches(records: Iterable[T]) -> Iterator[list[T]]:
    """Yield records in lists, so that each is printed soon, and many with one call; those before an error, too."""
    batch: list[T] = []
    try:
        for record in records:
            batch.append(record)
            if len(batch) >= READ_RECORDS_MAX:
                yield batch
                batch = []
    except LatewoodError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _plain_fields(record: DatabaseRecord) -> dict[str, object]:
    return _place(record) | text_or_base64("payload", record.payload)


def _keyed_fields(record: DatabaseRecord) -> dict[str, object]:
    key: dict[str, object] = {"key": None} if record.key is None else text_or_base64("key", record.key)
    return _place(record) | key | text_or_base64("payload", record.payload)


def _place(record: DatabaseRecord) -> dict[str, object]:
    return {
        "shard": record.shard,
        "sequence": record.sequence,
        "timestamp_ns": record.timestamp_ns,
        "ext_id": record.ext_id,
    }


def _plain_line(record: DatabaseRecord) -> str:
    return f"{_line_start(record)}{shown('payload', _plain_fields(record))}"


def _keyed_line(record: DatabaseRecord) -> str:
    fields = _keyed_fields(record)
    key = "-" if record.key is None else shown("key", fields)
    return f"{_line_start(record)}{key:<16}  {shown('payload', fields)}"


def _line_start(record: DatabaseRecord) -> str:
    time = format_time(record.timestamp_ns)
    return f"{record.shard:>5}  {record.sequence:>12}  {time}  {record.ext_id:>8}  "
