"""Batches: which of the payloads that a caller hands over one call will pack, and what they look like on disk.

Everything here happens before anything is written, and some of it may run foreign code.
"""

import operator
import struct
import time
from array import array
from itertools import accumulate, islice, pairwise, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from google_crc32c import extend

from latewood.kernel.pure_record import FRONT, HEADER, PADDING, PREFIX, SEAL, U64_MAX, as_bytes, as_view, as_words, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import ReadableBuffer

_CALL_BYTES_MAX: Final = 4 << 20
"""One call packs at most this much, so that it holds the lock, and a reader waits, only so long."""
_CHUNK_RECORDS: Final = 1024
_PIECE_BYTES: Final = 64 << 10
"""So much is joined at a time: what is larger, the allocator gets from the system and gives back each time."""
TIMESTAMP_MAX: Final = (1 << 63) - 1
_U64_FORMATS: Final = frozenset({"Q", "L", "@Q", "@L", "=Q", "<Q"})


def u64(number: int) -> int:
    """Return `number` if it is one that 64 bits hold."""
    number = operator.index(number)
    if not 0 <= number <= U64_MAX:
        raise OverflowError("not between 0 and 2**64 - 1")
    return number


def timestamp(number: int) -> int:
    """Return `number` if it is one that stays positive where timestamps are signed, in footers and in Arrow."""
    if not 0 <= number <= TIMESTAMP_MAX:
        raise OverflowError("a timestamp is above 2**63 - 1, or below 0")
    return number


def place(offset: int, end: int) -> int:
    """Return `offset` if it is one up to `end`."""
    offset = operator.index(offset)
    if not 0 <= offset <= end:
        raise ValueError("the offset or the limit is outside the buffer")
    return offset


def numbers(source: "int | ReadableBuffer", start: int, stop: int) -> "int | memoryview":
    """Return one number for all records, or one each from `start` to `stop`."""
    try:
        return u64(source)  # type: ignore[arg-type] # a buffer is no number, and that is how we tell
    except TypeError:
        view = memoryview(source)  # type: ignore[arg-type]
    if view.itemsize != 1 and view.format not in _U64_FORMATS:
        raise TypeError("a buffer of u64 is required")
    view = as_view(view)
    if view.nbytes // 8 < stop:
        raise ValueError("fewer numbers than payloads")
    return view[start * 8 : stop * 8].cast("Q") if stop > start else view[:0]


def timestamps(source: "int | ReadableBuffer | None", start: int, stop: int) -> "int | memoryview":
    """Return one timestamp for all records, now if there is no source, or one each, still to be checked."""
    if source is None:
        return time.time_ns()
    found = numbers(source, start, stop)
    return timestamp(found) if isinstance(found, int) else found


def _each(numbers: "int | memoryview") -> "Iterable[int]":
    return repeat(numbers) if isinstance(numbers, int) else numbers


def body_of(payload: "ReadableBuffer", ext_id: int, timestamp_ns: int | None) -> tuple[bytes, int, int, int]:
    """Return bytes 8.. of one record, and what it is made of, checked."""
    payload = as_bytes(payload)
    if timestamp_ns is None:
        timestamp_ns = time.time_ns()
    timestamp(timestamp_ns)
    try:
        return PREFIX.pack(timestamp_ns, ext_id) + payload, len(payload), timestamp_ns, ext_id
    except struct.error:
        return PREFIX.pack(u64(timestamp_ns), u64(ext_id)) + payload, len(payload), timestamp_ns, ext_id


class Room(NamedTuple):
    """How much one batch may take."""

    bytes_max: int
    records_max: int


