"""Lines of input as records: plain lines, or JSON objects.  Pure, but for the time of records that have none."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from latewood.errors import UsageError
from latewood.limits import KEY_BYTES_MAX

if TYPE_CHECKING:
    from latewood.cli.json_record import JSONRecord


class Batch(NamedTuple):
    """Records that arrived together."""

    payloads: list[bytes]
    ext_ids: list[int]
    timestamps_ns: list[int] | None
    """None: the log takes the time."""
    numbers: list[int]
    """Of the line, among those that arrived together, that each record stood on; a failure's comes last."""
    failure: UsageError | None
    """Why the next line is not a record."""
    keys: list[bytes | None] | None = None
    """None: none has a key."""

    def cut(self, count: int) -> "Batch":
        """Return the first few records, without the failure behind them."""
        times, keys = self.timestamps_ns, self.keys
        return Batch(
            self.payloads[:count],
            self.ext_ids[:count],
            times and times[:count],
            self.numbers[:count],
            None,
            keys and keys[:count],
        )


def decode_lines(lines: list[bytes], ext_id: int) -> Batch:
    """Return a record for each line."""
    return Batch(lines, [ext_id] * len(lines), None, list(range(len(lines))), None)


def decode_keyed_lines(lines: list[bytes], ext_id: int, key_of: Callable[[bytes], tuple[bytes, bytes]]) -> Batch:
    """Return a record for each line, up to the first without a key; `key_of` returns key and payload of a line."""
    keys, payloads, failure = list[bytes | None](), list[bytes](), None
    for line in lines:
        try:
            key, payload = key_of(line)
        except UsageError as error:
            failure = error
            break
        keys.append(key)
        payloads.append(payload)
    numbers = list(range(len(payloads) + (failure is not None)))
    return Batch(payloads, [ext_id] * len(payloads), None, numbers, failure, keys)


def decode_json(lines: list[bytes], *, keyed: bool = False) -> Batch:
    """Return a record for each line that is not blank, up to the first that is not one, or has a key and must not."""
    from latewood.cli.json_record import decode_record  # noqa: PLC0415 - plain lines need no JSON

    found: list[JSONRecord] = []
    numbers, failure = list[int](), None
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        numbers.append(number)
        try:
            found.append(_allowed(decode_record(line), keyed=keyed))
        except UsageError as error:
            failure = error
            break
    keys = [record.key_data for record in found]
    return Batch(
        [record.data for record in found],
        [record.ext_id for record in found],
        _times(found),
        numbers,
        failure,
        keys if any(key is not None for key in keys) else None,
    )


def check_key(key: bytes) -> bytes:
    """Return a key that can be stored.

    Raises:
        UsageError: it is too long.
    """
    if len(key) > KEY_BYTES_MAX:
        message = f"a key of {len(key):,} bytes is longer than {KEY_BYTES_MAX:,}"
        raise UsageError(message)
    return key


def _allowed(record: "JSONRecord", *, keyed: bool) -> "JSONRecord":
    if record.key_data is None:
        return record
    check_key(record.key_data)
    if not keyed:
        raise UsageError("this record has a key, and nothing here has keys; append it to a database with keys")
    return record


def _times(records: "list[JSONRecord]") -> list[int] | None:
    if all(record.timestamp_ns is None for record in records):
        return None
    now_ns = time.time_ns()
    return [now_ns if record.timestamp_ns is None else record.timestamp_ns for record in records]
