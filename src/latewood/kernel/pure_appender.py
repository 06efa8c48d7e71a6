"""The Appender: packs records into one mapped segment.

Its own lock makes it safe to share between threads.  Anything that may run foreign code (looking at payloads) happens
before the lock is taken.
"""

import operator
import struct
import threading
import time
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from google_crc32c import extend

from latewood.kernel.pure_futex import ring, wake_words
from latewood.kernel.pure_record import (
    HEAD,
    HEADER,
    PADDING,
    PREFIX,
    SEAL,
    U64_MAX,
    as_bytes,
    as_view,
    as_words,
    as_writable,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import ReadableBuffer, WriteableBuffer

_CALL_BYTES_MAX: Final = 4 << 20
"""One call packs at most this much, so that it holds the lock, and a reader waits, only so long."""
_SEQUENCE_MAX: Final = (1 << 63) - 1
_PLACE_MAX: Final = (1 << 63) - 1
_U64_FORMATS: Final = frozenset({"Q", "L", "@Q", "@L", "=Q", "<Q"})
_ENTRY: Final = struct.Struct(
    "<"
    "Q"  # offset
    "Q"  # running maximum of the timestamps
)


def _u64(number: int) -> int:
    number = operator.index(number)
    if not 0 <= number <= U64_MAX:
        raise OverflowError("not between 0 and 2**64 - 1")
    return number


def _place(offset: int, end: int) -> int:
    offset = operator.index(offset)
    if not 0 <= offset <= end:
        raise ValueError("the offset or the limit is outside the buffer")
    return offset


def _numbers(source: "int | ReadableBuffer", start: int, stop: int) -> "int | memoryview":
    """Return one number for all records, or one each from `start` to `stop`."""
    try:
        return _u64(source)  # type: ignore[arg-type] # a buffer is no number, and that is how we tell
    except TypeError:
        view = memoryview(source)  # type: ignore[arg-type]
    if view.itemsize != 1 and view.format not in _U64_FORMATS:
        raise TypeError("a buffer of u64 is required")
    view = as_view(view)
    if view.nbytes // 8 < stop:
        raise ValueError("fewer numbers than payloads")
    return view[start * 8 : stop * 8].cast("Q") if stop > start else view[:0]


def _each(numbers: "int | memoryview") -> "Iterable[int]":
    return repeat(numbers) if isinstance(numbers, int) else numbers


def _extremes(numbers: "int | memoryview") -> tuple[int, int]:
    return (numbers, numbers) if isinstance(numbers, int) else (min(numbers), max(numbers))


class _Room(NamedTuple):
    """How much one batch may take."""

    bytes_max: int
    records_max: int

    def take(self, payloads: "Iterable[bytes]") -> tuple[list[bytes], list[int]]:
        """Return the payloads that fit and their whole sizes, without a look at the one after the room is full."""
        taken: list[bytes] = []
        sizes: list[int] = []
        packed = 0
        call_max = min(self.bytes_max, _CALL_BYTES_MAX)
        full = call_max - HEADER
        if self.records_max == 0 or full < 0:
            return taken, sizes
        for payload in payloads:
            length = len(payload)
            whole = HEADER + (length + 7 & ~7)
            packed += whole
            if length >= SEAL or (packed > call_max and (taken or packed > self.bytes_max)):
                break
            taken.append(payload)
            sizes.append(whole)
            if packed > full or len(taken) == self.records_max:
                break
        return taken, sizes


def _slices(data: "ReadableBuffer", places: memoryview) -> "Iterator[bytes]":
    """Yield the payloads between neighbouring places of an Arrow binary array."""
    view = as_view(data)
    for start, stop in pairwise(places):
        if not 0 <= start <= stop <= view.nbytes:
            raise ValueError("the offsets do not lie inside the data, in order")
        yield view[start:stop].tobytes()


def _seeds(lengths: list[int], timestamps_ns: "int | memoryview", ext_ids: "int | memoryview") -> "Iterable[int]":
    """Return the CRC of each record up to its payload."""
    if isinstance(timestamps_ns, int) and isinstance(ext_ids, int):
        prefix = PREFIX.pack(timestamps_ns, ext_ids)
        seeds = {length: extend(length, prefix) for length in set(lengths)}
        return map(seeds.__getitem__, lengths)
    return map(extend, lengths, map(PREFIX.pack, _each(timestamps_ns), _each(ext_ids)))


def _encode(payloads: list[bytes], timestamps_ns: "int | memoryview", ext_ids: "int | memoryview") -> tuple[bytes, int]:
    """Return the records as they go to disk, but for the first one's mark, and that mark."""
    lengths = list(map(len, payloads))
    marks = list(map(extend, _seeds(lengths, timestamps_ns, ext_ids), payloads))
    if 0 in marks:
        marks = [mark or SEAL for mark in marks]
    first, marks[0] = marks[0], 0
    paddings = {length: PADDING[length & 7] for length in set(lengths)}
    parts = [b""] * (3 * len(payloads))
    parts[0::3] = map(HEAD.pack, lengths, marks, _each(timestamps_ns), _each(ext_ids))
    parts[1::3] = payloads
    parts[2::3] = map(paddings.__getitem__, lengths)
    return b"".join(parts), first


class Appender:
    """Packs records into one mapped segment; every thread may call it, one at a time."""

    __slots__ = (
        "_count",
        "_first_timestamp_ns",
        "_hard",
        "_index",
        "_interval",
        "_last_timestamp_ns",
        "_limit",
        "_lock",
        "_max_ext_id",
        "_max_timestamp_ns",
        "_min_ext_id",
        "_offset",
        "_records",
        "_sequence",
        "_view",
        "_wake",
        "_words",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - they are the state of a segment
        self,
        buffer: "WriteableBuffer",
        wake: "WriteableBuffer | None",
        offset: int,
        sequence: int,
        count: int,
        interval: int,
        first_timestamp_ns: int,
        last_timestamp_ns: int,
        max_timestamp_ns: int,
        min_ext_id: int,
        max_ext_id: int,
    ) -> None:
        view = as_writable(buffer)
        self._offset = _place(offset, view.nbytes)
        if offset % 8 or interval == 0:
            raise ValueError("an offset that is not a multiple of 8, or no interval")
        if sequence > _SEQUENCE_MAX:
            raise OverflowError("the sequence is above 2**63 - 1")
        self._sequence, self._count, self._interval = _u64(sequence), _u64(count), _u64(interval)
        self._first_timestamp_ns = _u64(first_timestamp_ns)
        self._last_timestamp_ns = _u64(last_timestamp_ns)
        self._max_timestamp_ns = _u64(max_timestamp_ns)
        self._min_ext_id, self._max_ext_id = _u64(min_ext_id), _u64(max_ext_id)
        self._wake = None if wake is None else wake_words(wake)
        self._view = view
        self._words = as_words(view)
        self._index: list[bytes] = []
        self._lock = threading.Lock()
        self._limit = self._hard = self._records = 0

    def allow(self, limit: int, hard: int, records: int) -> None:
        """Let single appends end at `limit`, batches at `hard`, and the segment hold `records`."""
        with self._lock:
            end = self._view.nbytes
            limit, hard, records = _place(limit, end), _place(hard, end), _u64(records)
            self._limit, self._hard, self._records = limit, hard, records

    def append(self, payload: "ReadableBuffer", ext_id: int = 0, timestamp_ns: int | None = None) -> int:
        """Append one record and return its sequence, or -1 if it is not allowed."""
        payload = as_bytes(payload)
        timestamp_ns = time.time_ns() if timestamp_ns is None else _u64(timestamp_ns)
        ext_id = _u64(ext_id)
        length = len(payload)
        whole = size(length)
        with self._lock:
            sequence = self._sequence
            if length >= SEAL or self._count >= self._records or self._offset + whole > self._limit:
                return -1
            self._publish(*_encode([payload], timestamp_ns, ext_id))
            self._add([whole], timestamp_ns, ext_id)
        return sequence

    def append_many(
        self,
        payloads: "list[ReadableBuffer] | tuple[ReadableBuffer, ...]",
        start: int,
        ext_ids: "int | ReadableBuffer",
        timestamps_ns: "int | ReadableBuffer | None",
    ) -> int:
        """Append what fits of `payloads[start:]` as one, and return how many that was."""
        if not isinstance(payloads, list | tuple):
            raise TypeError("a list or a tuple of payloads is required")
        stop = len(payloads)
        start = min(_place(start, _PLACE_MAX), stop)
        times = time.time_ns() if timestamps_ns is None else _numbers(timestamps_ns, start, stop)
        source = map(as_bytes, islice(payloads, start, stop))
        return self._append_batch(source, _numbers(ext_ids, start, stop), times)

    def append_columns(  # noqa: PLR0913, PLR0917 - an Arrow array is several buffers
        self,
        data: "ReadableBuffer | None",
        offsets: "ReadableBuffer",
        wide: bool,  # noqa: FBT001 - it comes with the offsets
        start: int,
        stop: int,
        ext_ids: "int | ReadableBuffer",
        timestamps_ns: "int | ReadableBuffer | None",
    ) -> int:
        """Append what fits of an Arrow binary array's payloads `start..stop` as one, and return how many that was."""
        ends = as_view(offsets)
        width = 8 if wide else 4
        stop = _place(stop, _PLACE_MAX)
        if ends.nbytes // width <= stop:
            raise ValueError("fewer offsets than payloads")
        start = min(_place(start, _PLACE_MAX), stop)
        places = ends[start * width : (stop + 1) * width].cast("q" if wide else "i")
        times = time.time_ns() if timestamps_ns is None else _numbers(timestamps_ns, start, stop)
        source = _slices(b"" if data is None else data, places)
        return self._append_batch(source, _numbers(ext_ids, start, stop), times)

    def _room(self) -> _Room:
        return _Room(max(self._hard - self._offset, 0), max(self._records - self._count, 0))

    def _append_batch(
        self, source: "Iterable[bytes]", ext_ids: "int | memoryview", timestamps_ns: "int | memoryview"
    ) -> int:
        payloads, _ = self._room().take(source)
        with self._lock:
            # Somebody may have appended since; then less fits.
            payloads, sizes = self._room().take(payloads)
            if payloads:
                times = timestamps_ns if isinstance(timestamps_ns, int) else timestamps_ns[: len(payloads)]
                ids = ext_ids if isinstance(ext_ids, int) else ext_ids[: len(payloads)]
                self._publish(*_encode(payloads, times, ids))
                self._add(sizes, times, ids)
        return len(payloads)

    def _publish(self, blob: bytes, mark: int) -> None:
        """Store everything but the first mark, then that mark, then wake who waits."""
        offset = self._offset
        self._view[offset : offset + len(blob)] = blob
        self._words[offset + 4 >> 2] = mark
        if self._wake is not None:
            ring(self._wake)

    def _add(self, sizes: list[int], timestamps_ns: "int | memoryview", ext_ids: "int | memoryview") -> None:
        """Account for records just published."""
        self._add_entries(sizes, timestamps_ns)
        if isinstance(timestamps_ns, int):
            first = last = newest = timestamps_ns
        else:
            first, last, newest = timestamps_ns[0], timestamps_ns[-1], max(timestamps_ns)
        if self._count == 0:
            self._first_timestamp_ns = first
        self._last_timestamp_ns = last
        self._max_timestamp_ns = max(self._max_timestamp_ns, newest)
        least, greatest = _extremes(ext_ids)
        self._min_ext_id = min(self._min_ext_id, least)
        self._max_ext_id = max(self._max_ext_id, greatest)
        self._offset += sum(sizes)
        self._sequence += len(sizes)
        self._count += len(sizes)

    def _add_entries(self, sizes: list[int], timestamps_ns: "int | memoryview") -> None:
        offset, newest, done = self._offset, self._max_timestamp_ns, 0
        for ordinal in range(-self._count % self._interval, len(sizes), self._interval):
            offset += sum(sizes[done:ordinal])
            if isinstance(timestamps_ns, int):
                newest = max(newest, timestamps_ns)
            else:
                newest = max(newest, *timestamps_ns[done : ordinal + 1])
            done = ordinal
            self._index.append(_ENTRY.pack(offset, newest))

    def close(self) -> None:
        """Allow nothing from now on."""
        with self._lock:
            self._limit = self._hard = self._records = 0

    def release(self) -> None:
        """Close, and let go of the buffers."""
        with self._lock:
            self._limit = self._hard = self._records = 0
            self._view = self._words = memoryview(b"")
            self._wake = None

    def state(self) -> tuple[int, int, int, int, int, int, int, int]:
        """Return one consistent look at all eight numbers."""
        with self._lock:
            return (
                self._offset,
                self._sequence,
                self._count,
                self._first_timestamp_ns,
                self._last_timestamp_ns,
                self._max_timestamp_ns,
                self._min_ext_id,
                self._max_ext_id,
            )

    def index(self) -> bytes:
        """Return entries (u64 offset, u64 running maximum of the timestamps) of the records appended here."""
        with self._lock:
            return b"".join(self._index)

    @property
    def offset(self) -> int:
        """Return where the next record goes."""
        return self._offset

    @property
    def sequence(self) -> int:
        """Return the next record's sequence."""
        return self._sequence

    @property
    def count(self) -> int:
        """Return how many records the segment holds."""
        return self._count

    @property
    def first_timestamp_ns(self) -> int:
        """Return the timestamp of the segment's first record."""
        return self._first_timestamp_ns

    @property
    def last_timestamp_ns(self) -> int:
        """Return the timestamp of the segment's last record."""
        return self._last_timestamp_ns

    @property
    def max_timestamp_ns(self) -> int:
        """Return the greatest timestamp."""
        return self._max_timestamp_ns

    @property
    def min_ext_id(self) -> int:
        """Return the least ext_id."""
        return self._min_ext_id

    @property
    def max_ext_id(self) -> int:
        """Return the greatest ext_id."""
        return self._max_ext_id