class Batch:
    """The payloads that one call will pack, and their whole sizes."""

    __slots__ = ("_call_max", "_room", "bytes", "full", "lengths", "payloads", "sizes")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._call_max = min(room.bytes_max, _CALL_BYTES_MAX)
        self.bytes = 0
        """The sum of the sizes."""
        self.full = room.records_max == 0 or self._call_max < HEADER
        self.payloads: list[bytes] = []
        self.sizes: list[int] = []
        self.lengths: set[int] = set()
        """Every length that there is: mostly it is one, and then a few calls do for all payloads."""

    def take_chunks(self, source: "Iterator[ReadableBuffer]") -> None:
        """Take what fits, many at a time as long as they are bytes objects that all fit."""
        while not self.full and (chunk := list(islice(source, _CHUNK_RECORDS))):
            if not self._take_whole(chunk):
                self.take(chunk)

    def _take_whole(self, chunk: "list[ReadableBuffer]") -> bool:
        if set(map(type, chunk)) != {bytes} or len(self.payloads) + len(chunk) >= self._room.records_max:
            return False
        payloads = cast("list[bytes]", chunk)
        lengths = set(map(len, payloads))
        wholes = {length: size(length) for length in lengths}
        alike = len(lengths) == 1
        sizes = list(wholes.values()) * len(chunk) if alike else list(map(wholes.__getitem__, map(len, payloads)))
        packed = self.bytes + sum(sizes)
        if packed > self._call_max - HEADER:
            return False
        self.bytes = packed
        self.lengths |= lengths
        self.sizes += sizes
        self.payloads += payloads
        return True

    def take(self, source: "Iterable[ReadableBuffer]") -> None:
        """Take what fits, without a look at the one after it is full."""
        for item in () if self.full else source:
            payload = as_bytes(item)
            whole = size(len(payload))
            packed = self.bytes + whole
            self.full = len(payload) >= SEAL or packed > (self._call_max if self.payloads else self._room.bytes_max)
            if self.full:
                return
            self.bytes = packed
            self.lengths.add(len(payload))
            self.payloads.append(payload)
            self.sizes.append(whole)
            self.full = packed > self._call_max - HEADER or len(self.payloads) == self._room.records_max
            if self.full:
                return

    def places(self, ordinals: range) -> list[int]:
        """Return how many bytes there are before each of these records."""
        if len(self.lengths) == 1:
            return [ordinal * self.sizes[0] for ordinal in ordinals]
        ends = list(accumulate(self.sizes, initial=0))
        return [ends[ordinal] for ordinal in ordinals]


def slices(data: "ReadableBuffer", places: memoryview) -> "Iterator[bytes]":
    """Yield the payloads between neighbouring places of an Arrow binary array."""
    view = as_view(data)
    for start, stop in pairwise(places):
        if not 0 <= start <= stop <= view.nbytes:
            raise ValueError("the offsets do not lie inside the data, in order")
        yield view[start:stop].tobytes()


def _prefixes(
    lengths: list[int], timestamps_ns: "int | memoryview", ext_ids: "int | memoryview"
) -> "tuple[list[bytes], Iterable[int]]":
    """Return timestamp and ext_id of each record as stored, and its CRC up to there."""
    if isinstance(timestamps_ns, int) and isinstance(ext_ids, int):
        prefix = PREFIX.pack(timestamps_ns, ext_ids)
        seeds = {length: extend(length, prefix) for length in set(lengths)}
        return [prefix] * len(lengths), map(seeds.__getitem__, lengths)
    prefixes = list(map(PREFIX.pack, _each(timestamps_ns), _each(ext_ids)))
    return prefixes, map(extend, lengths, prefixes)


def _marks(sums: "Iterable[int]") -> "array[int]":
    """Return sums as marks, which are never 0."""
    marks = array("I", sums)
    # Four zeros in a row need not be one number.  Looking at each would take longer than all of the rest.
    if b"\0\0\0\0" in marks.tobytes():
        marks = array("I", [mark or SEAL for mark in marks])
    return marks


def _store_alike(target: memoryview, payloads: list[bytes], prefix: bytes) -> None:
    """Store records that differ in nothing but payload and mark, in a few calls for all of them."""
    length = len(payloads[0])
    whole, head, padding = size(length), FRONT.pack(length, 0) + prefix, PADDING[length & 7]
    between, records = padding + head, max(1, _PIECE_BYTES // size(length))
    for start in range(0, len(payloads), records):
        joined = between.join(payloads[start : start + records])
        begin = start * whole + HEADER
        end = begin + len(joined)
        target[begin - HEADER : begin] = head
        target[begin:end] = joined
        target[end : end + len(padding)] = padding
    marks = _marks(map(extend, repeat(extend(length, prefix)), payloads))
    as_words(target[: len(payloads) * whole])[1 :: whole // 4] = memoryview(marks)


def _store_each(
    target: memoryview, batch: Batch, timestamps_ns: "int | memoryview", ext_ids: "int | memoryview"
) -> None:
    lengths = list(map(len, batch.payloads))
    prefixes, seeds = _prefixes(lengths, timestamps_ns, ext_ids)
    marks = _marks(map(extend, seeds, batch.payloads))
    paddings = {length: PADDING[length & 7] for length in batch.lengths}
    parts = [b""] * (4 * len(lengths))
    parts[0::4] = map(FRONT.pack, lengths, marks)
    parts[1::4] = prefixes
    parts[2::4] = batch.payloads
    parts[3::4] = map(paddings.__getitem__, lengths)
    target[: batch.bytes] = b"".join(parts)


def store(target: memoryview, batch: Batch, timestamps_ns: "int | memoryview", ext_ids: "int | memoryview") -> None:
    """Store the records, as they go to disk, at the front of `target`."""
    if isinstance(timestamps_ns, int) and isinstance(ext_ids, int) and len(batch.lengths) == 1:
        _store_alike(target, batch.payloads, PREFIX.pack(timestamps_ns, ext_ids))
    else:
        _store_each(target, batch, timestamps_ns, ext_ids)
