"""The Appender: packs records into one mapped segment.

Its own lock makes it safe to share between threads.  Anything that may run foreign code (looking at payloads) happens
before the lock is taken.

Invariant: records, their mark and the state that counts them are stored by neighbouring assignments with no call
between them.  The interpreter looks for signals at calls and jumps only, so not even Ctrl-C can leave a record that is
there but not counted, or half of a batch behind the end, where a later append would bring it to life.
"""

import struct
import threading
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from google_crc32c import extend

from latewood.kernel.pure_batch import Batch, Room, body_of, numbers, place, slices, store, timestamp, timestamps, u64
from latewood.kernel.pure_futex import ring, wake_words
from latewood.kernel.pure_record import HEADER, PADDING, SEAL, as_view, as_words, as_writable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_SEQUENCE_MAX: Final = (1 << 63) - 1
_PLACE_MAX: Final = (1 << 63) - 1
_ENTRY: Final = struct.Struct(
    "<"
    "Q"  # offset
    "Q"  # running maximum of the timestamps
)


class _State(NamedTuple):
    """Where the next record goes, and what the records so far amount to."""

    offset: int
    sequence: int
    records: int
    first_timestamp_ns: int
    last_timestamp_ns: int
    max_timestamp_ns: int
    min_ext_id: int
    max_ext_id: int

    def plus(self, count: int, size: int, times: tuple[int, int, int], ids: tuple[int, int]) -> "_State":
        """Return the state after so many records; `times` are first, last and newest, `ids` least and greatest."""
        offset, sequence, records, first, _, newest, least, greatest = self
        numbers = (
            offset + size,
            sequence + count,
            records + count,
            first if records else times[0],
            times[1],
            newest if newest > times[2] else times[2],  # noqa: FURB136 - three calls would take a third of an append
            least if least < ids[0] else ids[0],  # noqa: FURB136
            greatest if greatest > ids[1] else ids[1],  # noqa: FURB136
        )
        return tuple.__new__(_State, numbers)  # its own constructor takes twice the time

    def plus_batch(self, batch: Batch, timestamps_ns: "int | memoryview", ext_ids: "int | memoryview") -> "_State":
        """Return the state after a batch."""
        if isinstance(timestamps_ns, int):
            times = (timestamps_ns, timestamps_ns, timestamps_ns)
        else:
            times = (timestamps_ns[0], timestamps_ns[-1], max(timestamps_ns))
        ids = (ext_ids, ext_ids) if isinstance(ext_ids, int) else (min(ext_ids), max(ext_ids))
        return self.plus(len(batch.payloads), batch.bytes, times, ids)

    def entries(self, interval: int, batch: Batch, timestamps_ns: "int | memoryview") -> list[bytes]:
        """Return the index entries of a batch that comes next."""
        newest, done = self.max_timestamp_ns, 0
        found: list[bytes] = []
        ordinals = range(-self.records % interval, len(batch.payloads), interval)
        for ordinal, place_in_batch in zip(ordinals, batch.places(ordinals), strict=True):
            if isinstance(timestamps_ns, int):
                newest = max(newest, timestamps_ns)
            else:
                newest = max(newest, *timestamps_ns[done : ordinal + 1])
            done = ordinal
            found.append(_ENTRY.pack(self.offset + place_in_batch, newest))
        return found


class _Staged(NamedTuple):
    """A batch that is still to be counted: what the state will be, and its index entries."""

    state: _State
    entries: list[bytes]


