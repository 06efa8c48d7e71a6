"""A log that is written while its power may fail, and what it has promised at every moment.

A `Story` drives a queue on a `CrashFS`.  Before each call it widens the promise to what may be on the disk from now
on, and after the call returned it narrows it to what must be there.  The promise travels with every cut as the file
system's `note`, so whoever looks at a survivor knows what it owes.
"""

from bisect import bisect_right
from pathlib import Path
from typing import Any, Final, NamedTuple

from latewood import LogOptions, Queue, Reader, Record
from latewood.testing import CrashFS, FakeClock
from latewood.testing.fake_clock import START_NS
from tests.format.version_1 import downgrade

ROOT: Final = Path("/q")
SMALL: Final = LogOptions(segment_bytes_max=1024, index_interval=2)
TINY: Final = LogOptions(segment_bytes_max=512, index_interval=1)
PAGES: Final = LogOptions(segment_bytes_max=4096, index_interval=4)
BIRTH: Final = b"identity of oaks"

_LENGTHS: Final = (40, 0, 104, 7, 300, 40, 64, 1)


def record(sequence: int, life: int = 0) -> Record:
    """The record that every test appends under this sequence; a later life appends other bytes of the same length."""
    length = _LENGTHS[sequence % len(_LENGTHS)]
    payload = (f"{life}:{sequence}." * length)[:length].encode()
    return Record(sequence, START_NS + sequence, sequence * 7 % 5 + life, payload)


class Bounds(NamedTuple):
    """At least, at most."""

    low: int
    high: int

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.low <= number <= self.high


class Promise(NamedTuple):
    """What a disk that loses power now may hold, and must."""

    end: Bounds = Bounds(0, 0)
    """The log's next sequence: what is durable, and what was appended."""
    lives: tuple[int, ...] = ()
    """Where the log ended each time it came up again: other records were appended from there on."""
    first: Bounds = Bounds(0, 0)
    """Its oldest sequence."""
    readers: tuple[tuple[str, Bounds], ...] = ()
    """Named readers, and where they stand; a `low` of -1: it may be missing."""
    cohorts: frozenset[int] = frozenset({0})
    """What `set_ext_id` may have left in the open segment's header."""
    watermark: Bounds = Bounds(0, 0)
    """What the latest seal may say."""
    lost: bool = False
    """Whether the log itself may be missing."""
    named: bool = False
    """Whether it has the identity that the story gave it."""

    def records(self, start: int, stop: int) -> list[Record]:
        """The records that the log holds from one sequence to another, if it ends there."""
        return [record(sequence, bisect_right(self.lives, sequence)) for sequence in range(start, stop)]

    def but(self, **changes: Any) -> "Promise":
        return self._replace(**changes)


