"""The Appender: packs records into one mapped segment.

Its own lock makes it safe to share between threads.  Anything that may run foreign code (looking at payloads) happens
before the lock is taken.
"""

import struct
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, Final

from google_crc32c import extend

from latewood.kernel.pure_batch import Batch, Room, body_of, encode, numbers, place, slices, u64
from latewood.kernel.pure_futex import ring, wake_words
from latewood.kernel.pure_record import HEADER, PADDING, SEAL, as_view, as_words, as_writable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_SEQUENCE_MAX: Final = (1 << 63) - 1
_PLACE_MAX: Final = (1 << 63) - 1
_CLOSE_WAIT_S: Final = 10
_ENTRY: Final = struct.Struct(
    "<"
    "Q"  # offset
    "Q"  # running maximum of the timestamps
)


class Appender:
    """Packs records into one mapped segment; every thread may call it, one at a time."""

    __slots__ = (
        "_closed",
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
        self._offset = place(offset, view.nbytes)
        if offset % 8 or interval == 0:
            raise ValueError("an offset that is not a multiple of 8, or no interval")
        if sequence > _SEQUENCE_MAX:
            raise OverflowError("the sequence is above 2**63 - 1")
        self._sequence, self._count, self._interval = u64(sequence), u64(count), u64(interval)
        self._first_timestamp_ns = u64(first_timestamp_ns)
        self._last_timestamp_ns = u64(last_timestamp_ns)
        self._max_timestamp_ns = u64(max_timestamp_ns)
        self._min_ext_id, self._max_ext_id = u64(min_ext_id), u64(max_ext_id)
        self._wake = None if wake is None else wake_words(wake)
        self._view = view
        self._words = as_words(view)
        self._index: list[bytes] = []
        self._lock = threading.Lock()
        self._limit = self._hard = self._records = 0
        self._closed = False

    def allow(self, limit: int, hard: int, records: int) -> None:
        """Let single appends end at `limit`, batches at `hard`, and the segment hold `records`.  Nothing, once closed."""
        with self._lock:
            if self._closed:
                return
            end = self._view.nbytes
            limit, hard, records = place(limit, end), place(hard, end), u64(records)
            self._limit, self._hard, self._records = limit, hard, records

    def append(self, payload: "ReadableBuffer", ext_id: int = 0, timestamp_ns: int | None = None) -> int:
        """Append one record and return its sequence, or -1 if it is not allowed."""
        body, length, timestamp_ns, ext_id = body_of(payload, ext_id, timestamp_ns)
        if length >= SEAL:
            return -1
        mark = extend(length, body) or SEAL
        end = HEADER + (length + 7 & ~7)
        with self._lock:
            offset, sequence, wake = self._offset, self._sequence, self._wake
            end += offset
            if self._closed or self._count >= self._records or end > self._limit:
                return -1
            self._view[offset + 8 : end] = body + PADDING[length & 7]
            self._words[offset >> 2] = length
            self._words[offset + 4 >> 2] = mark
            if self._count % self._interval == 0:
                self._index.append(_ENTRY.pack(offset, max(self._max_timestamp_ns, timestamp_ns)))
            self._account(1, end - offset, (timestamp_ns, timestamp_ns, timestamp_ns), (ext_id, ext_id))
        if wake is not None:
            ring(wake)  # Letting go of the lock was the fence.
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
        start = min(place(start, _PLACE_MAX), stop)
        times = time.time_ns() if timestamps_ns is None else numbers(timestamps_ns, start, stop)
        ids = numbers(ext_ids, start, stop)
        batch = Batch(room := self._room())
        batch.take_chunks(islice(payloads, start, stop))
        return self._append_batch(room, batch, ids, times)

    def append_columns(
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
        stop = place(stop, _PLACE_MAX)
        if ends.nbytes // width <= stop:
            raise ValueError("fewer offsets than payloads")
        start = min(place(start, _PLACE_MAX), stop)
        places = ends[start * width : (stop + 1) * width].cast("q" if wide else "i")
        times = time.time_ns() if timestamps_ns is None else numbers(timestamps_ns, start, stop)
        ids = numbers(ext_ids, start, stop)
        batch = Batch(room := self._room())
        batch.take(slices(b"" if data is None else data, places))
        return self._append_batch(room, batch, ids, times)

    def _room(self) -> Room:
        if self._closed:
            return Room(0, 0)
        return Room(max(self._hard - self._offset, 0), max(self._records - self._count, 0))

    def _append_batch(
        self, room: Room, batch: Batch, ext_ids: "int | memoryview", timestamps_ns: "int | memoryview"
    ) -> int:
        with self._lock:
            if room != self._room():  # Somebody has appended since, so less may fit.
                payloads, batch = batch.payloads, Batch(self._room())
                batch.take(payloads)
            count, wake = len(batch.payloads), self._wake
            if count:
                times = timestamps_ns if isinstance(timestamps_ns, int) else timestamps_ns[:count]
                ids = ext_ids if isinstance(ext_ids, int) else ext_ids[:count]
                self._store(*encode(batch.payloads, times, ids))
                self._add(batch.sizes, times, ids)
        if count and wake is not None:
            ring(wake)  # Letting go of the lock was the fence.
        return count

    def _store(self, blob: bytes, mark: int) -> None:
        """Store everything but the first mark, then that mark."""
        offset = self._offset
        self._view[offset : offset + len(blob)] = blob
        self._words[offset + 4 >> 2] = mark

    def _add(self, sizes: list[int], timestamps_ns: "int | memoryview", ext_ids: "int | memoryview") -> None:
        """Account for a batch just stored."""
        self._add_entries(sizes, timestamps_ns)
        if isinstance(timestamps_ns, int):
            first = last = newest = timestamps_ns
        else:
            first, last, newest = timestamps_ns[0], timestamps_ns[-1], max(timestamps_ns)
        least, greatest = (ext_ids, ext_ids) if isinstance(ext_ids, int) else (min(ext_ids), max(ext_ids))
        self._account(len(sizes), sum(sizes), (first, last, newest), (least, greatest))

    def _account(self, count: int, size: int, times: tuple[int, int, int], ids: tuple[int, int]) -> None:
        first, last, newest = times
        if self._count == 0:
            self._first_timestamp_ns = first
        self._last_timestamp_ns = last
        self._max_timestamp_ns = max(self._max_timestamp_ns, newest)
        self._min_ext_id = min(self._min_ext_id, ids[0])
        self._max_ext_id = max(self._max_ext_id, ids[1])
        self._offset += size
        self._sequence += count
        self._count += count

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
        """Allow nothing from now on, and wait for the append that is under way."""
        self._closed = True
        # In a forked child the lock may be held by a thread that is no more: hence no `with`.
        locked = self._lock.acquire(timeout=_CLOSE_WAIT_S)
        self._limit = self._hard = self._records = 0
        if locked:
            self._lock.release()

    def release(self) -> None:
        """Close, and let go of the buffers."""
        self.close()
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
