"""The writing half of a log: append, roll, seal, retire.

Threads: single appends go straight to the kernel's appender, which is thread-safe by itself.  Whatever finds no
room there, and everything that changes which segment is open, holds `_lock`.  `Durability` has its own
lock, always taken after `_lock`.  The housekeeper thread calls `housekeep`.

Order of writes on roll: docs/crash-safety.md, "roll".
"""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from latewood.clock import SystemClock
from latewood.closing import Closing
from latewood.errors import ClosedError, DirectoryReplaced, LatewoodError, NotFoundError, Poisoned, UnavailableError
from latewood.format.entries import SegmentEntry
from latewood.format.manifest import ActiveSegment, Manifest
from latewood.format.segment import HEADER_SIZE, SegmentFooter, SegmentHeader
from latewood.fs import File, check_free
from latewood.interrupts import Uninterrupted
from latewood.kernel import Door
from latewood.limits import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_SMALL,
    SEGMENT_ID_MAX,
    TIMESTAMP_NS_MAX,
    U64_MAX,
    check_number,
)
from latewood.log import roll
from latewood.log.batch import Batch
from latewood.log.checkpoint import CheckpointFile
from latewood.log.creation import begin_segment, header_after
from latewood.log.durability import Durability
from latewood.log.exclusion import Exclusion
from latewood.log.housekeeper import Housekeeper
from latewood.log.layout import NANOSECONDS, segment_path
from latewood.log.manifest import ManifestStore
from latewood.log.options import LogOptions
from latewood.log.pointer import pointer_to, store_pointer
from latewood.log.recovery import Recovered
from latewood.log.site import Site
from latewood.log.timing import Timing
from latewood.log.wake import Wake
from latewood.segment import SegmentWriter, empty_tail, file_bytes, prepare

_RECORDS_UNBOUNDED = 1 << 62
_DESCRIPTORS_OF_A_ROLL = 8
"""More than a roll has open at a time behind its seal: without one of them it would end the log."""
_logger = logging.getLogger(__name__)


