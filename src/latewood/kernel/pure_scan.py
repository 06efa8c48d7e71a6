"""Reading: from one record to the next, in one segment.

Nothing here writes, and nothing looks at or past the limit it is given.  Whoever hops (skip, find_timestamp,
index_records) trusts lengths that were verified before; whoever returns records or counts checks each CRC.
"""

import struct
from typing import TYPE_CHECKING, Final

from latewood.kernel.pure_record import HEADER, PREFIX, SEAL, U64_MAX, Record, as_view, as_words, checksum, size

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MORE: Final = 0
EMPTY: Final = 1
SEALED: Final = 2
BAD: Final = 3
END: Final = 4

_COLUMN_BYTES_MAX: Final = 0x7FFFFFFF
_ENTRY: Final = struct.Struct(
    "<"
    "Q"  # offset
    "Q"  # running maximum of the timestamps
)
_BLOCK: Final = bytes(1 << 16)


class _Window:
    """Records of one buffer below a limit."""

    __slots__ = ("limit", "view", "words")

    def __init__(self, buffer: "ReadableBuffer", offset: int, limit: int, alignment: int = 8) -> None:
        self.view = as_view(buffer)
        if not (0 <= offset <= self.view.nbytes and 0 <= limit <= self.view.nbytes):
            raise ValueError("the offset or the limit is outside the buffer")
        if offset % alignment:
            raise ValueError("the offset is not a multiple of 8")
        self.words = as_words(self.view)
        self.limit = limit

    def peek(self, offset: int) -> int:
        """Return the length of the payload at `offset` without a look at its CRC, or the complement of a state."""
        if offset + HEADER > self.limit:
            return ~END
        if not self.words[offset + 4 >> 2]:
            return ~EMPTY
        length = self.words[offset >> 2]
        if length == SEAL:
            return ~SEALED
        return length if offset + size(length) <= self.limit else ~BAD

    def body(self, offset: int, length: int) -> bytes:
        """Return bytes 8..24+length of the record at `offset`, or none of them if its CRC is wrong."""
        mark = self.words[offset + 4 >> 2]
        body = self.view[offset + 8 : offset + HEADER + length].tobytes()
        return body if checksum(length, body) == mark else b""


def _check_u64(*numbers: int) -> None:
    if min(numbers) < 0 or max(numbers) > U64_MAX:
        raise OverflowError("not between 0 and 2**64 - 1")


def scan(  # noqa: PLR0913, PLR0917 - where, how far, and how much
    buffer: "ReadableBuffer", offset: int, limit: int, sequence: int, max_records: int, max_bytes: int
) -> tuple[list[Record], int, int]:
    """Read records from `offset`, each verified: `(records, next_offset, state)`."""
    _check_u64(sequence, max_records, max_bytes)
    window = _Window(buffer, offset, limit)
    records: list[Record] = []
    payload_bytes = 0
    while len(records) < max_records and payload_bytes < max_bytes:
        length = window.peek(offset)
        if length < 0:
            return records, offset, ~length
        body = window.body(offset, length)
        if not body:
            return records, offset, BAD
        timestamp_ns, ext_id = PREFIX.unpack_from(body)
        records.append(Record(sequence + len(records), timestamp_ns, ext_id, body[16:]))
        payload_bytes += length
        offset += size(length)
    return records, offset, MORE


def columns(  # noqa: PLR0913, PLR0917 - the same arguments as scan
    buffer: "ReadableBuffer", offset: int, limit: int, sequence: int, max_records: int, max_bytes: int
) -> tuple[int, int, int, bytes, bytes, bytes, bytes]:
    """Read records as columns, each verified.

    Returns `(count, next_offset, state, timestamps, ext_ids, offsets, payloads)`.
    """
    _check_u64(sequence, max_records, max_bytes)
    window = _Window(buffer, offset, limit)
    prefixes: list[bytes] = []
    payloads: list[bytes] = []
    ends = [0]
    state = MORE
    while len(payloads) < max_records and ends[-1] < max_bytes:
        length = window.peek(offset)
        if length < 0:
            state = ~length
            break
        if ends[-1] + length > _COLUMN_BYTES_MAX:
            if payloads:
                break
            raise OverflowError("the payload is too large for a column")
        body = window.body(offset, length)
        if not body:
            state = BAD
            break
        prefixes.append(body[:16])
        payloads.append(body[16:])
        ends.append(ends[-1] + length)
        offset += size(length)
    pairs = memoryview(b"".join(prefixes)).cast("Q") if prefixes else memoryview(b"")
    return (
        len(payloads),
        offset,
        state,
        pairs[::2].tobytes(),
        pairs[1::2].tobytes(),
        struct.pack(f"<{len(ends)}i", *ends),
        b"".join(payloads),
    )