class Appender:
    """Packs records into one mapped segment; every thread may call it, one at a time."""

    __slots__ = (
        "_closed",
        "_hard",
        "_index",
        "_interval",
        "_limit",
        "_lock",
        "_records",
        "_skipped",
        "_staged",
        "_state",
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
        if place(offset, view.nbytes) % 8 or interval == 0:
            raise ValueError("an offset that is not a multiple of 8, or no interval")
        if sequence > _SEQUENCE_MAX:
            raise OverflowError("the sequence is above 2**63 - 1")
        times = (u64(first_timestamp_ns), u64(last_timestamp_ns), u64(max_timestamp_ns))
        self._state = _State(offset, u64(sequence), u64(count), *times, u64(min_ext_id), u64(max_ext_id))
        self._interval = u64(interval)
        self._wake = None if wake is None else wake_words(wake)
        self._view, self._words = view, as_words(view)
        self._index: list[bytes] = []
        self._skipped = -(-count // interval)  # entries of records that were there before
        self._lock = threading.Lock()
        self._limit = self._hard = self._records = 0
        self._staged: _Staged | None = None
        self._closed = False

    def allow(self, limit: int, hard: int, records: int) -> None:
        """Let single appends end at `limit`, batches at `hard`, the segment hold `records`; nothing, once closed."""
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
            state = self._state
            offset, sequence, count = state[:3]
            end += offset
            if self._closed or count >= self._records or end > self._limit:
                return -1
            self._staged = None  # Whoever staged it was interrupted before it wrote a byte.
            if count % self._interval == 0:
                newest = max(state.max_timestamp_ns, timestamp_ns)
                self._index[self._entry_count() :] = [_ENTRY.pack(offset, newest)]
            state = state.plus(1, end - offset, (timestamp_ns, timestamp_ns, timestamp_ns), (ext_id, ext_id))
            padded = body + PADDING[length & 7]
            self._view[offset + 8 : end] = padded
            self._words[offset >> 2] = length
            self._words[offset + 4 >> 2] = mark
            self._state = state
            ring(self._wake)
        return sequence

    def append_many(
        self,
        payloads: "list[ReadableBuffer] | tuple[ReadableBuffer, ...]",
        start: int,
        ext_ids: "int | ReadableBuffer",
        timestamps_ns: "int | ReadableBuffer | None",
        scratch: "WriteableBuffer | None" = None,
    ) -> int:
        """Append what fits of `payloads[start:]` as one, return how many that was; with a scratch buffer, stage it."""
        if not isinstance(payloads, list | tuple):
            raise TypeError("a list or a tuple of payloads is required")
        stop = len(payloads)
        start = min(place(start, _PLACE_MAX), stop)
        times = timestamps(timestamps_ns, start, stop)
        ids = numbers(ext_ids, start, stop)
        target = None if scratch is None else as_writable(scratch)
        batch = Batch(room := self._room(target))
        batch.take_chunks(islice(payloads, start, stop))
        return self._append_batch(room, batch, (ids, times), target)

    def append_columns(
        self,
        data: "ReadableBuffer | None",
        offsets: "ReadableBuffer",
        wide: bool,  # noqa: FBT001 - it comes with the offsets
        start: int,
        stop: int,
        ext_ids: "int | ReadableBuffer",
        timestamps_ns: "int | ReadableBuffer | None",
        scratch: "WriteableBuffer | None" = None,
    ) -> int:
        """Append what fits of an Arrow binary array's payloads `start..stop`, as `append_many` does."""
        ends = as_view(offsets)
        width = 8 if wide else 4
        stop = place(stop, _PLACE_MAX)
        if ends.nbytes // width <= stop:
            raise ValueError("fewer offsets than payloads")
        start = min(place(start, _PLACE_MAX), stop)
        places = ends[start * width : (stop + 1) * width].cast("q" if wide else "i")
        times = timestamps(timestamps_ns, start, stop)
        ids = numbers(ext_ids, start, stop)
        target = None if scratch is None else as_writable(scratch)
        batch = Batch(room := self._room(target))
        batch.take(slices(b"" if data is None else data, places))
        return self._append_batch(room, batch, (ids, times), target)

    @property
    def staged_bytes(self) -> int:
        """Return how many bytes of the scratch buffer the staged batch takes; they belong at `offset`."""
        staged = self._staged
        return staged.state.offset - self._state.offset if staged else 0

    def count_staged(self) -> None:
        """Count the staged batch, which must stand in the segment by now, and tell the readers."""
        with self._lock:
            if self._staged is not None:
                state, entries = self._staged
                self._index[self._entry_count() :] = entries
                self._state = state
                self._staged = None
                ring(self._wake)

    def _room(self, scratch: memoryview | None) -> Room:
        if self._closed:
            return Room(0, 0)
        state = self._state
        left = max(self._hard - state.offset, 0)
        return Room(left if scratch is None else min(left, scratch.nbytes), max(self._records - state.records, 0))

    def _append_batch(
        self, room: Room, batch: Batch, columns: "tuple[int | memoryview, int | memoryview]", scratch: memoryview | None
    ) -> int:
        with self._lock:
            if room != self._room(scratch):  # Somebody has appended since, so less may fit.
                payloads, batch = batch.payloads, Batch(self._room(scratch))
                batch.take(payloads)
            count = len(batch.payloads)
            self._staged = None
            if count:
                ids, times = (column if isinstance(column, int) else column[:count] for column in columns)
                timestamp(times if isinstance(times, int) else max(times))
                self._stage(batch, times, ids, scratch)
        return count

    def _stage(
        self,
        batch: Batch,
        timestamps_ns: "int | memoryview",
        ext_ids: "int | memoryview",
        scratch: memoryview | None,
    ) -> None:
        """Store the records in a scratch buffer; without one, publish them here and now."""
        state = self._state
        entries = state.entries(self._interval, batch, timestamps_ns)
        staged = _Staged(state.plus_batch(batch, timestamps_ns, ext_ids), entries)
        if scratch is None:
            blob = bytearray(batch.bytes)
            store(memoryview(blob), batch, timestamps_ns, ext_ids)
            mark, blob[4:8] = int.from_bytes(blob[4:8], "little"), bytes(4)
            self._publish(staged, blob, mark)
        else:
            store(scratch, batch, timestamps_ns, ext_ids)
            self._staged = staged

    def _publish(self, staged: _Staged, blob: bytes | bytearray, mark: int) -> None:
        """Store records but for their first mark, and then that mark."""
        state, entries = staged
        self._index[self._entry_count() :] = entries
        start = self._state.offset
        stop = start + len(blob)
        self._view[start:stop] = blob
        self._words[start + 4 >> 2] = mark
        self._state = state
        self._staged = None
        ring(self._wake)

    def _entry_count(self) -> int:
        """Return how many entries the records so far have.  An interrupted append may have left one more."""
        return -(-self._state.records // self._interval) - self._skipped

    def close(self) -> None:
        """Allow nothing from now on, and wait for the append that is under way."""
        with self._lock:
            self._closed = True
            self._limit = self._hard = self._records = 0
            self._staged = None

    def release(self) -> None:
        """Close, and let go of the buffers."""
        self.close()
        self._view = self._words = memoryview(b"")
        self._wake = None

    def state(self) -> tuple[int, int, int, int, int, int, int, int]:
        """Return one consistent look at all eight numbers."""
        return self._state

    def index(self) -> bytes:
        """Return entries (u64 offset, u64 running maximum of the timestamps) of the records appended here."""
        with self._lock:
            return b"".join(self._index[: self._entry_count()])

    @property
    def offset(self) -> int:
        """Return where the next record goes."""
        return self._state.offset

    @property
    def sequence(self) -> int:
        """Return the next record's sequence."""
        return self._state.sequence

    @property
    def count(self) -> int:
        """Return how many records the segment holds."""
        return self._state.records

    @property
    def first_timestamp_ns(self) -> int:
        """Return the timestamp of the segment's first record."""
        return self._state.first_timestamp_ns

    @property
    def last_timestamp_ns(self) -> int:
        """Return the timestamp of the segment's last record."""
        return self._state.last_timestamp_ns

    @property
    def max_timestamp_ns(self) -> int:
        """Return the greatest timestamp."""
        return self._state.max_timestamp_ns

    @property
    def min_ext_id(self) -> int:
        """Return the least ext_id."""
        return self._state.min_ext_id

    @property
    def max_ext_id(self) -> int:
        """Return the greatest ext_id."""
        return self._state.max_ext_id
