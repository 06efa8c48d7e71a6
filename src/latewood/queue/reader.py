"""A named reader: a place in the log that is remembered.

Reads at least once: after a crash it goes on from the last `commit`.  Not thread-safe; one process at a time may
use a name.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar

from latewood.closing import close_behind
from latewood.errors import AnotherLog, ClosedError, CorruptError, DataLost, ReadOnlyError, UsageError
from latewood.forking import close_after_fork, forked, no_fork
from latewood.format.segment import HEADER_SIZE
from latewood.fs import Lock
from latewood.interrupts import Uninterrupted
from latewood.kernel import Record
from latewood.limits import ARROW_RECORDS_MAX, READ_RECORDS_MAX
from latewood.log import Log, Mark, Stream
from latewood.log.argument import nanoseconds, seconds, whole
from latewood.queue.ahead import check_goes_on, stored_sequence
from latewood.queue.cursor import cursor_path, load_cursor, store_cursor
from latewood.queue.elsewhere import check_position
from latewood.queue.holding import retention_held
from latewood.types import Position

if TYPE_CHECKING:
    import pyarrow as pa

    from latewood.format.cursor import Cursor

_LOOKS_MAX: Final = 16
"""Attempts of a reader that cannot hold retention off to stand at the oldest record before that is deleted."""
T = TypeVar("T")
Start = Literal["resume", "earliest", "latest"] | int | datetime
"""Where a reader begins: where it stopped, an end of the log, a sequence, or a time, in UTC if it names no zone."""


class Reader:
    """Reads a log in order, as far as it is written; iterating stops there, `follow` and `poll` wait."""

    def __init__(self, log: Log, name: str, lock: Lock | None, closed: "Callable[[Reader], None]") -> None:
        """Hold the parts; `Queue.reader` is what opens a reader.  `closed` is told when this one is."""
        self._log, self.name, self._lock, self._closed = log, name, lock, closed
        self._path = cursor_path(log.path / "readers", name)
        self._cursor: Cursor | None = None
        self._stream: Stream | None = None
        self._mark: Mark | None = None
        """Which log it reads, as long as it is open."""
        self._buffer: list[Record] = []
        self._taken = 0
        self._over = ClosedError(f"reader {name!r} is closed; open it again")
        """The error to raise once there is no stream."""
        close_after_fork(self)

    def begin(self, start: Start) -> None:
        """Go to where reading starts, and remember that unless it is where reading stopped.

        Only `"resume"` needs the stored position: any other start takes the place of one that is damaged.
        """
        self._mark = self._log.mark
        try:
            self._cursor = load_cursor(self._log.file_system, self._path)
        except CorruptError:
            if start == "resume":
                raise
        if start == "resume" and self._cursor is not None and self._cursor.sequence is not None:
            check_goes_on(self._log, self.name, self._cursor)
            self._move_to(self._cursor.sequence)
            return
        self._move_to(self._sequence_at(start))
        if self._lock is None:
            self._look_for_first(start)
            return
        self._log.make_durable(self._opened())  # Before retention is held off: a sync may take long.
        with retention_held(self._log.file_system, self._log.path) as held:
            self._look_for_first(start)
            position = self._opened().position()
            self._log.make_durable(self._opened())
            held.check()
            self._store(position)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_behind(self.close, error)

    @property
    def sequence(self) -> int:
        """The sequence of the next record."""
        return self._opened().sequence - (len(self._buffer) - self._taken)

    def __iter__(self) -> Iterator[Record]:
        """Yield every record that is written, then stop."""
        while (record := self.next()) is not None:
            yield record

    def next(self) -> Record | None:
        """Return the next record, or None if it is not written yet.

        Raises:
            DataLost: a policy removed it; `seek` past the gap.
            CorruptError: it is damaged.
            ClosedError: the reader or its log was closed.
        """
        if self._taken == len(self._buffer):
            self._fill(READ_RECORDS_MAX)
            if not self._buffer:
                return None
        record = self._buffer[self._taken]
        self._taken += 1
        return record

    def poll(self, max_records: int = READ_RECORDS_MAX, timeout: float | None = 0.0) -> list[Record]:
        """Return up to `max_records`, waiting at most `timeout` seconds (None: for ever) for the first.

        There may be more at once than are returned: a call does not reach past the end of a segment.

        Raises:
            DataLost, CorruptError, ClosedError: as `next`.
            UsageError: `max_records` is not 1 or more, or `timeout` is not seconds.
        """
        _check_count(max_records)
        seconds(timeout)
        if self._taken == len(self._buffer):
            if not self.wait(timeout):
                return []
            self._fill(max_records)
        records = self._buffer[self._taken : self._taken + max_records]
        self._taken += len(records)
        return records

    def read_arrow(
        self, max_records: int = ARROW_RECORDS_MAX, *, columns: Iterable[str] | None = None
    ) -> "pa.RecordBatch":
        """Return up to `max_records`, and about 2 MiB of payload, as an Arrow batch; it is empty at the end.

        Only `columns` are made, if they are given; see `Log.arrow_batches`.

        Raises:
            DataLost, CorruptError, ClosedError: as `next`.
            UsageError: `max_records` is not 1 or more, or there is no such column.
        """
        with no_fork():
            from latewood.log.arrow import Choice, record_batch  # noqa: PLC0415 - pyarrow takes 0.4 s to import

        choice = Choice(columns)
        _check_count(max_records)
        self._move_to(self.sequence, keep=True)
        first = self.sequence
        try:
            with Uninterrupted():
                read = self._read(lambda stream: stream.read_columns(max_records, selection=choice.selection))
            return record_batch(self._opened().sequence - read[0], read, choice)
        except BaseException:  # Also an interrupt: what was not handed out is read again.
            if self._stream is not None:
                self._move_to(first)
            raise

    def follow(self) -> Iterator[Record]:
        """Yield every record, and wait for more for ever.

        Raises:
            DataLost, CorruptError: as `next`.
            ClosedError: the reader or its log was closed meanwhile.
        """
        while True:
            yield from self
            self.wait(None)

    def wait(self, timeout: float | None) -> bool:
        """Wait until a record can be read, at most `timeout` seconds (None: for ever); return whether one can.

        Sleeps, and is woken by the append, also from another process.

        Raises:
            ClosedError: the reader or its log was closed, perhaps meanwhile.
            UsageError: `timeout` is not seconds.
        """
        timeout_s = seconds(timeout)
        return self._taken < len(self._buffer) or self._read(lambda stream: self._log.wait(stream, timeout_s))

    def commit(self) -> None:
        """Remember that every record handed out so far is dealt with.  Durable on return.

        The records themselves are made durable first: a reader must never be ahead of its log after a power cut.

        Raises:
            ReadOnlyError: the log's directory cannot be written.
            Poisoned, StorageError: the records cannot be made durable, because a sync failed, now or before.
            DataLost: the reader moved back to records that were retired meanwhile.
            DirectoryReplaced: the log's directory is not the one that was opened any more, or the reader's lock file.
            AnotherLog: the log was rebuilt, or another put in its place, while the reader was open: open it again.
        """
        if self._lock is None:
            message = f"{self._log.path} cannot be written, so reader {self.name!r} cannot commit"
            raise ReadOnlyError(message)
        with Uninterrupted():
            self._commit()

    def _commit(self) -> None:
        position = self._opened().position_of(self.sequence)
        self._check_is_same_log()
        self._log.make_durable(self._opened())
        known = self.committed_sequence
        if known is not None and known <= position.sequence:
            self._store(position)
            return
        with retention_held(self._log.file_system, self._log.path) as held:
            first = self._log.first_sequence
            if position.sequence < first:
                raise DataLost(position.sequence, first)
            held.check()
            self._store(position)

    def seek(
        self,
        *,
        sequence: int | None = None,
        timestamp: int | datetime | None = None,
        mark: Mark | None = None,
    ) -> None:
        """Go to a sequence, or to the first record at or after a time (a datetime, or nanoseconds since 1970).

        Not remembered until `commit`.  A sequence that a program keeps itself comes with the `log.mark` of the moment
        when it was taken.

        Raises:
            UsageError: not exactly one of the two, a sequence beyond the end, no time, or a mark without a sequence.
            AnotherLog: the sequence is of another log than the one that is here, or of records that this one lost.
            DataLost: that record was retired.
        """
        if (sequence is None) == (timestamp is None):
            message = "seek needs either sequence or timestamp"
            raise UsageError(message)
        if sequence is None:
            if mark is not None:
                raise UsageError("a mark says which log a sequence is of: give it with sequence")
            sequence = self._log.find_timestamp(nanoseconds(timestamp))
        elif mark is not None:
            check_position(self._log, sequence, mark)
        self._move_to(self._checked(sequence))
        self._opened().position()

    def lag(self) -> int:
        """Return how many written records are still to be read."""
        return max(0, self._log.next_sequence - self.sequence)

    @property
    def committed_sequence(self) -> int | None:
        """The sequence that the last `commit` stored."""
        return stored_sequence(self._cursor) if self._cursor else None

    def close(self) -> None:
        """Let go of the log.  Does not commit.  Closing the log does this too."""
        with Uninterrupted():
            stream, self._stream = self._stream, None
            self._buffer, self._taken = [], 0
            if stream is not None:
                stream.close()
            if self._lock is not None:
                self._lock.close()
            self._closed(self)

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child: the parent reads on, and commits."""
        if self._stream is not None:
            self._over = forked(f"reader {self.name!r} of {self._log.path}")
        self._stream, self._buffer, self._taken = None, [], 0

    def _store(self, position: Position) -> None:
        if self._lock is not None:
            self._lock.check()  # Without its file another reader of this name may be open.
        now_ns = self._log.clock.now_ns()
        self._cursor = store_cursor(self._log.file_system, self._path, self._cursor, position, now_ns, self._mark)

    def _check_is_same_log(self) -> None:
        """Raise if what was read may be of another log than the one whose records are made durable now."""
        mark = self._log.mark
        if self._mark is not None and mark != self._mark:
            reason = "the log was rebuilt, or another was put in its place, while this reader was open"
            raise AnotherLog(reason, self._path, "nothing was committed: open the log again, and the reader")
        self._mark = mark  # None before: an older program's log, which was upgraded since.

    def _opened(self) -> Stream:
        if self._stream is None:
            raise type(self._over)(*self._over.args)
        return self._stream

    def _fill(self, records_max: int) -> None:
        """Read what is handed out next.  An interrupt finds it here, or not read yet: it skips nothing."""
        with Uninterrupted():
            self._buffer, self._taken = self._read(lambda stream: stream.read(records_max)), 0

    def _read(self, read: Callable[[Stream], T]) -> T:
        try:
            return read(self._opened())
        except ValueError:  # Another thread has closed the log, and with it the memory that we were reading.
            self._opened()
            raise

    def _move_to(self, sequence: int, *, keep: bool = False) -> None:
        """Read from `sequence` on; `keep` saves opening the segment again if we are there already."""
        if keep and self._taken == len(self._buffer) and self._stream is not None:
            self._buffer, self._taken = [], 0
            return
        old, new = self._stream, self._log.stream(sequence)
        self._stream, self._buffer, self._taken = new, [], 0  # All at once: an interrupt comes before it, or after.
        if old is not None:
            old.close()

    def _look_for_first(self, start: Start) -> None:
        """Go to the oldest record if what was chosen has gone meanwhile; with retention held off, that stays.

        Raises:
            DataLost: it has gone, and is the one that was asked for; or the log loses records faster than we look.
        """
        for _ in range(_LOOKS_MAX):
            try:
                self._opened().position()
            except DataLost as error:
                if isinstance(start, int) or (start == "resume" and self._cursor is not None):
                    raise
                lost = error
            else:
                return
            self._move_to(self._log.first_sequence)
        raise lost

    def _sequence_at(self, start: Start) -> int:
        if isinstance(start, datetime):
            return self._log.find_timestamp(start)
        if isinstance(start, int) and not isinstance(start, bool):
            return self._checked(start)
        word: object = start  # The type says which words there are; a caller without a type checker may not.
        if word == "earliest":
            return self._log.first_sequence
        if word == "latest":
            return self._log.next_sequence
        if word == "resume":
            return self._legacy_sequence() if self._cursor else self._log.first_sequence
        message = f"start must be 'resume', 'earliest', 'latest', a sequence or a datetime, not {start!r}"
        raise UsageError(message)

    def _legacy_sequence(self) -> int:
        """Look up the sequence of a position that an older program stored without one."""
        assert self._cursor is not None
        offset = max(self._cursor.offset, HEADER_SIZE)
        sequence = self._log.view().sequence_at(self._cursor.segment_id, offset)
        if sequence is None:
            raise CorruptError("no record begins at this position", self._path, 0)
        return sequence

    def _checked(self, sequence: int) -> int:
        end = self._log.next_sequence
        if not 0 <= whole(sequence, "a sequence") <= end:
            message = f"sequence {sequence} is not in the log, which ends at {end}"
            raise UsageError(message)
        return sequence


def _check_count(max_records: int) -> None:
    if whole(max_records, "max_records") < 1:
        message = f"max_records must be 1 or more, not {max_records}"
        raise UsageError(message)