class Story:
    """One log, what is done to it, and its promise.  Not closed unless told to: the power is about to fail."""

    def __init__(self, fs: CrashFS, options: LogOptions = SMALL, promise: Promise | None = None) -> None:
        self.fs, self.options = fs, options
        self.promise = promise or Promise(lost=True)
        self.written = self.promise.end.low
        """Every record below this was appended: it survives the death of the program."""
        self.clock = FakeClock()
        self.readers: dict[str, Reader] = {}
        self.log = self._open()
        self._promise(lost=False, named=True)

    def _open(self) -> Queue:
        self.fs.note = self.promise
        return Queue.open(ROOT, self.options, fs=self.fs, clock=self.clock, background=False, birth=BIRTH)

    def _promise(self, **changes: Any) -> None:
        self.promise = self.promise.but(**changes)
        self.fs.note = self.promise

    def begin_life(self) -> None:
        """Go on from where the log says that it ends; from there on, other records are appended."""
        end = self.log.next_sequence
        self.written = end
        sealed = self.promise.watermark.low
        self._promise(
            end=Bounds(self.log.durable_sequence, end),
            lives=(*self.promise.lives, end),
            watermark=Bounds(sealed, max(sealed, self.log.coordinator_watermark)),
        )

    @property
    def next_sequence(self) -> int:
        return self.promise.end.high

    def _about_to_append(self, count: int) -> list[Record]:
        start = self.next_sequence
        self._promise(end=Bounds(self.promise.end.low, start + count))
        return self.promise.records(start, start + count)

    def _appended(self, *, durable: bool) -> None:
        self.written = self.next_sequence
        if durable:
            self._durable()

    def _durable(self) -> None:
        self._promise(end=Bounds(self.next_sequence, self.next_sequence))

    def append(self, count: int = 1, *, durable: bool = False) -> None:
        for _ in range(count):
            (new,) = self._about_to_append(1)
            self.log.append(new.payload, ext_id=new.ext_id, timestamp_ns=new.timestamp_ns, durable=durable)
            self._appended(durable=durable)
            self.fs.step("append")

    def append_slowly(self, count: int = 1) -> None:
        """Append so that the disk may also see a record that is only half stored.  There must be room for it."""
        for _ in range(count):
            segment = self.log._writer.segment
            start = segment.tail().offset
            (new,) = self._about_to_append(1)
            self.log.append(new.payload, ext_id=new.ext_id, timestamp_ns=new.timestamp_ns)
            self._appended(durable=False)
            stop = self.log._writer.segment.tail().offset
            assert self.log._writer.segment is segment
            view = segment._mapping.view
            whole = bytes(view[start:stop])
            unmarked = whole[:4] + bytes(4) + whole[8:]
            for stored in (unmarked[: (stop - start) // 2].ljust(stop - start, b"\0"), unmarked, whole):
                view[start:stop] = stored
                self.fs.step("append, in part")

    def append_many(self, count: int, *, durable: bool = False) -> None:
        batch = self._about_to_append(count)
        self.log.append_many(
            [one.payload for one in batch],
            ext_ids=[one.ext_id for one in batch],
            timestamps_ns=[one.timestamp_ns for one in batch],
            durable=durable,
        )
        self._appended(durable=durable)
        self.fs.step("append_many")

    def flush(self) -> None:
        self.log.flush()
        self._durable()

    def roll(self, watermark: int | None = None) -> None:
        if watermark is not None:
            self.log.coordinator_watermark = watermark
            self._promise(watermark=Bounds(self.promise.watermark.low, watermark))
        self.log.roll()
        self._promise(watermark=Bounds(self.promise.watermark.high, self.promise.watermark.high))
        self._durable()

    def set_ext_id(self, ext_id: int) -> None:
        self._promise(cohorts=self.promise.cohorts | {ext_id})
        self.log.set_ext_id(ext_id)
        self._promise(cohorts=frozenset({ext_id}))

    def _reader(self, name: str, bounds: Bounds) -> None:
        self._promise(readers=tuple((dict(self.promise.readers) | {name: bounds}).items()))

    def make_reader(self, name: str) -> None:
        self._reader(name, Bounds(-1, 0))
        self.readers[name] = self.log.reader(name, "earliest")
        start = self.log.first_sequence
        self._reader(name, Bounds(start, start))

    def make_reader_beside(self, name: str) -> None:
        """Make a reader as another process would, that has not opened the log to write."""
        self._reader(name, Bounds(-1, 0))
        beside = Queue.open(ROOT, mode="r", fs=self.fs, clock=self.clock)
        self.readers[name] = beside.reader(name, "earliest")
        self._reader(name, Bounds(0, 0))

    def adopt_reader(self, name: str) -> None:
        """Open a reader that an earlier program left."""
        self.readers[name] = self.log.reader(name)

    def commit(self, name: str, count: int) -> None:
        """Read `count` records and commit; what a reader has committed is durable in the log too."""
        reader = self.readers[name]
        before = reader.committed_sequence or 0
        seen = [reader.next() for _ in range(count)]
        assert seen == self.promise.records(before, before + count)
        self._reader(name, Bounds(before, before + count))
        reader.commit()
        self._reader(name, Bounds(before + count, before + count))
        self._promise(end=Bounds(max(self.promise.end.low, before + count), self.promise.end.high))

    def remove_reader(self, name: str) -> None:
        self.readers.pop(name).close()
        high = dict(self.promise.readers)[name].high
        self._reader(name, Bounds(-1, high))
        self.log.remove_reader(name)
        self._promise(readers=tuple(item for item in self.promise.readers if item[0] != name))

    def cleanup(self) -> None:
        retire = self.log.cleanup(dry_run=True)
        entries = self.log._manifest().entries
        first = entries[len(retire) - 1].end_sequence + 1 if retire else self.promise.first.high
        self._promise(first=Bounds(self.promise.first.low, first))
        assert self.log.cleanup() == retire
        self._promise(first=Bounds(first, first))

    def housekeep(self) -> None:
        """Do what the background thread would: checkpoint, and prepare the next segment."""
        self.log._writer.housekeep()
        self.fs.step("housekeep")

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()
        self.readers.clear()
        self.log.close()
        self._durable()

    def reopen(self, options: LogOptions | None = None) -> None:
        self.options = options or self.options
        self.log = self._open()
        self._promise(named=True)

    def downgrade(self) -> None:
        """Close the log, and make it one of version 1."""
        self.close()
        downgrade(self.fs, ROOT)
        self._promise(named=False)
