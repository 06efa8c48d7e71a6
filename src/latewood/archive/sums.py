"""Checksums of records, column by column, so that whatever was read can be proved.

| column    | bytes                                                                                         |
| --------- | --------------------------------------------------------------------------------------------- |
| timestamp | nanoseconds since 1970 of each record, as u64                                                 |
| ext_id    | of each record, as u64                                                                        |
| key       | CRC of the lengths (i32, -1: no key), then CRC of all keys joined; the CRC of these two (u32) |
| payload   | the same of the payloads                                                                      |

Little-endian, CRC-32C.  The checksum of a range is the CRC of first sequence and count (u64), then of the sums of
timestamp, ext_id, key (0 without keys) and payload (u32).  It does not depend on how the records come in batches.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from latewood.archive.chunk import ColumnSums
from latewood.errors import UsageError
from latewood.kernel import crc32c

_TWO: Final = struct.Struct("<II")
_RANGE: Final = struct.Struct(
    "<"
    "Q"  # first sequence
    "Q"  # count
    "I"  # timestamp
    "I"  # ext_id
    "I"  # key
    "I"  # payload
)


class ContentSum(NamedTuple):
    """Which records, and their checksum."""

    sequence_min: int
    row_count: int
    checksum: int


class _Binary:
    """The running sum of a column of byte strings."""

    def __init__(self) -> None:
        self._lengths = self._bytes = 0

    def add(self, array: Any) -> int:
        """Add values; return how many bytes they have together."""
        lengths, data = _lengths_and_data(array)
        self._lengths = crc32c(lengths, self._lengths)
        self._bytes = crc32c(data, self._bytes)
        return len(data)

    def value(self) -> int:
        return crc32c(_TWO.pack(self._lengths, self._bytes))


class RunningSums:
    """The sums of the batches so far, which may have any of the columns."""

    def __init__(self) -> None:
        self._timestamp = self._ext_id = 0
        self._key, self._payload = _Binary(), _Binary()
        self._keyed = False
        self.payload_bytes = 0

    def add(self, batch: Any) -> None:
        """Take in one batch of records."""
        names = batch.schema.names
        if "timestamp" in names:
            self._timestamp = crc32c(_fixed(batch.column("timestamp")), self._timestamp)
        if "ext_id" in names:
            self._ext_id = crc32c(_fixed(batch.column("ext_id")), self._ext_id)
        if "key" in names:
            self._keyed = True
            self._key.add(batch.column("key"))
        if "payload" in names:
            self.payload_bytes += self._payload.add(batch.column("payload"))

    def columns(self) -> ColumnSums:
        """Return the sums of the columns."""
        return ColumnSums(
            timestamp=self._timestamp,
            ext_id=self._ext_id,
            payload=self._payload.value(),
            key=self._key.value() if self._keyed else None,
        )

    def over(self, sequence_min: int, row_count: int) -> int:
        """Return the checksum of all the records, given which they are."""
        sums = self.columns()
        parts = sums.timestamp, sums.ext_id, sums.key or 0, sums.payload
        return crc32c(_RANGE.pack(sequence_min, row_count, *parts))


def checksum_of(batches: Iterable[Any]) -> ContentSum | None:
    """Return the checksum of records that come in batches, or None if there are none.

    It equals `ChunkMeta.checksum` of a chunk with the same records, so a scrub compares log and chunk by it.

    Raises:
        UsageError: their sequences are not contiguous.
    """
    sums, first, stop = RunningSums(), -1, -1
    for batch in batches:
        if not batch.num_rows:
            continue
        first = batch.column("sequence")[0].as_py() if first < 0 else first
        stop = check_contiguous(batch, first if stop < 0 else stop)
        sums.add(batch)
    return ContentSum(first, stop - first, sums.over(first, stop - first)) if stop >= 0 else None


def check_contiguous(batch: Any, sequence: int) -> int:
    """Return the sequence after a batch that begins with `sequence` and goes on without a gap.

    Raises:
        UsageError: it does not.
    """
    stop: int = sequence + batch.num_rows
    if sequence < 0 or not batch.column("sequence").equals(pa.arange(sequence, stop)):
        raise UsageError(f"the records after {sequence - 1} do not go on with {sequence} without a gap")
    return stop


def _fixed(array: Any) -> memoryview:
    """Return the bytes of an array of 64-bit values without nulls."""
    data = memoryview(array.buffers()[1]) if len(array) else memoryview(b"")
    return data[array.offset * 8 : (array.offset + len(array)) * 8]


def _lengths_and_data(array: Any) -> tuple[memoryview, memoryview]:
    count, start = len(array), array.offset
    if not count:
        return memoryview(b""), memoryview(b"")
    valid = None
    if array.null_count:
        valid, array = array.is_valid(), pc.fill_null(array, b"")
        start = array.offset
    _, offsets, data = array.buffers()
    begins = pa.Array.from_buffers(pa.int32(), count, [None, offsets], offset=start)
    ends = pa.Array.from_buffers(pa.int32(), count, [None, offsets], offset=start + 1)
    lengths = pc.subtract(ends, begins)
    if valid is not None:
        lengths = pc.if_else(valid, lengths, pa.scalar(-1, pa.int32()))
    joined = memoryview(data if data is not None else b"")[begins[0].as_py() : ends[count - 1].as_py()]
    return memoryview(lengths.buffers()[1])[: 4 * count], joined