class Writer:
    """Appends to one log.  There is one per log, in one process: its lock file says so."""

    def __init__(
        self, site: Site, options: LogOptions, store: ManifestStore, wake: Wake, checkpoint: File | None
    ) -> None:
        self._fs, self._layout, self._clock = site
        self._options, self._store, self._wake = options, store, wake
        self._lock = Exclusion()
        self.durability = Durability(CheckpointFile(self._fs, self._layout, checkpoint), self._fs, self._layout.root)
        self._housekeeper: Housekeeper | None = None
        self._prepared: File | None = None
        self._prepare_lock = threading.Lock()
        self._scratch: memoryview | None = None
        """Where large batches are packed.  Written from there, they spare the mapping a fault for each page."""
        self._closed: ClosedError | None = None
        self._has_no_policy = False
        """Whether single appends may go straight to the appender."""
        self._system_clock = isinstance(self._clock, SystemClock)
        self._timing = Timing(options, self._clock)
        self.coordinator_watermark = 0
        self.manifest: Manifest
        self.segment: SegmentWriter
        self.door = Door(self._append_slowly)
        """What `Log.append` is: it goes on from segment to segment."""

    def start(self, manifest: Manifest, recovered: Recovered, *, background: bool) -> None:
        """Go on where recovery left off; finish a roll that a crash interrupted."""
        self.manifest = manifest
        segment = SegmentWriter(recovered.file, recovered.header, recovered.tail, self._wake.view)
        flush_failed = recovered.flush_failed
        # Nothing is reserved yet: the checkpoint that was read may not be durable, so the first append makes one.
        self._attach(segment, 0, flush_failed=flush_failed)
        if recovered.footer:
            segment.appender.close()
            self._succeed(recovered.footer, recovered.file.size(), segment.header.ext_id)
        if background:
            self._housekeeper = Housekeeper(self._housekeep_in_background)

    # -- appending ------------------------------------------------------------------------------------

    def try_append(self, payload: bytes, ext_id: int, timestamp_ns: int | None) -> int:
        """Append one record if that takes no waiting; else return -1."""
        is_plain = self._has_no_policy and (self._system_clock or timestamp_ns is not None)
        return self.segment.appender.append(payload, ext_id, timestamp_ns) if is_plain else -1

    def _append_slowly(self, payload: bytes, ext_id: int, timestamp_ns: int | None, durable: bool) -> int:  # noqa: FBT001 - the kernel calls it
        check_number(ext_id, U64_MAX, "ext_id")
        if timestamp_ns is not None:
            check_number(timestamp_ns, TIMESTAMP_NS_MAX, "timestamp_ns")
        sequence = self.append(payload, ext_id, timestamp_ns)
        if durable:
            self.durability.flush_to(sequence + 1)
        return sequence

    def append(self, payload: bytes, ext_id: int, timestamp_ns: int | None) -> int:
        """Append one record, making room for it as needed, and apply the flush policy."""
        with self._lock:
            self._check_open()
            self._grow_older()
            if timestamp_ns is None and not self._system_clock:
                timestamp_ns = self._clock.now_ns()
            if self.durability.is_batching:  # An interrupt came before the batch could let singles in again.
                self.durability.end_batch()
            while (sequence := self.segment.appender.append(payload, ext_id, timestamp_ns)) < 0:
                self._make_room(memoryview(payload).nbytes)
            self._note_append()
        self._apply_flush_policy(sequence + 1)
        return sequence

    def append_many(self, batch: Batch) -> range:
        """Append a batch of records with neighbouring sequences.

        Raises:
            RecordTooLarge: one of them is; nothing was written.
        """
        with self._lock:
            self._check_open()
            self._grow_older()
            if batch.timestamps_ns is None and not self._system_clock:
                batch.timestamps_ns = self._clock.now_ns()
            try:
                self.durability.begin_batch()
                sequences = self._append_batch(batch)
            finally:
                self.durability.end_batch()
                self._note_append()
        self._apply_flush_policy(sequences.stop)
        if self.durability.wants_checkpoint:
            self._poke()
        return sequences

    def _append_batch(self, batch: Batch) -> range:
        first = self.segment.appender.sequence
        done = 0
        try:
            while done < batch.count:
                packed = self._pack(batch, done)
                done += packed
                if not packed:
                    self._make_room(batch.payload_bytes(done))
        except LatewoodError as error:
            if done:
                error.add_note(f"{done} of {batch.count} records were appended, from sequence {first} on")
            raise
        return range(first, first + done)

    def _pack(self, batch: Batch, start: int) -> int:
        """Append what fits of a batch, and return how much that was; every payload is looked at before."""
        # Whoever syncs often writes small batches, too: a page that was stored to is taken from us by every sync.
        writes = batch.count - start >= BATCH_RECORDS_SMALL or self._options.fill
        if writes:
            self._scratch = self._scratch or memoryview(bytearray(BATCH_BYTES_MAX))
        staged = batch.pack(self.segment.appender, start, self._scratch) if writes else 0
        if start == 0 and staged < batch.count:  # Else each of them was found to fit.
            roll.check_payload(batch.largest(), self._options.file_bytes_max)
        return self._write_staged(staged) if staged else batch.pack(self.segment.appender, start, None)

    def _write_staged(self, staged: int) -> int:
        assert self._scratch is not None
        try:
            self.segment.write_staged(self._scratch)
        except LatewoodError as error:  # Some of it may be written: only recovery can tell.
            with self.durability.lock:
                self.durability.poison(error)
            raise
        except BaseException:  # An interrupt.  The same bytes are written to the same place, if they are not counted.
            with Uninterrupted(), self.durability.poisoned_by_failure():
                if self.segment.appender.staged_bytes:
                    self.segment.write_staged(self._scratch)
            raise
        return staged

    def _make_room(self, payload_bytes: int) -> None:
        """Roll, or let appends go further in this segment.  The caller holds `_lock`."""
        self._check_open()
        tail = self.segment.tail()
        durability = self.durability
        fill = roll.Fill(
            tail.offset,
            tail.record_count,
            durability.reserved_end,
            self.segment.records_end_max,
            durability.records_max,
        )
        match roll.room_for(payload_bytes, fill):
            case roll.Room.ROLL:
                roll.check_payload(payload_bytes, self._options.file_bytes_max)
                self._roll(self.segment.header.ext_id)
            case roll.Room.ALLOW:
                durability.allow(payload_bytes)
                self._poke()
            case roll.Room.RESERVE:
                durability.reserve(payload_bytes)

    def _apply_flush_policy(self, stop: int) -> None:
        options = self._options
        if options.flush_every_append or (
            options.flush_bytes is not None and self.durability.unsynced_bytes >= options.flush_bytes
        ):
            self.durability.flush_to(stop)
        elif self._timing.note_unflushed():
            self._poke()
        elif self._housekeeper is None:
            self._flush_if_due()

    def flush(self) -> None:
        """Make everything appended so far durable."""
        self._check_open()
        self.durability.check_found()
        self._timing.unflushed_since_ns = None
        self.durability.flush_to(self.segment.appender.sequence)

    # -- segments -------------------------------------------------------------------------------------

    def roll(self) -> int | None:
        """Seal the open segment and begin the next; return its id, or None if it had no records."""
        with self._lock:
            self._check_open()
            if self.segment.appender.count == 0:
                return None
            sealed = self.segment.header.segment_index
            self._roll(self.segment.header.ext_id)
            return sealed

    def set_ext_id(self, ext_id: int) -> None:
        """Begin a cohort: from the next record on, segments carry this ext_id in their headers."""
        with self._lock, Uninterrupted():
            self._check_open()
            if ext_id == self.segment.header.ext_id:
                return
            try:
                self.durability.begin_batch()  # No record may slip into the segment while its cohort changes.
                if self.segment.appender.count:
                    self._roll(ext_id)
                else:
                    with self.durability.poisoned_by_failure():
                        self.segment.write_ext_id(ext_id)
                    self.durability.check_directory()
            finally:
                self.durability.end_batch()

    def retire(self, segment_id: int) -> None:
        """Drop the sealed segments up to this one, included: first from the manifest, then from the disk.

        By id and not by number: another thread may have dropped some of them already.
        """
        with self._lock, Uninterrupted():
            self._check_open()
            count = self.manifest.entries.index_after_segment(segment_id)
            paths = [self._layout.absolute(self.manifest.entries[index].path) for index in range(count)]
            self._store_manifest(self.manifest._replace(entries=self.manifest.entries.without_first(count)))
            self.remove_files(paths)

    def remove_files(self, paths: list[Path]) -> None:
        """Remove files that the manifest no longer knows, durably."""
        self.durability.check_directory()
        for path in paths:
            with suppress(NotFoundError):
                self._fs.remove(path)
        for directory in sorted({path.parent for path in paths}):
            self._fs.sync_directory(directory)

    def _roll(self, next_ext_id: int) -> None:
        with Uninterrupted():
            self._seal_and_succeed(next_ext_id)

    def _seal_and_succeed(self, next_ext_id: int) -> None:
        if self.segment.header.segment_index >= SEGMENT_ID_MAX:
            raise ClosedError("the log has used up all segment ids")
        self._prepare()  # 1. Before the seal: a full disk leaves the open segment as it was.
        check_free(f"{self._layout.root} cannot roll", _DESCRIPTORS_OF_A_ROLL)  # So does a lack of descriptors.
        now_ns = self._clock.now_ns()  # Also before: a clock of the program's may fail, or be wrong.
        with self.durability.lock, self.durability.poisoned_by_failure():  # After half a seal no record may follow.
            footer, size = self.segment.seal(  # 2. The seal, durable.
                now_ns=now_ns,
                coordinator_watermark=self.coordinator_watermark,
                flush_failed=self.durability.flush_failed,
            )
            self._wake.wake()
            self._succeed(footer, size, next_ext_id)

    def _succeed(self, footer: SegmentFooter, size: int, ext_id: int) -> None:
        """Put a new segment in the place of the sealed one."""
        old, old_path, manifest = self.segment, self.manifest.active.path, self.manifest
        if footer.record_count:
            store_pointer(self._fs, self._layout, pointer_to(footer))  # 3. `current.sealed`.
            last = footer.base_record_count + footer.record_count - 1
            entry = SegmentEntry(footer.base_record_count, last, size, footer.ext_id, footer.checksum, old_path)
            manifest = manifest._replace(
                entries=manifest.entries.append(entry), coordinator_watermark=footer.coordinator_watermark
            )
        header = header_after(old.header, footer, ext_id, self._options)
        path = segment_path(header.segment_index, header.created_at)
        file = self._begin_segment(header, path)  # 4. The new segment: header, name and directory.
        active = ActiveSegment(header.segment_index, HEADER_SIZE, 0, path)
        manifest = manifest._replace(active=active, next_sequence=header.base_record_count)
        with ExitStack() as undo:
            undo.callback(file.close)
            self._store_manifest(manifest)  # 5. Now it is part of the log.
            segment = SegmentWriter(file, header, empty_tail(footer.max_timestamp), self._wake.view)
            undo.callback(segment.close)
            reserved_end = roll.reservation_end(HEADER_SIZE, 0, segment.records_end_max)
            self.durability.write_first_checkpoint(segment, reserved_end)  # 6. Then, and only then, appends.
            undo.pop_all()
        self._attach(segment, reserved_end, flush_failed=False)
        old.close()
        if not footer.record_count:
            self.remove_files([self._layout.absolute(old_path)])
        self._wake.wake()

    def _begin_segment(self, header: SegmentHeader, path: str) -> File:
        with self._prepare_lock:  # Until it has a name of its own: preparing another removes `next.q`.
            file, self._prepared = self._prepared or self._new_file(), None
            return begin_segment(self._fs, self._layout, file, header, path)

    def _prepare(self, *, fill: bool = False) -> None:
        """Have a file of zeros ready for the next segment."""
        self.durability.check_directory()
        with self._prepare_lock:
            self._prepared = self._prepared or self._new_file(fill=fill)

    def _new_file(self, *, fill: bool = False) -> File:
        size = file_bytes(self._options.file_bytes_max, self._options.index_interval)
        return prepare(self._fs, self._layout.next_segment, size, fill=fill)

    def _attach(self, segment: SegmentWriter, reserved_end: int, *, flush_failed: bool) -> None:
        self.segment = segment
        self._timing.begin_segment(segment.header.created_at if segment.appender.count else None)
        records_max = self._options.segment_records_max or _RECORDS_UNBOUNDED
        with self.durability.lock:
            path = self._layout.absolute(self.manifest.active.path)
            self.durability.attach(
                segment, path, reserved_end=reserved_end, flush_failed=flush_failed, records_max=records_max
            )
        options = self._options
        no_policy = not options.flush_every_append and options.segment_age_max_ms is None
        self._has_no_policy = no_policy and options.flush_bytes is None and options.flush_ms is None
        self.door.set(segment.appender if self._has_no_policy else None, has_time=self._system_clock)

    def _store_manifest(self, manifest: Manifest) -> None:
        manifest = manifest._replace(generation=self.manifest.generation + 1)
        self.durability.check_directory()
        slot = self._store.write(manifest)
        with self.durability.poisoned_by_failure():
            self._store.publish(slot)
        self.manifest = manifest  # At once: readers see it, whatever the check meets.
        self.durability.check_directory()

    # -- in the background ----------------------------------------------------------------------------

    def housekeep(self) -> float | None:
        """Do what is due: checkpoint, prepare, flush, roll by age; return the seconds until more is."""
        self._check_open()
        self.durability.checkpoint()
        now_ns = self._clock.now_ns()
        due_ns = [self._flush_if_due(), self._in_comfort(self._prepare_if_half_full)]
        due_ns.append(self._in_comfort(self._roll_if_due))
        waits = [(due - now_ns) / NANOSECONDS for due in due_ns if due is not None]
        return max(0.0, min(waits)) if waits else None

    def _housekeep_in_background(self) -> float | None:
        """Do what is due; a failure that no caller has heard of is logged, and kept for whoever closes the log."""
        told = self.durability.failure_was_told
        try:
            return self.housekeep()
        except (Poisoned, DirectoryReplaced) as error:
            if not told:
                _logger.error("in the background: %s", error)  # noqa: TRY400 - its text says all
                self.durability.failure_was_told = False
            raise

    def _in_comfort(self, work: Callable[[], int | None]) -> int | None:
        """Do work that can wait: if there is no room for it, the next roll meets that too, and tells its caller."""
        try:
            return work()
        except UnavailableError as error:
            _logger.warning("in the background: %s", error)
            return self._clock.now_ns() + NANOSECONDS

    def _prepare_if_half_full(self) -> None:
        offset, created_ns = self.segment.appender.offset, self.segment.header.created_at
        if offset > self.segment.records_end_max // 2:
            self._prepare(fill=self._options.fill and roll.may_fill(offset, created_ns, self._clock.now_ns()))

    def _flush_if_due(self) -> int | None:
        """Return when the next flush is due, if one is."""
        due_ns = self._timing.flush_due_ns()
        if due_ns is None or self._clock.now_ns() < due_ns:
            return due_ns
        self.flush()
        return None

    def _roll_if_due(self) -> int | None:
        """Roll a segment that is too old; return when the open one will be, if it has records."""
        with self._lock:
            self._grow_older()
            return self._timing.old_at_ns()

    def _grow_older(self) -> None:
        """Roll a segment that is too old."""
        if self._timing.is_old(self.segment.appender.count):
            self._roll(self.segment.header.ext_id)

    def _note_append(self) -> None:
        if self._timing.note_append(self.segment.appender.count):
            self._poke()

    def _poke(self) -> None:
        if self._housekeeper:
            self._housekeeper.poke()

    # -- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, record the final state in the manifest, and let go of every file.

        Raises:
            Poisoned: the last flush failed, or one in the background that nobody has heard of.
        """
        with Uninterrupted():
            try:
                if self._housekeeper:
                    self._housekeeper.stop()
            finally:
                with self._lock:
                    self._end()

    @property
    def is_closed(self) -> bool:
        """Whether it can never append again."""
        return self._closed is not None

    def _end(self) -> None:
        if self._closed:
            return
        self.segment.appender.close()
        try:
            if not self.durability.failure_was_told:
                self.durability.check()
                self._store_final_state()
        finally:
            with self.durability.lock:
                self._release(ClosedError("the log is closed; open it again"))

    def _store_final_state(self) -> None:
        self.durability.flush_to(self.segment.appender.sequence)
        tail = self.segment.tail()
        active = self.manifest.active._replace(write_offset=tail.offset, record_count=tail.record_count)
        if active != self.manifest.active:
            next_sequence = self.segment.header.base_record_count + tail.record_count
            self._store_manifest(self.manifest._replace(active=active, next_sequence=next_sequence))
        if self._prepared:
            self._fs.remove(self._layout.next_segment)

    def _release(self, reason: ClosedError) -> None:
        self._closed = reason
        prepared, self._prepared = self._prepared, None
        self.door.set(None)
        self._has_no_policy = False
        with Closing() as closing:
            if prepared:
                closing(prepared.close)
            closing(self.segment.close)
            closing(self.durability.close)

    def abandon_after_fork(self, reason: ClosedError) -> None:
        """Refuse all further use in a forked child; the parent goes on.

        Takes no lock, the appender's neither: another thread of the parent may have held it, and is not here.
        """
        self._closed = reason
        self._lock = Exclusion()
        self.door.set(None)
        self._has_no_policy = False
        self._housekeeper = None

    def _check_open(self) -> None:
        if self._closed:
            raise type(self._closed)(*self._closed.args)
        self.durability.check()
