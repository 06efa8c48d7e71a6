"""What of the open segment is durable, and how far appends may run ahead of that.

Threads: any may call `flush_to` and `reserve`; `_rounds` makes one of them the leader whose fdatasync serves
all that wait.  A failed sync poisons the log: the kernel has dropped the pages, so a retry would only pretend.

Invariant: no byte of a record is written at or after the `reserved_end` of a durable checkpoint.
Order of writes: docs/crash-safety.md, "flush" and "checkpoint".
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from latewood.errors import DirectoryReplaced, LatewoodError, Poisoned
from latewood.format.checkpoint import Checkpoint, encode
from latewood.format.record import record_bytes
from latewood.fs import FileSystem
from latewood.interrupts import Uninterrupted
from latewood.limits import CHECKPOINT_BYTES
from latewood.log import roll
from latewood.log.checkpoint import CheckpointFile
from latewood.segment import SegmentWriter, Tail

_ROUND_MAX_S: Final = 1.0
"""A thread that waits for another's sync looks for itself after this."""


class Durability:
    """Syncs, checkpoints and reservations of one log."""

    def __init__(self, checkpoint_file: CheckpointFile, fs: FileSystem, root: Path) -> None:
        self._file, self._fs, self._root = checkpoint_file, fs, root
        self._path: Path | None = None
        """Where readers find the open segment."""
        self.lock = threading.RLock()
        """Held while syncing, and by the writer while it replaces the segment."""
        self._turn = threading.Lock()
        """Held for moments only, and guards `_led`."""
        self._rounds = threading.Condition(self._turn)
        """Wakes those that a sync may have served.  Entered by its lock: an interrupt would leave it locked."""
        self._led = False
        """Whether a leader is at work for all that wait."""
        self._gate = threading.Lock()
        """Guards what the appender is allowed."""
        self._segment: SegmentWriter
        self.durable_sequence = 0
        """Every record below this sequence is durable."""
        self._durable_tail: Tail
        self.reserved_end = 0
        self.flush_failed = False
        self.records_max = 0
        self._batching = False
        self.failure: BaseException | None = None
        self.failure_was_told = False
        """Whether a caller has heard of it: one that only the background met is told by `close`."""

    def attach(
        self, segment: SegmentWriter, path: Path, *, reserved_end: int, flush_failed: bool, records_max: int
    ) -> None:
        """Take over a segment whose records are all durable.  The caller holds `lock`."""
        tail = segment.tail()
        with self._gate:
            self._segment, self._path = segment, path
            self._durable_tail = tail
            self.reserved_end, self.records_max, self.flush_failed = reserved_end, records_max, flush_failed
            self.durable_sequence = segment.header.base_record_count + tail.record_count
            self._allow(0)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes appended since the last sync."""
        return self._segment.appender.offset - self._durable_tail.offset

    @property
    def wants_checkpoint(self) -> bool:
        """Whether recovery would have to scan more than it should."""
        return self.unsynced_bytes >= CHECKPOINT_BYTES

    def flush_to(self, stop: int) -> None:
        """Make every record below sequence `stop` durable.

        Raises:
            Poisoned: a sync failed, now or before.
        """
        if self.durable_sequence >= stop or not self._becomes_leader(stop):
            return
        try:
            with self.lock:
                if self.durable_sequence < stop:
                    self._sync(reserved_end=None)
        finally:
            with self._turn:
                self._led = False
                self._rounds.notify_all()

    def _becomes_leader(self, stop: int) -> bool:
        """Wait until every record below `stop` is durable, or until it is this thread's turn to see to that.

        Nobody queues for `lock` meanwhile: the leader that leaves it comes back at once, with one more record, and
        would sync again before those that it has served get in to see it.
        """
        with self._turn:
            while self._led and self.durable_sequence < stop:
                with Uninterrupted():
                    was_woken = self._rounds.wait(_ROUND_MAX_S)
                if not was_woken:
                    break  # A slow disk, or a leader that was interrupted: `lock` decides.
            leads = self.durable_sequence < stop
            self._led = self._led or leads
            return leads

    def reserve(self, payload_bytes: int) -> None:
        """Let appends go on, at least by one of this size, behind a durable checkpoint.

        Raises:
            Poisoned: a sync failed, now or before.
        """
        with self.lock:
            self.check()
            tail = self._segment.tail()
            if tail.offset + record_bytes(payload_bytes) > self.reserved_end:
                self._advance(tail, payload_bytes)
            self.allow(payload_bytes)

    def checkpoint(self) -> None:
        """Bound what recovery would scan, if it has become too much.

        Raises:
            Poisoned: a sync failed, now or before.
        """
        with self.lock:
            if self.failure is None and self.wants_checkpoint:
                self._advance(self._segment.tail(), 0)
                self.allow(0)

    def allow(self, payload_bytes: int) -> None:
        """Let single appends go on inside what is reserved."""
        with self._gate:
            self._allow(payload_bytes)

    def begin_batch(self) -> None:
        """Hold single appends off, so that the records of a batch are neighbours."""
        with self._gate:
            self._batching = True
            self._allow(0)

    def end_batch(self) -> None:
        """Let single appends in again."""
        with self._gate:
            self._batching = False
            self._allow(0)

    @property
    def is_batching(self) -> bool:
        """Whether single appends are held off."""
        return self._batching

    def check(self) -> None:
        """Raise if the log was poisoned.

        Raises:
            Poisoned: it was.
            DirectoryReplaced: it was, because its path leads elsewhere.
        """
        if self.failure is not None:
            self.failure_was_told = True
            if isinstance(self.failure, DirectoryReplaced):
                raise DirectoryReplaced(*self.failure.args) from self.failure
            reason = str(self.failure) or type(self.failure).__name__
            message = f"the log stopped writing because of this: {reason}; reopen it to see what is durable"
            raise Poisoned(message) from self.failure

    def check_found(self) -> None:
        """Raise if the directory was found to be another, or the open segment to be gone: nothing is durable there.

        Raises:
            DirectoryReplaced: it was.
        """
        if isinstance(self.failure, DirectoryReplaced):
            self.check()

    def check_directory(self) -> None:
        """Stop all appends for good if the log's path leads to another directory now, or its open segment is gone.

        Raises:
            DirectoryReplaced: it does; nothing may be acknowledged any more.
        """
        try:
            self._fs.check_root()
            self._check_segment()
        except DirectoryReplaced as error:
            with self.lock:
                self.poison(error)
            self.check()

    def _check_segment(self) -> None:
        if self._path is None or self._fs.exists(self._path):
            return
        self._fs.check_root()  # A directory that was deleted since says more than what is missing in it.
        what = self._path.relative_to(self._root)
        raise DirectoryReplaced(self._root, f"its open segment {what} was deleted or moved", "segment")

    def poison(self, failure: BaseException) -> None:
        """Stop all appends for good, and leave a mark that the next seal carries on.  The caller holds `lock`."""
        if self.failure is None:
            self.failure = failure
        self._segment.appender.close()
        if isinstance(failure, DirectoryReplaced):  # The disk did nothing wrong.
            return
        self.flush_failed = True
        # Before the first reservation nothing was written behind what is durable; recovery believes no smaller end.
        reserved_end = max(self.reserved_end, self._durable_tail.offset)
        with suppress(LatewoodError):
            self._file.write(self._checkpoint(self._durable_tail, reserved_end), durable=False)

    @contextmanager
    def poisoned_by_failure(self) -> Iterator[None]:
        """Stop the log if something fails after which the disk may hold the old or the new."""
        try:
            yield
        except BaseException as error:
            with self.lock:
                self.poison(error)
            if isinstance(error, LatewoodError):
                self.check()
            raise

    def write_first_checkpoint(self, segment: SegmentWriter, reserved_end: int) -> None:
        """Reserve the start of a new segment, durably, before anything is appended to it."""
        checkpoint = _checkpoint_of(segment, segment.tail(), reserved_end, flush_failed=False)
        self._file.write(checkpoint, durable=True)

    def close(self) -> None:
        """Close `index.meta`."""
        self._file.close()

    def _advance(self, tail: Tail, payload_bytes: int) -> None:
        end = roll.reservation_end(tail.offset, payload_bytes, self._segment.records_end_max)
        self._sync(reserved_end=max(end, self.reserved_end))

    def _sync(self, *, reserved_end: int | None) -> None:
        """Sync the segment and note how far; a new reservation is durable before it is used."""
        self.check()
        self._secure_note()
        tail = self._segment.tail()
        reserved = self.reserved_end if reserved_end is None else reserved_end
        note = encode(self._checkpoint(tail, reserved))
        start, durable = self._durable_tail.offset, reserved_end is not None
        try:  # 1. The records.  2. How far they go.
            self._segment.sync_and_note(start, tail.offset, self._file.file, note, durable=durable)
        except LatewoodError as error:
            self.poison(error)
            self.check()
        self.check_directory()  # 3. They are in the directory that readers find.
        self._durable_tail = tail
        self.reserved_end = reserved  # 4. Only now may appends pass the old reservation.
        self.durable_sequence = self._segment.header.base_record_count + tail.record_count

    def _secure_note(self) -> None:
        """Have a first checkpoint in `index.meta`, so that later ones take no more room.

        Raises:
            DiskFull: there is none for it; nothing was changed.
        """
        if self._file.is_empty:
            reserved_end = max(self.reserved_end, self._durable_tail.offset)
            self._file.write(self._checkpoint(self._durable_tail, reserved_end), durable=False)

    def _checkpoint(self, tail: Tail, reserved_end: int) -> Checkpoint:
        return _checkpoint_of(self._segment, tail, reserved_end, flush_failed=self.flush_failed)

    def _allow(self, payload_bytes: int) -> None:
        if self.failure is None:
            appender, end = self._segment.appender, self.reserved_end
            single = 0 if self._batching else roll.allowed_end(appender.offset, payload_bytes, end)
            appender.allow(single, end, self.records_max)


def _checkpoint_of(segment: SegmentWriter, tail: Tail, reserved_end: int, *, flush_failed: bool) -> Checkpoint:
    return Checkpoint(
        segment.header.segment_index,
        tail.offset,
        reserved_end,
        *tail[1:],
        durable_sequence=segment.header.base_record_count + tail.record_count,
        flush_failure_flag=flush_failed,
    )
