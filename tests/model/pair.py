"""A log and its model, which everything is done to at once.

The log lives on a disk that may fill up, fail, or lose power, and in a program that may die before any operation on it.
Whatever happens, the two must agree afterwards: `_settle` says what "agree" means when something was interrupted.
"""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pytest

from latewood import (
    DataLost,
    DiskFull,
    LogOptions,
    NotFoundError,
    Poisoned,
    Queue,
    Record,
    RecordTooLarge,
    StorageError,
)
from latewood.clock import SystemClock
from latewood.log.layout import Layout
from latewood.queue.verify import verify_queue
from latewood.testing import FakeClock
from tests.crash.mortal import Killed, MortalFS
from tests.model.model import Cursor, Maybe, Model

ROOT: Final = Path("/q")
_CUT_STATES: Final = 64
_WEATHER: Final = (DiskFull, StorageError, Poisoned)
_Result = TypeVar("_Result")


class Cut(NamedTuple):
    """Which of the disks that a power cut may leave is the one."""

    pick: int = 0
    """0: the one that lost all it could."""
    seed: int = 0


def rows(table: Any) -> list[Record]:
    """The records of an Arrow table or batch."""
    columns = [table["sequence"], table["timestamp"].cast(pa.int64()), table["ext_id"], table["payload"]]
    return [Record(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


class KernelClock(FakeClock, SystemClock):
    """A clock that the log takes for the machine's, so that the kernel appends without asking Python for the time.

    The kernel would look at the machine's: every append must bring its own timestamp.
    """


class Pair:
    """One log, its model, and their disk."""

    def __init__(self, options: LogOptions, *, tear_bytes: int = 512, plain: bool = False) -> None:
        self.options = options
        self.fs = MortalFS(tear_bytes=tear_bytes)
        self.clock = KernelClock() if plain else FakeClock()
        self.is_plain = plain
        self.model = Model(options, options.file_bytes_max)
        self.log = self._open()
        self.fate: Cut | None = None
        """What comes after the death that `doom` has planned; None: the power stays on."""
        self.is_apart = False
        """Whether somebody else may have made records durable that the log does not know to be."""
        self._serial = 0
        self._stormy = False

    # -- appending --------------------------------------------------------------------------------------

    def record(self, payload_bytes: int, ext_id: int = 0, timestamp_ns: int | None = None, ahead: int = 0) -> Record:
        """The record to append after `ahead` others; no other ever has its payload."""
        self._serial += 1
        payload = (b"%d." % self._serial * payload_bytes)[:payload_bytes]
        timestamp_ns = self.clock.now_ns() if timestamp_ns is None else timestamp_ns
        return Record(self.model.end + ahead, timestamp_ns, ext_id, payload)

    def append(
        self, payload_bytes: int, *, ext_id: int = 0, timestamp_ns: int | None = None, durable: bool = False
    ) -> None:
        new = self.record(payload_bytes, ext_id, timestamp_ns)
        given = new.timestamp_ns if self.is_plain else timestamp_ns
        after = self.model.copy()
        after.grow_older(self.clock.now_ns())
        if not after.fits(new.payload) and payload_bytes > after.payload_bytes_max:
            self._do(lambda: self._refuse(lambda: self.log.append(new.payload)), after)
            return
        after.append(new, self.clock.now_ns())
        self._owe(after, 1, durable=durable)
        sequence = self._do(
            lambda: self.log.append(new.payload, ext_id=ext_id, timestamp_ns=given, durable=durable), after
        )
        assert sequence in (None, new.sequence)
        self.fs.step("append")

    def append_many(
        self,
        payload_bytes: Iterable[int],
        *,
        ext_ids: Iterable[int] | None = None,
        timestamps_ns: Iterable[int] | None = None,
        durable: bool = False,
        arrow: bool = False,
    ) -> None:
        ids, times = ext_ids or itertools.repeat(0), timestamps_ns or itertools.repeat(self.clock.now_ns())
        batch = [
            self.record(*one, ahead=ahead) for ahead, one in enumerate(zip(payload_bytes, ids, times, strict=False))
        ]
        after = self.model.copy()
        if max(len(one.payload) for one in batch) > after.payload_bytes_max:
            self._do(lambda: self._refuse(lambda: self._append_many(batch, durable=durable, arrow=arrow)), after)
            return
        after.grow_older(self.clock.now_ns())
        for one in batch:
            after.append(one, self.clock.now_ns())
        self._owe(after, len(batch), durable=durable)
        sequences = self._do(lambda: self._append_many(batch, durable=durable, arrow=arrow), after)
        assert sequences in (None, range(batch[0].sequence, batch[-1].sequence + 1))
        self.fs.step("append_many")

    def _append_many(self, batch: list[Record], *, durable: bool, arrow: bool) -> range:
        payloads = [one.payload for one in batch]
        # A slice of a larger array: the kernel must not take its first value for the first payload.
        values = pa.array([b"before", *payloads], pa.binary())[1:] if arrow else payloads
        ids, times = [one.ext_id for one in batch], [one.timestamp_ns for one in batch]
        return self.log.append_many(values, ext_ids=ids, timestamps_ns=times, durable=durable)

    @staticmethod
    def _refuse(append: Callable[[], object]) -> None:
        try:
            append()
        except RecordTooLarge:
            return
        raise AssertionError("a record that no segment can hold was appended")

    def _owe(self, after: Model, count: int, *, durable: bool) -> None:
        if durable or (self.options.flush_every_append and count):
            after.durable = after.end

    # -- the rest of writing ------------------------------------------------------------------------------

    def flush(self) -> None:
        after = self.model.copy()
        after.durable = after.end
        self._do(self.log.flush, after)

    def roll(self) -> None:
        after = self.model.copy()
        if after.end > after.base:
            after.roll(self.clock.now_ns())
        self._do(self.log.roll, after)

    def set_ext_id(self, ext_id: int) -> None:
        after = self.model.copy()
        after.set_ext_id(ext_id, self.clock.now_ns())
        self._do(lambda: self.log.set_ext_id(ext_id), after)

    def housekeep(self) -> None:
        """Do what the background thread would; where the disk does not let it, it says nothing, and tries again."""
        before, after = self.model, self.model.copy()
        if after.end > after.base:
            after.grow_older(self.clock.now_ns())
        self._do(self.log._writer.housekeep, after)
        if self._stormy and self.model is after:
            self.model = before
            self._settle(after, before.end, reopened=False, powerless=False)

    # -- life and death -----------------------------------------------------------------------------------

    def reopen(self, options: LogOptions | None = None) -> None:
        """Close the log and open it again; whatever goes wrong on the way is like a death."""
        cut = None
        try:
            self._leave()
            self.log.close()
        except Killed:
            cut = self.fate
        except _WEATHER:
            assert self._stormy or self.is_poisoned, "the weather is fine, and the log does not close"
        else:
            self.model.durable = self.model.durable if self.is_poisoned else self.model.end
        self._come_up(self.model, cut, options)

    def kill(self, options: LogOptions | None = None) -> None:
        """End the program without a word to it.  What it has written is still in memory."""
        self._come_up(self.model, None, options)

    def cut_power(self, cut: Cut = Cut(), options: LogOptions | None = None) -> None:  # noqa: B008 - a constant
        self._come_up(self.model, cut, options)

    def doom(self, operations: int, fate: Cut | None = None) -> None:
        """Let the program die before the one that comes after so many operations on the disk."""
        self.fs.dies_at, self.fate = self.fs.operations + operations + 1, fate

    def fill_disk(self, bytes_left: int) -> None:
        self.fs.capacity_bytes, self._stormy = self.fs.used_bytes() + bytes_left, True

    def break_disk(self, operation: str, path_suffix: str, after: int = 0) -> None:
        self.fs.fail(operation, path_suffix, StorageError("EIO"), after)
        self._stormy = True

    def clear_up(self) -> None:
        """Mend the disk, and make room on it."""
        self.fs.heal()
        self.fs.capacity_bytes, self._stormy = None, False

    @property
    def is_poisoned(self) -> bool:
        return self.log._writer.durability.failure is not None

    def _do(self, act: Callable[[], _Result], after: Model) -> _Result | None:
        """Do something that makes the model `after`; return None if it was not done, or not to the end."""
        try:
            result = act()
        except Killed:
            self._come_up(after, self.fate)
        except _WEATHER:
            # Where a sync has failed, readers elsewhere wait for the writer to say what is durable.
            assert self._stormy or self.log._writer.durability.flush_failed, "the weather is fine"
            self._settle(after, self.model.end, reopened=False, powerless=False)
        else:
            self.model = after
            return result
        return None

    def _leave(self) -> None:
        """Close whatever is open besides the log."""

    def _open(self) -> Queue:
        return Queue.open(ROOT, self.options, fs=self.fs, clock=self.clock, background=False)

    def _come_up(self, after: Model, cut: Cut | None, options: LogOptions | None = None) -> None:
        """Open what is left after a death; the program may die, and the power fail, again while it does so."""
        self.options, powerless = options or self.options, False
        while True:
            doom_left = self.fs.dies_at - self.fs.operations if self.fs.dies_at and not self.fs.dead else None
            self.fs.bury()
            if cut is not None:
                self.fs, powerless, self._stormy = self._survivor(cut), True, False
            if doom_left is not None:
                self.fs.dies_at = self.fs.operations + doom_left
            try:
                self.log = self._open()
                break
            except Killed:
                cut = self.fate
            except _WEATHER:
                assert self._stormy, "the weather is fine, and the log does not open"
                self.clear_up()
                cut = None
        self.is_apart = False
        low = self.model.durable if powerless else self.model.end
        self._settle(after, low, reopened=True, powerless=powerless)

    def _survivor(self, cut: Cut) -> MortalFS:
        self.fs.capacity_bytes = None
        *_, survivor = itertools.islice(self.fs.survivors(_CUT_STATES, cut.seed), cut.pick + 1)
        return survivor

    # -- what must be so ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Say whether log and model agree, now that nothing is under way."""
        log, model = self.log, self.model
        assert (log.first_sequence, log.next_sequence) == (model.first, model.end)
        assert log.durable_sequence <= model.end
        assert model.durable <= log.durable_sequence or self.is_poisoned or self.is_apart
        model.durable = max(model.durable, log.durable_sequence)  # It says so, so it owes it.
        assert list(log.scan()) == model.records[model.first :]
        assert self._stops() == model.stops
        segment = log._writer.segment
        assert {segment.header.ext_id} <= model.cohorts
        assert (segment.appender.offset, segment.records_end_max) == (model.offset, model.bytes_max)
        assert self.is_poisoned or not any(segment._mapping.view[model.offset :]), "something follows the records"
        assert {info.name: Cursor(info.sequence, info.committed_at_ns) for info in log.readers()} == model.cursors

    def verify(self) -> None:
        verification = verify_queue(self.fs, Layout(ROOT), deep=True)
        assert verification.is_sound, verification.findings

    def look(self) -> None:
        """See what a reader in another process sees."""
        with Queue.open(ROOT, mode="r", fs=self.fs, clock=self.clock) as other:
            assert list(other.scan()) == self.model.records[self.model.first :]
            assert (other.first_sequence, other.next_sequence) == (self.model.first, self.model.end)
            assert other.durable_sequence <= (self.model.end if self.is_poisoned else self.log.durable_sequence)
            self.model.durable = max(self.model.durable, other.durable_sequence)  # It says so, so it owes it.

    def read(self, start: int | None, stop: int | None) -> None:
        """Compare a slice of the records, in each of the ways to read them."""
        model = self.model
        begin = model.first if start is None else start
        end = model.end if stop is None else stop
        if begin < model.first and begin < end:
            for reads in (self.log.scan, self.log.to_arrow):
                with pytest.raises(DataLost) as gone:
                    list(reads(start, stop))
                assert (gone.value.start, gone.value.stop) == (begin, model.first)
            return
        expected = model.records[begin:end]
        assert list(self.log.scan(start, stop)) == expected
        assert rows(self.log.to_arrow(start, stop)) == expected
        self._read_one(begin)

    def _read_one(self, sequence: int) -> None:
        model = self.model
        try:
            assert self.log.read(sequence) == model.records[sequence]
        except NotFoundError:
            assert sequence >= model.end
        except DataLost as error:
            lost = error.start, error.stop
            assert lost == (sequence, model.first)
            assert sequence < model.first

    def find_timestamp(self, timestamp_ns: int) -> None:
        assert self.log.find_timestamp(timestamp_ns) == self.model.find_timestamp(timestamp_ns)

    def _stops(self) -> list[int]:
        entries = self.log._manifest().entries
        return [entries[index].end_sequence + 1 for index in range(len(entries))]

    def _settle(self, after: Model, end_min: int, *, reopened: bool, powerless: bool) -> None:
        """Check that the log is between the model and `after`, and make the model what it is."""
        log, before = self.log, self.model
        first, end = log.first_sequence, log.next_sequence
        assert end_min <= end <= after.end, f"it ends at {end}, and should from {end_min} to {after.end}"
        assert first in (before.first, after.first)
        assert list(log.scan()) == after.records[first:end], "records differ"
        new = after.copy()
        new.options, new.first, new.records = self.options, first, after.records[:end]
        self._settle_segments(before, new)
        self._settle_cursors(before, new, powerless=powerless)
        assert log.durable_sequence == end or not reopened
        new.durable = max(before.durable, log.durable_sequence)
        self.model = new

    def _settle_segments(self, before: Model, new: Model) -> None:
        stops = set(self._stops())
        # A seal that was begun earlier comes first: a log that it poisoned begins no other.
        sealed = {one.stop: one for one in (*new.sealed, *before.half_sealed, *before.sealed)}
        assert {stop for stop in before.stops if stop > new.first} <= stops <= set(sealed)
        begun = sorted(one for stop, one in sealed.items() if stop not in stops and stop > new.first)
        new.half_sealed = begun if self.is_poisoned else []
        new.sealed = sorted(one for stop, one in sealed.items() if stop in stops or stop <= new.first)
        segment = self.log._writer.segment
        assert segment.header.ext_id in before.cohorts | new.cohorts
        new.cohorts = before.cohorts | new.cohorts if self.is_poisoned else frozenset({segment.header.ext_id})
        new.offset, new.bytes_max = segment.appender.offset, segment.records_end_max
        new.since_ns = self.log._writer._timing._first_append_ns

    def _settle_cursors(self, before: Model, new: Model, *, powerless: bool) -> None:
        found = {info.name: Cursor(info.sequence, info.committed_at_ns) for info in self.log.readers()}
        nothing: Maybe = frozenset({None})
        for name in sorted({*found, *before.maybe, *new.maybe}):
            cursor, maybe = found.get(name), before.maybe.get(name, nothing) | new.maybe.get(name, nothing)
            seen = {before.cursors.get(name), new.cursors.get(name)}
            assert cursor in (maybe if powerless else seen), f"reader {name} stands at {cursor}, not {maybe}, {seen}"
            assert cursor is None or cursor.sequence <= new.end, f"reader {name} is ahead of the log"
            needed = all(_is_held(name, cursor, model) for model in (before, new))
            assert cursor is None or cursor.sequence >= new.first or not needed, f"reader {name} lost its records"
            settled = powerless or new.first > before.first
            new.maybe[name] = frozenset({cursor}) if settled else maybe
        new.cursors = found


def _is_held(name: str, cursor: Cursor | None, model: Model) -> bool:
    """Whether a model says that no record is retired that a reader at this place, or at its own, still needs."""
    return all(one is None or one.sequence >= model.first for one in (cursor, model.cursors.get(name)))


__all__ = ["ROOT", "Cut", "Pair", "rows"]
