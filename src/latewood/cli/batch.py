"""Lines of input as records: plain lines, or JSON objects.  Pure, but for the time of records that have none."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from latewood.errors import UsageError

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

    def rows(self) -> Iterator[tuple[bytes, int, int | None, int]]:
        """Yield payload, ext_id, time and line of each record."""
        times: Sequence[int | None] = self.timestamps_ns or [None] * len(self.payloads)
        return zip(self.payloads, self.ext_ids, times, self.numbers, strict=False)


def decode_lines(lines: list[bytes], ext_id: int) -> Batch:
    """Return a record for each line."""
    return Batch(lines, [ext_id] * len(lines), None, list(range(len(lines))), None)


def decode_json(lines: list[bytes]) -> Batch:
    """Return a record for each line that is not blank, up to the first that is not one."""
    from latewood.cli.json_record import decode_record  # noqa: PLC0415 - plain lines need no JSON

    found: list[JSONRecord] = []
    numbers, failure = list[int](), None
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        numbers.append(number)
        try:
            found.append(decode_record(line))
        except UsageError as error:
            failure = error
            break
    return Batch(
        [record.data for record in found], [record.ext_id for record in found], _times(found), numbers, failure
    )


def _times(records: "list[JSONRecord]") -> list[int] | None:
    if all(record.timestamp_ns is None for record in records):
        return None
    now_ns = time.time_ns()
    return [now_ns if record.timestamp_ns is None else record.timestamp_ns for record in records]
