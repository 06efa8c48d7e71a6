"""Reading: from one record to the next, in one segment.

Nothing here writes, and nothing looks at or past the limit it is given.  Whoever hops (skip, find_timestamp,
index_records) trusts lengths that were verified before; whoever returns records or counts checks each CRC.
"""

import struct
from typing import TYPE_CHECKING, Final

from google_crc32c import extend

from latewood.kernel.pure_record import HEADER, PREFIX, SEAL, U64_MAX, Record, as_view, as_words, size
from latewood.kernel.pure_sums import Sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

MORE: Final = 0
EMPTY: Final = 1
SEALED: Final = 2
BAD: Final = 3
END: Final = 4
UNFIT: Final = 5

_ENTRY: Final = struct.Struct(
    "<"
    "Q"  # offset
    "Q"  # running maximum of the timestamps
)
_BLOCK: Final = bytes(1 << 16)
_UNPACK: Final = PREFIX.unpack_from
_new: Final = tuple.__new__  # a NamedTuple's own constructor takes twice the time


class Window:
    """Records of one buffer below a limit.  `offset` and `state` tell where and why `bodies` ended."""

    __slots__ = ("limit", "offset", "state", "view", "words")

    def __init__(self, buffer: "ReadableBuffer", offset: int, limit: int, alignment: int = 8) -> None:
        self.view = as_view(buffer)
        if not (0 <= offset <= self.view.nbytes and 0 <= limit <= self.view.nbytes):
            raise ValueError("the offset or the limit is outside the buffer")
        if offset % alignment:
            raise ValueError("the offset is not a multiple of 8")
        self.words = as_words(self.view)
        self.limit = limit
        self.offset = offset
        self.state = MORE

    def peek(self, offset: int) -> int:
        """Return the length of the payload at `offset` without a look at its CRC, or the complement of a state."""
        if offset + HEADER > self.limit:
            return ~END
        if not self.words[offset + 4 >> 2]:
            return ~EMPTY
        length = self.words[offset >> 2]
        if length == SEAL:
            return ~SEALED
        return length if offset + HEADER + (length + 7 & ~7) <= self.limit else ~BAD

    def bodies(self) -> "Iterator[bytes]":
        """Yield bytes 8..24+length of each record, verified."""
        view, words, peek = self.view, self.words, self.peek
        while (length := peek(self.offset)) >= 0:
            offset = self.offset
            mark = words[offset + 4 >> 2]
            body = view[offset + 8 : offset + HEADER + length].tobytes()
            if (extend(length, body) or SEAL) != mark:
                self.state = BAD
                return
            self.offset = offset + HEADER + (length + 7 & ~7)
            yield body
        self.state = ~length


def check_u64(*numbers: int) -> None:
    """Raise OverflowError as the native twin does."""
    if min(numbers) < 0 or max(numbers) > U64_MAX:
        raise OverflowError("not between 0 and 2**64 - 1")


def scan(
    buffer: "ReadableBuffer", offset: int, limit: int, sequence: int, max_records: int, max_bytes: int
) -> tuple[list[Record], int, int]:
    """Read records from `offset`, each verified: `(records, next_offset, state)`."""
    check_u64(sequence, max_records, max_bytes)
    window = Window(buffer, offset, limit)
    records: list[Record] = []
    if max_records == 0 or max_bytes == 0:
        return records, offset, MORE
    payload_bytes = 0
    for at, body in enumerate(window.bodies(), sequence):
        timestamp_ns, ext_id = _UNPACK(body)
        payload = body[16:]
        records.append(_new(Record, (at, timestamp_ns, ext_id, payload)))
        payload_bytes += len(payload)
        if len(records) == max_records or payload_bytes >= max_bytes:
            break
    return records, window.offset, window.state


def verify(buffer: "ReadableBuffer", offset: int, limit: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Check every CRC from `offset` until there is no record.

    Returns `(count, next_offset, state, first_ts, last_ts, max_ts, min_ext, max_ext)`.
    """
    window = Window(buffer, offset, limit)
    count = first = last = newest = greatest = 0
    least = U64_MAX
    for body in window.bodies():
        last, ext_id = _UNPACK(body)
        if count == 0:
            first = last
        count += 1
        newest = max(newest, last)
        least = min(least, ext_id)
        greatest = max(greatest, ext_id)
    return count, window.offset, window.state, first, last, newest, least, greatest


def skip(buffer: "ReadableBuffer", offset: int, limit: int, count: int) -> tuple[int, int]:
    """Hop over up to `count` records by their lengths: `(next_offset, hopped)`."""
    check_u64(count)
    window = Window(buffer, offset, limit)
    hopped = 0
    while hopped < count and (length := window.peek(offset)) >= 0:
        offset += size(length)
        hopped += 1
    return offset, hopped


def index_records(
    buffer: "ReadableBuffer", offset: int, limit: int, count: int, interval: int, max_timestamp_ns: int
) -> bytes:
    """Return entries (u64 offset, u64 running maximum of the timestamps) for every `interval`-th of `count` records."""
    check_u64(count, interval, max_timestamp_ns)
    if not interval:
        raise ValueError("the interval is at least 1")
    window = Window(buffer, offset, limit)
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
    check_u64(timestamp_ns)
    window = Window(buffer, offset, limit)
    hopped = 0
    while (length := window.peek(offset)) >= 0:
        if PREFIX.unpack_from(window.view, offset + 8)[0] >= timestamp_ns:
            return hopped, offset, MORE
        offset += size(length)
        hopped += 1
    return hopped, offset, ~length


def find_record(buffer: "ReadableBuffer", offset: int, limit: int) -> int:
    """Return the first offset from `offset` on, in steps of 8, with a whole valid record, or -1."""
    window = Window(buffer, offset, limit, alignment=1)
    sums = Sums(window.view, offset, limit)
    for start in range(offset + 7 & ~7, limit - HEADER + 1, len(_BLOCK)):
        stop = min(start + len(_BLOCK), limit)
        if window.view[start:stop].tobytes() == _BLOCK:
            continue
        for place in range(start, stop, 8):
            length = window.peek(place)
            if length < 0:
                continue
            if (sums.crc(length, place + 8, place + HEADER + length) or SEAL) == window.words[place + 4 >> 2]:
                return place
    return -1


def nonzero_end(buffer: "ReadableBuffer", offset: int, limit: int) -> int:
    """Return the offset just past the last byte of `[offset, limit)` that is not zero, or `offset`."""
    window = Window(buffer, offset, limit, alignment=1)
    end = limit
    while end > offset:
        start = max(offset, end - len(_BLOCK))
        block = window.view[start:end].tobytes()
        if block != _BLOCK and (used := len(block.rstrip(b"\0"))):
            return start + used
        end = start
    return offset
