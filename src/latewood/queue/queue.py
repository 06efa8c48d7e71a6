"""A queue: a log plus who has read what, and what may therefore go."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from latewood.clock import Clock
from latewood.closing import Closing
from latewood.errors import BadName, CorruptError, NotFoundError, ReadOnlyError, UsageError
from latewood.fs import FileSystem, Lock
from latewood.interrupts import Uninterrupted
from latewood.limits import check_name
from latewood.log import Log, LogOptions, Mark, Mode, Owner
from latewood.log.identity import Claim
from latewood.log.layout import segment_id_of
from latewood.log.site import Site
from latewood.queue.ahead import check_goes_on, mark_readers_ahead
from latewood.queue.cursor import cursor_names, cursor_path, load_cursor, sync_cursors
from latewood.queue.elsewhere import check_position
from latewood.queue.holding import retention_held
from latewood.queue.reader import Reader, Start
from latewood.queue.retention import Plan, ReaderState, RetentionPolicy, SealedSegment, plan
from latewood.segment import read_sealed_footer


class ReaderInfo(NamedTuple):
    """A named reader, seen from outside."""

    name: str
    sequence: int
    """The next record it wants."""
    lag: int
    """Records written that it has not committed."""
    committed_at_ns: int
    """When it did so last, in nanoseconds since 1970."""


class Queue(Log):
    """A log with named readers and retention: what `latewood.open` returns."""

    retention = RetentionPolicy()
    _swept = False

    def __init__(self, site: Site, options: LogOptions, mode: Mode) -> None:
        """Hold the parts; `latewood.open` is what opens a queue."""
        super().__init__(site, options, mode)
        self._opened_readers: set[Reader] = set()

    def reader(self, name: str, start: Start = "resume") -> Reader:
        """Open a named reader; its position outlives the process, and holds retention back.

        `start` is `"resume"` (where it stopped; the oldest record if it is new), `"earliest"`, `"latest"`, a
        sequence, or a datetime.

        Raises:
            BadName: the name cannot be a file name.
            Locked: another reader of this name is open.
            DataLost: a policy removed the records it would begin with; start it elsewhere.
            ReaderAhead: it had read more than the log has, which was restored or rebuilt; start it elsewhere.
            AnotherLog: its position is of another log, as when this one was deleted and made anew; start it elsewhere.
            UsageError: `start` is none of these, or beyond the end.
        """
        _check_reader_name(name)
        reader: Reader | None = None
        try:
            with Uninterrupted():
                reader = Reader(self, name, self._reader_lock(name), self._opened_readers.discard)
                self._opened_readers.add(reader)
                reader.begin(start)
        except BaseException:  # Also an interrupt, which acts at the end of the block: its lock would stay taken.
            if reader is not None:
                reader.close()
            raise
        return reader

    def check_position(self, sequence: int, mark: Mark | None) -> None:
        """Do nothing if a position that a program keeps elsewhere is one of this log.

        `mark` is `log.mark` of the moment when it was taken; None, which an older program gave, is believed.

        Raises:
            AnotherLog: it is of another log, or of records that this one lost or does not have any more.
            UsageError: that is no sequence, or no mark.
        """
        check_position(self, sequence, mark)

    def readers(self) -> list[ReaderInfo]:
        """Return all named readers with their lag.

        Raises:
            CorruptError: a reader's file is damaged, or it had read more than the log has, or another log.
        """
        end = self.next_sequence
        return [
            ReaderInfo(state.name, state.sequence, max(0, end - state.sequence), state.committed_at_ns)
            for state in self._reader_states()
        ]

    def remove_reader(self, name: str) -> None:
        """Forget a reader; it holds nothing back any more.

        Raises:
            NotFoundError: there is none of that name.
            Locked: it is open.
            UnsupportedVersion: a later program wrote its position.
        """
        path = cursor_path(self._layout.readers, _check_reader_name(name))
        if not self._fs.exists(path):
            message = f"there is no reader {name!r} at {self.path}"
            raise NotFoundError(message)
        lock = self._reader_lock(name)
        if lock is None:
            message = f"{self._layout.readers} cannot be written"
            raise ReadOnlyError(message)
        try:
            with suppress(CorruptError):  # A damaged one is removed.
                load_cursor(self._fs, path)
            self._fs.remove(path)
            self._fs.sync_directory(path.parent)
            self._fs.check_root()
        finally:
            lock.close()

    def cleanup(self, *, dry_run: bool = False) -> list[int]:
        """Delete the segments that nobody needs; return their ids.  With `dry_run`, only say which.

        A segment goes once every reader has passed it; see `RetentionPolicy` for what else may.

        Raises:
            CorruptError: a reader's file is damaged, or it had read more than the log has, or another log; nothing is
                deleted until it is moved or removed.
            ReadOnlyError: the log was opened with `mode="r"`.
        """
        if dry_run:
            return self.retention_plan().retire
        if self._mode == "r":
            raise ReadOnlyError("the log was opened with mode='r'; open it without to clean up")
        with Uninterrupted(), retention_held(self._fs, self.path) as lock:
            if not self._swept:
                self._writer.remove_files(self._orphans())
                self._swept = True
            retire = self.retention_plan().retire
            if retire:
                sync_cursors(self._fs, self._layout.readers)
                lock.check()
                self._swept = False  # Until every file is gone: what fails half-way is swept next time.
                self._writer.retire(retire[-1])
                self._swept = True
            return retire

    def retention_plan(self) -> Plan:
        """Return what `cleanup` would delete, and which readers keep the rest."""
        entries = self._manifest().entries
        count = len(entries) if self.retention.max_bytes is not None else 0
        sealed_bytes = sum(entries[index].size for index in range(count))
        now_ns = self._clock.now_ns()
        return plan(self._sealed_segments(), sealed_bytes, self._reader_states(), self.retention, now_ns)

    def close(self) -> None:
        """Flush, record the final state, and release the log.  Its readers are closed too, and commit nothing.

        Closing twice is fine.

        Raises:
            Poisoned, DirectoryReplaced: the last flush failed, or could not be made in the directory that was opened.
        """
        with Uninterrupted(), Closing() as closing:
            closing(super().close)
            for reader in list(self._opened_readers):
                closing(reader.close)  # After the log, so that one that waits in another thread finds that closed.

    def _open_to_write(self, claim: Claim, *, background: bool) -> None:
        super()._open_to_write(claim, background=background)
        try:
            mark_readers_ahead(self)
        except BaseException:
            self.close()
            raise

    def _sealed_segments(self) -> Iterator[SealedSegment]:
        entries = self._manifest().entries
        for index in range(len(entries)):
            entry = entries[index]
            sealed_at_ns = 0
            if self.retention.max_age_ms is not None:
                file = self._fs.open(self._layout.absolute(entry.path))
                try:
                    sealed_at_ns = read_sealed_footer(file, entry).sealed_at
                finally:
                    file.close()
            yield SealedSegment(entry.segment_id, entry.end_sequence, entry.size, sealed_at_ns)

    def _reader_states(self) -> list[ReaderState]:
        states, cursors = [], []
        for name in cursor_names(self._fs, self._layout.readers):
            cursor = load_cursor(self._fs, cursor_path(self._layout.readers, name))
            if cursor is None:
                continue
            sequence = cursor.sequence
            if sequence is None:  # A position of an older program: the start of its segment is near enough.
                sequence = self.view().sequence_at(cursor.segment_id, 0) or 0
            states.append(ReaderState(name, sequence, cursor.committed_at))
            cursors.append((name, cursor))
        for name, cursor in cursors:  # The end is looked at after the positions, which only follow it.
            check_goes_on(self, name, cursor)
        return states

    def _orphans(self) -> list[Path]:
        """Return segments that an interrupted cleanup took out of the manifest but not off the disk."""
        manifest = self._manifest()
        known = {manifest.entries[index].path for index in range(len(manifest.entries))}
        found = []
        for path in self._fs.walk(self._layout.segments):
            segment_id = segment_id_of(path)
            if segment_id is not None and segment_id < manifest.active.segment_id:
                found += [path] if self._layout.relative(path) not in known else []
        return found

    def _reader_lock(self, name: str) -> Lock | None:
        """Take a reader's lock; None if the directory cannot be written."""
        with suppress(ReadOnlyError):
            self._fs.make_directory(self._layout.readers)
            lock = self._fs.lock(self._layout.readers / f"{name}.lock")
            try:
                for directory in (self._layout.readers, self.path):
                    self._fs.sync_directory(directory)  # Whoever made this reader may have died before that.
            except BaseException:
                lock.close()
                raise
            return lock
        return None


