"""A log: many segments, one writer, no consumers."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from latewood.clock import Clock, checked
from latewood.closing import Closing, close_behind
from latewood.errors import ClosedError, NotFoundError, UsageError
from latewood.forking import close_after_fork, forked, no_fork
from latewood.format.identity import LogIdentity, Mark, Owner
from latewood.format.manifest import Manifest
from latewood.fs import FileSystem, Lock, PosixFS
from latewood.interrupts import Uninterrupted, open_or_close
from latewood.kernel import Record
from latewood.limits import ARROW_RECORDS_MAX, READ_RECORDS_MAX, TIMESTAMP_NS_MAX, U64_MAX
from latewood.log.argument import nanoseconds, sequence_of, storable, whole_or_none
from latewood.log.batch import make_batch
from latewood.log.checkpoint import lock_checkpoint
from latewood.log.identity import Claim, claim_of
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.log.no_writer import NoWriter
from latewood.log.opening import open_writer
from latewood.log.options import LogOptions
from latewood.log.presence import check_is_log, check_may_become_log, directory_of
from latewood.log.site import Site
from latewood.log.stats import LogStats, stats_of
from latewood.log.stream import Stream
from latewood.log.view import View
from latewood.log.wake import Wake
from latewood.log.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa

    from latewood.log.group import GroupCommit

Mode = Literal["a", "r"]


class Log:
    """Ordered records in one directory, appended by one process and read by any number.

    Thread-safe, but not for signal handlers: one that interrupts a call of its own thread is refused.  After a fork
    the child must open the log again.  Use it as a context manager, or call `close`.
    """

    _writer: Writer

    def __init__(self, site: Site, options: LogOptions, mode: Mode) -> None:
        """Hold the parts; `Log.open` is what opens a log."""
        self._site = site
        self._fs, self._layout, self._clock = site
        self._options, self._mode = options, mode
        self._store = ManifestStore(self._fs, self._layout)
        self._lock: Lock | None = None
        self._wake: Wake
        self._group: GroupCommit | None = None
        self._group_lock = threading.Lock()
        self._closed: ClosedError | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: LogOptions | None = None,
        *,
        mode: Mode = "a",
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        background: bool = True,
        owner: Owner = Owner.ANYBODY,
        birth: bytes | None = None,
    ) -> Self:
        """Open the log in a directory, making it if it is not there.

        With `mode="r"` nothing is written and no lock is taken, so it works beside a writer and on a read-only
        directory.  `background=False` does all work in the calling thread, at the next append or flush.
        Without `segment_bytes_max` or `index_interval` a log goes on with those that it has.

        A log that is opened to append with an `owner` can be appended to by that owner alone from then on.  `birth`,
        16 bytes, is the identity of a log that has none yet, because it is made now or an older program made it; by
        default it is random.

        Raises:
            UsageError: the path is empty, or a directory with other files in it and no log.
            Owned: a store or a node keeps it, and `owner` says otherwise; nothing was written.
            Locked: another writer holds it.
            NotFoundError: `mode="r"` and there is no log.
            CorruptError: something that was durable is damaged.
            UnsupportedVersion: a later program wrote it.
        """
        if mode not in ("a", "r"):
            message = f"mode must be 'a' to append or 'r' to read, not {mode!r}"
            raise UsageError(message)
        fs = fs or PosixFS()
        site = Site(fs, Layout(fs.absolute(directory_of(path))), checked(clock))
        log = cls(site, options or LogOptions(), mode)
        claim = claim_of(owner, birth)
        opening = partial(log._open_to_write, claim, background=background)
        open_or_close(log._open_to_read if mode == "r" else opening, log.close)
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_behind(self.close, error)

    @property
    def path(self) -> Path:
        """The log's directory."""
        return self._layout.root

    @property
    def options(self) -> LogOptions:
        """The options it was opened with, and what it kept of those before."""
        return self._options

    @property
    def identity(self) -> LogIdentity | None:
        """Which log it is, and who may append to it.

        None: an older program made it, and it is only open to read; opening it to append gives it one.
        """
        return self._manifest().identity

    @property
    def mark(self) -> Mark | None:
        """What a position carries that is stored outside of this log, so that another is not taken for it."""
        identity = self.identity
        return identity.mark if identity else None

    # -- writing --------------------------------------------------------------------------------------

    def append(self, payload: bytes, *, ext_id: int = 0, timestamp_ns: int | None = None, durable: bool = False) -> int:
        """Append one record and return its sequence.

        Written on return: readers see it, and it survives the death of this process.  Durable on return, that is
        safe from a power cut, only with `durable=True` or after `flush`.  Concurrent durable appends share one
        fdatasync.  Rolls first if the record would not fit.

        Raises:
            UsageError: a timestamp after the year 2262; nothing was written.
            RecordTooLarge: no segment could ever hold it; nothing was written.
            DiskFull: there is no room for another segment; nothing was written.
            Poisoned, DirectoryReplaced: a sync failed, or the directory is another now; reopen the log.
            ReadOnlyError: the log was opened with `mode="r"`.
        """
        return self._writer.door.append(payload, ext_id=ext_id, timestamp_ns=timestamp_ns, durable=durable)

    def append_many(
        self,
        payloads: "Iterable[bytes] | pa.Array[Any]",
        *,
        ext_id: int = 0,
        ext_ids: Iterable[int] | None = None,
        timestamps_ns: int | Iterable[int] | None = None,
        durable: bool = False,
    ) -> range:
        """Append many records and return their sequences, which are neighbours.

        Payloads are bytes-likes, or a `pyarrow` array of binary values, which is not turned into Python objects.
        Readers see the batch at once, as far as it lies in one segment and in 1 MiB.  Written on return, and durable
        with `durable=True`.  `ext_ids` and `timestamps_ns` may have one value for each record.

        Raises:
            UsageError: a value out of bounds, or not one for each record; nothing was written.
            RecordTooLarge: one of them never fits; nothing was written.
            DiskFull: there was no room for another segment; a note says how many were appended.
            Poisoned, DirectoryReplaced: a sync failed, or the directory is another now; reopen the log.
            ReadOnlyError: the log was opened with `mode="r"`.
        """
        writer = self._writer
        sequences = writer.append_many(make_batch(payloads, ext_id, ext_ids, timestamps_ns))
        if durable:
            writer.durability.flush_to(sequences.stop)
        return sequences

    async def append_async(self, payload: bytes, *, ext_id: int = 0, timestamp_ns: int | None = None) -> int:
        """Append one record and return its sequence once it is durable, without blocking the event loop.

        Raises:
            UsageError, RecordTooLarge, DiskFull, Poisoned, DirectoryReplaced, ReadOnlyError: as `append`.
        """
        self._check_open()
        if ext_id:
            storable(ext_id, U64_MAX, "ext_id")
        if timestamp_ns is not None:
            storable(timestamp_ns, TIMESTAMP_NS_MAX, "timestamp_ns")
        group = self._group or self._group_commit()
        sequence = self._writer.try_append(payload, ext_id, timestamp_ns)
        if sequence < 0:
            sequence = await group.append(payload, ext_id, timestamp_ns)
        await group.durable(sequence + 1)
        return sequence

    def flush(self) -> None:
        """Make everything appended so far durable.

        Raises:
            Poisoned: the sync failed, now or before; reopen the log.
            DirectoryReplaced: another directory is in its place now; reopen the log.
        """
        self._writer.flush()

    def roll(self) -> int | None:
        """Seal the open segment and begin the next; return the sealed one's id, or None if it has no records yet.

        What was appended so far is durable on return.  `seal` is another name for it.

        Raises:
            DiskFull: there is no room for the next segment; nothing was sealed.
            Poisoned, DirectoryReplaced: a sync failed, or the directory is another now; reopen the log.
            ReadOnlyError: the log was opened with `mode="r"`.
        """
        return self._writer.roll()

    seal = roll

    def set_ext_id(self, ext_id: int) -> None:
        """Begin a cohort: segments from here on carry `ext_id` in header and footer.  Durable on return.

        The open segment is sealed first if it has records.

        Raises:
            UsageError: it does not fit 64 bits.
            DiskFull, Poisoned, DirectoryReplaced, ReadOnlyError: as `roll`.
        """
        self._writer.set_ext_id(storable(ext_id, U64_MAX, "ext_id"))

    @property
    def coordinator_watermark(self) -> int:
        """The operation-log sequence that the next seal records, for replay to resume after."""
        return self._writer.coordinator_watermark

    @coordinator_watermark.setter
    def coordinator_watermark(self, watermark: int) -> None:
        self._writer.coordinator_watermark = storable(watermark, U64_MAX, "coordinator_watermark")

    # -- reading --------------------------------------------------------------------------------------

    @property
    def next_sequence(self) -> int:
        """The sequence of the next record to be appended."""
        self._check_open()
        return self._writer.segment.appender.sequence if self._mode == "a" else self.view().end().sequence

    @property
    def durable_sequence(self) -> int:
        """Every record below this sequence is durable."""
        self._check_open()
        return self._writer.durability.durable_sequence if self._mode == "a" else self.view().durable()

    @property
    def first_sequence(self) -> int:
        """The oldest sequence that the log still holds."""
        return self._manifest().first_sequence

    def read(self, sequence: int) -> Record:
        """Return one record.

        Raises:
            NotFoundError: it is not written yet.
            DataLost: it was retired.
            CorruptError: it is damaged.
            UsageError: that is no sequence.
        """
        sequence = sequence_of(sequence)
        for record in self.scan(sequence, sequence + 1):
            return record
        message = f"record {sequence} is not written yet; the next will be {self.next_sequence}"
        raise NotFoundError(message)

    def scan(self, start: int | None = None, stop: int | None = None) -> Iterator[Record]:
        """Yield records from `start`, by default the oldest, up to `stop` or what is written when we get there.

        Raises:
            DataLost: they were retired.
            CorruptError: one of them is damaged.
            UsageError: `start` or `stop` is no sequence.
        """
        stop = whole_or_none(stop, "stop")
        if (stream := self._stream_from(start)) is None:
            return
        try:
            while stop is None or stream.sequence < stop:
                left = READ_RECORDS_MAX if stop is None else min(READ_RECORDS_MAX, stop - stream.sequence)
                if not (records := stream.read(left)):
                    return
                yield from records
        finally:
            stream.close()

    def arrow_batches(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        keys: bool = False,
    ) -> "Iterator[pa.RecordBatch]":
        """Yield what `scan` does as Arrow batches of at most 64k rows, in flat memory; needs `latewood[arrow]`.

        Only `columns` are made, if they are given: `sequence`, `timestamp`, `ext_id`, `payload`, or `length`, the
        payload's, which needs no payload.  Every checksum is looked at all the same.  With `keys`, of a log whose
        records have keys, `key` is a column of its own, and what follows it is the payload.

        Raises:
            DataLost, CorruptError: as `scan`.
            UsageError: as `scan`, or there is no such column.
        """
        with no_fork():
            from latewood.log.arrow import Choice, record_batch  # noqa: PLC0415 - pyarrow takes 0.4 s to import

        choice = Choice(columns, keys=keys)
        stop = whole_or_none(stop, "stop")
        if (stream := self._stream_from(start)) is None:
            return
        try:
            while stop is None or stream.sequence < stop:
                left = ARROW_RECORDS_MAX if stop is None else min(ARROW_RECORDS_MAX, stop - stream.sequence)
                read = stream.read_columns(left, choice.bytes_max, choice.selection)
                if not read[0]:
                    return
                yield record_batch(stream.sequence - read[0], read, choice)
        finally:
            stream.close()

    def to_arrow(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        columns: Iterable[str] | None = None,
        keys: bool = False,
    ) -> "pa.Table":
        """Return what `arrow_batches` yields as one Arrow table, all of it in memory; needs `latewood[arrow]`.

        Raises:
            DataLost, CorruptError, UsageError: as `arrow_batches`.
        """
        with no_fork():
            from latewood.log.arrow import Choice, table  # noqa: PLC0415 - pyarrow takes 0.4 s to import

        choice = Choice(columns, keys=keys)
        return table(list(self.arrow_batches(start, stop, columns=choice.names, keys=keys)), choice)

    def find_timestamp(self, timestamp: int | datetime) -> int:
        """Return the sequence of the first record at or after a time, or that of the next to be appended.

        The time is a datetime, in UTC if it names no zone, or nanoseconds since 1970.

        Raises:
            UsageError: it is neither.
        """
        return self.view().find_timestamp(nanoseconds(timestamp))

    def stats(self) -> LogStats:
        """Return the log in figures."""
        return stats_of(self.path, self._manifest(), self.view().end(), self.durable_sequence)

    # -- for the layers above ---------------------------------------------------------------------------

    def view(self) -> View:
        """Return a fresh look at which segments there are."""
        self._check_open()
        return View(self._fs, self._layout, self._manifest)

    def stream(self, sequence: int) -> Stream:
        """Return a stream of records from `sequence` on."""
        return Stream(self.view(), sequence_of(sequence))

    @property
    def file_system(self) -> FileSystem:
        """The disk it lives on."""
        return self._fs

    @property
    def clock(self) -> Clock:
        """The clock it goes by."""
        return self._clock

    def wait(self, stream: Stream, timeout_s: float | None) -> bool:
        """Sleep until `stream` has a record, at most `timeout_s` (None: for ever); return whether it has."""
        self._check_open()
        # A writer checks at its next sync.  A reader that waits would never notice that its directory was replaced.
        check = None if self._mode == "a" else self._fs.check_root
        ready = self._wake.wait(lambda: self._closed is not None or stream.has_more(), timeout_s, check)
        self._check_open()
        return ready

    def make_durable(self, stream: Stream) -> None:
        """Make every record that `stream` has passed durable."""
        self._check_open()
        if self._mode == "a":
            self._writer.durability.flush_to(stream.sequence)
        else:
            stream.sync()

    def close(self) -> None:
        """Flush, record the final state, and release the log.  Closing twice is fine.

        Raises:
            Poisoned, DirectoryReplaced: the last flush failed, or could not be made in the directory that was opened.
        """
        if self._closed:
            return
        with Uninterrupted(), Closing() as closing:
            if self._group:
                closing(self._group.close)
            closing(self._writer.close)
            if self._writer.is_closed:  # If an interrupt came first, nobody else may write yet: close again.
                self._closed = ClosedError("the log is closed; open it again")
                closing(self._wake.wake)
                closing(self._wake.close)
                if self._lock:
                    closing(self._lock.close)
                closing(self._fs.close)

    def abandon_after_fork(self) -> None:
        """Refuse all further use in a forked child."""
        self._closed = self._closed or forked(self.path)
        if self._mode == "a":
            self._writer.abandon_after_fork(self._closed)

    def _open_to_read(self) -> None:
        check_is_log(self._fs, self._layout, self._store)
        self._hold_directory()
        self._writer = NoWriter()
        self._wake = Wake(self._fs, self._layout, create=False)
        close_after_fork(self)

    def _open_to_write(self, claim: Claim, *, background: bool) -> None:
        check_may_become_log(self._fs, self._layout, self._store, claim.owner)
        self._fs.make_directory(self._layout.root)
        self._hold_directory()
        with ExitStack() as undo:
            undo.callback(self._fs.close)
            self._lock = self._fs.lock_root(self._layout.lock)
            undo.callback(self._lock.close)
            if (checkpoint := lock_checkpoint(self._fs, self._layout)) is not None:
                undo.callback(checkpoint.close)
            self._wake = Wake(self._fs, self._layout, create=True)
            undo.callback(self._wake.close)  # Its mapping keeps a descriptor.
            self._writer, self._options = open_writer(
                self._site, self._options, self._store, self._wake, claim, checkpoint, background=background
            )
            undo.pop_all()
        if type(self).append is Log.append:
            # The kernel's own method in place of ours, which only calls it: that saves half of an append's time.
            self.append = self._writer.door.append  # type: ignore[method-assign]
        close_after_fork(self)

    def _hold_directory(self) -> None:
        """Find everything through the directory as it is now, wherever its path will lead to."""
        self._fs = self._fs.rooted(self._layout.root)
        self._site = self._site._replace(fs=self._fs)
        self._store = ManifestStore(self._fs, self._layout)

    def _manifest(self) -> Manifest:
        self._check_open()
        if self._mode == "a":
            return self._writer.manifest
        try:
            return self._store.load_while_written()
        finally:  # Also if it could not be read: a directory that was deleted says more than its files.
            self._fs.check_root()

    def _stream_from(self, start: int | None) -> Stream | None:
        """Return a stream from `start`, by default the oldest record; None if that lies beyond the end."""
        if start is None:
            return self.stream(self.first_sequence)
        return None if sequence_of(start) > self.next_sequence else self.stream(start)

    def _group_commit(self) -> "GroupCommit":
        with self._group_lock:
            if self._group is None:
                with no_fork():
                    from latewood.log.group import GroupCommit  # noqa: PLC0415 - asyncio takes 40 ms to import

                self._group = GroupCommit(self._writer)
            return self._group

    def _check_open(self) -> None:
        if self._closed:
            raise type(self._closed)(*self._closed.args)
