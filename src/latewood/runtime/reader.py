"""A named reader of a whole database: one durable position for each shard.

It needs no place in the logs: what has left them it reads from chunks.  So it never holds a log's retention back; what
it holds back is the retention of chunks.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from latewood.closing import Closing, close_behind
from latewood.errors import AnotherLog, ClosedError, CorruptError, DataLost, LatewoodError, TooManyFiles, UsageError
from latewood.forking import forked
from latewood.format import keyed
from latewood.format.store_layout import DatabaseLayout
from latewood.fs import FileSystem, Lock, check_room
from latewood.interrupts import Uninterrupted
from latewood.kernel import Record
from latewood.limits import READ_RECORDS_MAX
from latewood.log.argument import nanoseconds
from latewood.log.identity import stranger_reason
from latewood.queue.cursor import load_cursor, store_cursor
from latewood.queue.holding import retention_held
from latewood.runtime.record import DatabaseRecord, records_of
from latewood.runtime.room import DESCRIPTORS_OF_A_STREAM
from latewood.runtime.shard import Shard
from latewood.types import Position

if TYPE_CHECKING:
    from latewood.format.cursor import Cursor
    from latewood.format.identity import Mark
    from latewood.log.stream import Stream

ReaderStart: TypeAlias = "Literal['resume', 'earliest', 'latest'] | datetime | Mapping[int, int]"

_WAIT_S: Final = 0.02
"""Of many shards one is slept on at a time, and so long."""


class DatabaseReader:
    """Reads every shard from where it stopped.  Not thread-safe.  Use it as a context manager, or call `close`."""

    def __init__(
        self,
        name: str,
        shards: list[Shard],
        fs: FileSystem,
        layout: DatabaseLayout,
        lock: Lock | None,
        now_ns: Callable[[], int],
        *,
        merged: bool,
    ) -> None:
        """Hold the parts; `Database.reader` is what opens one.  Without a lock it cannot commit."""
        self.name, self._shards, self._merged = name, shards, merged
        self._fs, self._layout, self._lock, self._now_ns = fs, layout, lock, now_ns
        self._known: dict[int, Cursor | None] = {}
        self._positions: dict[int, int] = {}
        self._streams: dict[int, Stream] = {}
        self._turn = 0
        self._closed: ClosedError | None = None

    def begin(self, start: ReaderStart) -> None:
        """Go to where it should begin, and remember that unless it is where it stopped.

        So it holds retention back from when it is opened, not only from its first commit.  Meanwhile retention is kept
        out: what it let go after the choice is not what the reader stands at.
        """
        chosen = []
        for shard in self._shards:
            path = self._layout.cursor(self.name, shard.number)
            is_named = isinstance(start, Mapping) and shard.number in start
            is_resumed = start == "resume" or (isinstance(start, Mapping) and not is_named)
            try:
                known = load_cursor(self._fs, path)
            except CorruptError:
                if is_resumed:
                    raise
                known = None  # A start that does not need the position takes the place of one that is damaged.
            self._known[shard.number] = known
            stored = known.sequence if known else None
            if known is not None and start == "resume":
                stranger = stranger_of(self._layout, self.name, shard, known.mark, known.sequence or 0)
                if stranger is not None:
                    raise stranger
            self._positions[shard.number] = self._start(shard, start, stored)
            chosen += [] if is_named or (start == "resume" and stored is not None) else [shard]
        if self._lock is None:
            return
        self._make_durable()  # Before retention is kept out: a sync may take long.
        with retention_held(self._fs, self._layout.root):
            for shard in chosen:
                self._positions[shard.number] = max(self._positions[shard.number], shard.first())
            self.commit()

    @property
    def positions(self) -> dict[int, int]:
        """The sequence that it reads next, of each shard."""
        return dict(self._positions)

    def poll(self, max_records: int = READ_RECORDS_MAX, timeout: float | None = 0.0) -> list[DatabaseRecord]:
        """Return records that were not read yet; wait for the first at most `timeout` seconds, None for ever.

        Raises:
            DataLost: retention removed what comes next; `seek` elsewhere.
            LogBehind: what comes next was in a log that ends before its chunks do, or is gone.
            CorruptError: something is damaged.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._read(max_records)
            left = None if deadline is None else deadline - time.monotonic()
            if found or (left is not None and left <= 0):
                return sorted(found, key=lambda record: record.timestamp_ns) if self._merged else found
            self._wait(_WAIT_S if left is None else min(left, _WAIT_S))

    def __iter__(self) -> Iterator[DatabaseRecord]:
        """Yield records up to the end, as it is when it gets there."""
        while batch := self.poll():
            yield from batch

    def follow(self) -> Iterator[DatabaseRecord]:
        """Yield records for ever, waiting for new ones."""
        while True:
            yield from self.poll(timeout=None)

    def commit(self) -> None:
        """Make the positions durable, and before them the records that they are behind.

        Raises:
            UsageError: the store was opened to read, so nothing can be stored.
        """
        self._check_open()
        if self._lock is None:
            raise UsageError("the store was opened with mode='r': a reader cannot commit")
        self._make_durable()
        self._shards[0].check_catalog()
        for shard in self._shards:
            number, sequence = shard.number, self._positions[shard.number]
            known = self._known[number]
            mark = shard.mark() or (known and known.mark)  # Of a log that is behind, the chunks have the positions.
            if known is not None and (known.sequence, known.mark) == (sequence, mark):
                continue
            path = self._layout.cursor(self.name, number)
            self._fs.make_directory(path.parent)
            position = Position(0, 0, sequence)
            self._known[number] = store_cursor(self._fs, path, known, position, self._now_ns(), mark)

    def seek(self, start: ReaderStart) -> None:
        """Go elsewhere; durable with the next `commit`."""
        self._check_open()
        for shard in self._shards:
            self._move(shard.number, self._start(shard, start, self._positions[shard.number]))

    def lag(self) -> int:
        """Return how many records are written that it has not committed."""
        committed = {number: known.sequence if known else None for number, known in self._known.items()}
        return sum(max(0, shard.end() - (committed[shard.number] or shard.first())) for shard in self._shards)

    def close(self) -> None:
        """Give the name up.  What was not committed is read again."""
        self._closed = self._closed or ClosedError("the reader is closed; open it again")
        streams, self._streams = list(self._streams.values()), {}
        lock, self._lock = self._lock, None
        with Closing() as closing:
            for stream in streams:
                closing(stream.close)
            if lock is not None:
                closing(lock.close)

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child: the parent reads on, and commits."""
        self._closed = self._closed or forked(f"reader {self.name!r} of {self._layout.root}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_behind(self.close, error)

    def _read(self, max_records: int) -> list[DatabaseRecord]:
        self._check_open()
        before = dict(self._positions)
        try:
            with Uninterrupted():
                return self._read_in_turn(max_records)
        except BaseException:  # Also an interrupt: what is not handed out is read again.
            self._positions = before
            raise

    def _read_in_turn(self, max_records: int) -> list[DatabaseRecord]:
        found: list[DatabaseRecord] = []
        for _ in self._shards:
            shard = self._shards[self._turn % len(self._shards)]
            if len(found) < max_records:
                try:
                    found += self._read_shard(shard, max_records - len(found))
                except LatewoodError:
                    if not found:
                        raise
                    break  # What was read comes first: the next call begins with this shard, and meets the error again.
            self._turn += 1
        return found

    def _read_shard(self, shard: Shard, max_records: int) -> list[DatabaseRecord]:
        sequence = self._positions[shard.number]
        if sequence >= shard.log_first():
            try:
                found = self._from_log(shard, sequence, max_records)
            except DataLost:  # It has left the log since: a chunk has it.
                self._drop(shard.number)
            else:
                self._positions[shard.number] = sequence + len(found)
                return found
        found = self._from_chunks(shard, sequence, max_records)
        self._move(shard.number, sequence + len(found))
        return found

    def _from_log(self, shard: Shard, sequence: int, max_records: int) -> list[DatabaseRecord]:
        stream = self._streams.get(shard.number)
        if stream is not None and stream.sequence != sequence:  # What it read last was not handed out.
            self._drop(shard.number)
            stream = None
        if stream is None:
            try:
                check_room(f"there is no room for reader {self.name!r}", DESCRIPTORS_OF_A_STREAM)
            except TooManyFiles:
                if not self._streams:
                    raise
                for number in list(self._streams):  # They only save the search for where the reader stands.
                    self._drop(number)
            stream = self._streams[shard.number] = shard.log.stream(sequence)
        return [self._record(shard, record) for record in stream.read(max_records)]

    def _from_chunks(self, shard: Shard, sequence: int, max_records: int) -> list[DatabaseRecord]:
        """Return records of chunks, those in front of a gap or of damage first: the next call meets that again."""
        stop, found = min(shard.end(), sequence + max_records), list[DatabaseRecord]()
        try:
            for record in records_of(shard.number, shard.batches(sequence, stop)):
                found.append(record)
        except (DataLost, CorruptError):
            if not found:
                raise
        return found

    def _make_durable(self) -> None:
        """Make every record durable that the positions are behind."""
        for shard in self._shards:
            shard.make_durable(self._positions[shard.number], self._streams.get(shard.number))

    @staticmethod
    def _record(shard: Shard, record: Record) -> DatabaseRecord:
        sequence, timestamp_ns, ext_id, payload = record
        key: bytes | None = None
        if shard.keyed:
            try:
                key, payload = keyed.decode(payload)
            except ValueError as error:
                raise CorruptError(f"record {sequence}: {error}", shard.log.path, 0) from error
        return DatabaseRecord(shard.number, sequence, timestamp_ns, ext_id, key, payload)

    @staticmethod
    def _start(shard: Shard, start: object, stored: int | None) -> int:
        if isinstance(start, datetime):
            return shard.find_timestamp(nanoseconds(start))
        if isinstance(start, Mapping):
            return int(start.get(shard.number, shard.first() if stored is None else stored))
        match start:
            case "resume":
                return shard.first() if stored is None else stored
            case "earliest":
                return shard.first()
            case "latest":
                return shard.end()
        message = f"start must be 'resume', 'earliest', 'latest', a time, or a sequence for each shard, not {start!r}"
        raise UsageError(message)

    def _wait(self, timeout_s: float) -> None:
        shard = self._shards[self._turn % len(self._shards)]
        stream = self._streams.get(shard.number)
        if stream is None:
            time.sleep(min(timeout_s, _WAIT_S))
        else:
            shard.log.wait(stream, timeout_s if len(self._shards) == 1 else timeout_s / len(self._shards))
            self._turn += 1

    def _move(self, number: int, sequence: int) -> None:
        self._drop(number)
        self._positions[number] = sequence

    def _drop(self, number: int) -> None:
        if (stream := self._streams.pop(number, None)) is not None:
            stream.close()

    def _check_open(self) -> None:
        if self._closed:
            raise type(self._closed)(*self._closed.args)


def stranger_of(
    layout: DatabaseLayout, name: str, shard: Shard, mark: "Mark | None", sequence: int
) -> AnotherLog | None:
    """Return what is wrong with a reader's stored position if it is of another log than the shard's; None: nothing."""
    reason = stranger_reason(shard.identity(), mark, sequence)
    if reason is None:
        return None
    mend = (
        f"if this is the right store, `latewood readers seek {layout.command_name} {name} --earliest` or "
        f"`database.reader({name!r}, start='earliest')` begins anew in it"
    )
    return AnotherLog(reason, layout.cursor(name, shard.number), mend)
