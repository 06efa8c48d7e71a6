"""What the tests of the kernel share: appenders on fresh memory, and segments full of known records."""

from types import ModuleType
from typing import Any, Final, NamedTuple

U64_MAX: Final = 2**64 - 1
I64_MAX: Final = 2**63 - 1
EMPTY_STATE: Final = (0, 0, 0, U64_MAX, 0)
"""First, last and greatest timestamp, least and greatest ext_id of a segment without records."""


class Entry(NamedTuple):
    """A record to be: what it carries besides its sequence."""

    timestamp_ns: int
    ext_id: int
    payload: bytes


SAMPLE: Final = (
    Entry(1_000, 7, b""),
    Entry(1_002, 8, b"hello"),
    Entry(1_001, 9, b"12345678"),
    Entry(1_003, U64_MAX, b"123456789"),
    Entry(I64_MAX, 0, bytes(range(100))),
)


def appender(kernel: ModuleType, buffer: Any, *, offset: int = 0, interval: int = 2, wake: Any = None) -> Any:
    """Return an appender that may fill the whole of `buffer`."""
    made = kernel.Appender(buffer, wake, offset, 100, 0, interval, *EMPTY_STATE)
    made.allow(len(buffer), len(buffer), 2**60)
    return made


def record_bytes(length: int) -> int:
    """Return the whole size of a record."""
    return 24 + (length + 7) // 8 * 8


def packed(kernel: ModuleType, entries: tuple[Entry, ...] = SAMPLE, *, spare: int = 64) -> bytearray:
    """Return a buffer that holds `entries` from its start, and `spare` zeros after them."""
    buffer = bytearray(sum(record_bytes(len(entry.payload)) for entry in entries) + spare)
    writer = appender(kernel, buffer)
    for entry in entries:
        assert writer.append(entry.payload, entry.ext_id, entry.timestamp_ns) >= 0
    return buffer


def scan_all(kernel: ModuleType, buffer: Any, offset: int = 0) -> tuple[list[Entry], int, int]:
    """Return what the records of a buffer carry, where they end, and why."""
    records, end, state = kernel.scan(buffer, offset, len(buffer), 100, 2**60, 2**60)
    assert [record.sequence for record in records] == list(range(100, 100 + len(records)))
    return [Entry(*record[1:]) for record in records], end, state