def open_queue(  # noqa: PLR0913 - all that `Log.open` takes, and retention
    path: str | Path,
    options: LogOptions | None = None,
    *,
    mode: Mode = "a",
    retention: RetentionPolicy | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    background: bool = True,
    owner: Owner = Owner.ANYBODY,
    birth: bytes | None = None,
    **fields: Any,
) -> Queue:
    """Open the log in a directory, making it if it is not there.

    Options may be given as a `LogOptions`, or by name: `latewood.open("events", flush_ms=5)`.  With `mode="r"`
    nothing but readers' positions is written and no lock is taken, so it works beside a writer, and on a
    read-only directory.  Segment size and index interval are as the log has them, unless they are given.

    A log that is opened to append with an `owner` can be appended to by that owner alone from then on.  `birth`, 16
    bytes, is the identity of a log that has none yet; by default it is random.

    Raises:
        UsageError: an unknown option, or a value out of bounds; a path that is empty, or names a directory with other
            files in it and no log.
        Owned: a store or a node of a cluster keeps it; nothing was written.
        Locked: another writer holds it.
        NotFoundError: `mode="r"` and there is no log.
        CorruptError: something that was durable is damaged.
        UnsupportedVersion: a later program wrote it.
    """
    given: tuple[object, object] = options, retention  # Whatever their types say: `open(path, "r")` is easily written.
    if not isinstance(given[0], LogOptions | None) or not isinstance(given[1], RetentionPolicy | None):
        raise UsageError("options are a LogOptions and retention a RetentionPolicy; to read, say mode='r'")
    if fields:
        options = _options_from(options, fields)
    policy = retention or RetentionPolicy()  # Before: a log that is open, and that nobody gets, would stay locked.
    queue = Queue.open(path, options, mode=mode, fs=fs, clock=clock, background=background, owner=owner, birth=birth)
    queue.retention = policy
    return queue


def _check_reader_name(name: object) -> str:
    """Return a reader's name if it can be one."""
    if not isinstance(name, str):
        message = f"a reader's name is a str, not {name!r}"
        raise BadName(message)
    return check_name(name, "reader")


def _options_from(options: LogOptions | None, fields: dict[str, Any]) -> LogOptions:
    names = list(LogOptions.__dataclass_fields__)
    unknown = sorted(set(fields) - set(names))
    if unknown or options is not None:
        problem = f"unknown option {unknown[0]!r}" if unknown else "give options by name or as LogOptions, not both"
        message = f"{problem}; the options are {', '.join(names)}"
        raise UsageError(message)
    return LogOptions(**fields)