def verify(buffer: "ReadableBuffer", offset: int, limit: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Check every CRC from `offset` until there is no record.

    Returns `(count, next_offset, state, first_ts, last_ts, max_ts, min_ext, max_ext)`.
    """
    window = _Window(buffer, offset, limit)
    count = first = last = newest = greatest = 0
    least = U64_MAX
    while (length := window.peek(offset)) >= 0:
        body = window.body(offset, length)
        if not body:
            length = ~BAD
            break
        last, ext_id = PREFIX.unpack_from(body)
        first = last if count == 0 else first
        newest = max(newest, last)
        least = min(least, ext_id)
        greatest = max(greatest, ext_id)
        count += 1
        offset += size(length)
    return count, offset, ~length, first, last, newest, least, greatest


def skip(buffer: "ReadableBuffer", offset: int, limit: int, count: int) -> tuple[int, int]:
    """Hop over up to `count` records by their lengths: `(next_offset, hopped)`."""
    _check_u64(count)
    window = _Window(buffer, offset, limit)
    hopped = 0
    while hopped < count and (length := window.peek(offset)) >= 0:
        offset += size(length)
        hopped += 1
    return offset, hopped


def index_records(  # noqa: PLR0913, PLR0917 - a range, a rhythm and a start
    buffer: "ReadableBuffer", offset: int, limit: int, count: int, interval: int, max_timestamp_ns: int
) -> bytes:
    """Return entries (u64 offset, u64 running maximum of the timestamps) for every `interval`-th of `count` records."""
    _check_u64(count, interval, max_timestamp_ns)
    if not interval:
        raise ValueError("the interval is at least 1")
    window = _Window(buffer, offset, limit)
    entries: list[bytes] = []
    ordinal = 0
    while ordinal < count and (length := window.peek(offset)) >= 0:
        max_timestamp_ns = max(max_timestamp_ns, PREFIX.unpack_from(window.view, offset + 8)[0])
        if ordinal % interval == 0:
            entries.append(_ENTRY.pack(offset, max_timestamp_ns))
        offset += size(length)
        ordinal += 1
    return b"".join(entries)


def find_timestamp(buffer: "ReadableBuffer", offset: int, limit: int, timestamp_ns: int) -> tuple[int, int, int]:
    """Hop to the first record whose timestamp is at least `timestamp_ns`: `(hopped, next_offset, state)`."""
    _check_u64(timestamp_ns)
    window = _Window(buffer, offset, limit)
    hopped = 0
    while (length := window.peek(offset)) >= 0:
        if PREFIX.unpack_from(window.view, offset + 8)[0] >= timestamp_ns:
            return hopped, offset, MORE
        offset += size(length)
        hopped += 1
    return hopped, offset, ~length


def find_record(buffer: "ReadableBuffer", offset: int, limit: int) -> int:
    """Return the first offset from `offset` on, in steps of 8, with a whole valid record, or -1."""
    window = _Window(buffer, offset, limit, alignment=1)
    offset = offset + 7 & ~7
    while offset + HEADER <= limit:
        block = window.view[offset : min(offset + len(_BLOCK), limit)].tobytes()
        if block == _BLOCK:
            offset += len(_BLOCK)
            continue
        for place in range(offset, offset + len(block), 8):
            length = window.peek(place)
            if length >= 0 and window.body(place, length):
                return place
        offset += len(_BLOCK)
    return -1


def nonzero_end(buffer: "ReadableBuffer", offset: int, limit: int) -> int:
    """Return the offset just past the last byte of `[offset, limit)` that is not zero, or `offset`."""
    window = _Window(buffer, offset, limit, alignment=1)
    end = limit
    while end > offset:
        start = max(offset, end - len(_BLOCK))
        block = window.view[start:end].tobytes()
        if block != _BLOCK and (used := len(block.rstrip(b"\0"))):
            return start + used
        end = start
    return offset
