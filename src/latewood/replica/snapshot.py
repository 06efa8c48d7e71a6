"""Snapshots: the parent and all its partitions at one parent index, as a log of chunks.

`snapshots/<index>-<term>` is a Latewood log.  Its first chunk is the parent's, then come each partition and the pieces
of its state and its answers, and the last says how many there were and what their checksum is: without it the snapshot
is not there.
A chunk's number is its sequence, so a transfer that broke off goes on where the receiver's log ends, after a crash too.

A partition whose log is its state has no pieces: its records are fetched from the partition itself.

Threads: a `SnapshotWriter` or `SnapshotReceiver` is used by one at a time; a `SnapshotReader` may be opened by any.
"""

import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Self

from latewood.clock import Clock
from latewood.errors import (
    ClosedError,
    ConflictError,
    CorruptError,
    DirectoryReplaced,
    LatewoodError,
    Poisoned,
    UnavailableError,
    UsageError,
)
from latewood.format.entry import (
    Chunk,
    ChunkKind,
    Members,
    decode_chunk,
    decode_members,
    encode_chunk,
    encode_members,
)
from latewood.format.identity import Owner
from latewood.fs import FileSystem
from latewood.kernel import crc32c
from latewood.limits import KiB, MiB
from latewood.log import Log, LogOptions
from latewood.replica.engine import ConfState, Snapshot
from latewood.replica.partition import PartitionLogStore
from latewood.replica.routing import SegmentedStateMachine
from latewood.replica.watermarks import PartitionProgress

CHUNK_BYTES_MAX: Final = 256 * KiB
"""What one chunk carries: a frame of the transport, and what a broken transfer repeats."""

LOG_IS_STATE: Final = 1
"""The flag of a partition whose records are its state."""

OPTIONS: Final = LogOptions(segment_bytes_max=4 * MiB)
"""Of the log that a snapshot is."""

_NAME: Final = re.compile(r"([0-9]+)-([0-9]+)")
_INCOMING: Final = ".incoming"
_DROPPED: Final = ".dropped"

_logger = logging.getLogger(__name__)


class PartitionState(NamedTuple):
    """One partition in a snapshot."""

    partition_id: int
    born: int
    partition_log_index: int
    applied_global: int
    log_is_state: bool
    first_chunk: int
    """The number of the first piece of its state."""


class SnapshotWriter:
    """Writes one snapshot, chunk by chunk.  It counts once `finish` has returned."""

    def __init__(
        self, fs: FileSystem, clock: Clock, directory: Path, index: int, term: int, options: LogOptions = OPTIONS
    ) -> None:
        self._fs, self._directory = fs, directory
        self._index, self._term = index, term
        self._path = directory / f"{index}-{term}"
        fs.remove_tree(_incoming(self._path))
        self._log = _open_incoming(self._path, options, fs, clock)
        self._checksum = 0

    def parent(self, conf: ConfState) -> None:
        """Write who is a member."""
        self._add(Chunk(ChunkKind.PARENT, self._term, self._index, data=encode_members(Members(*conf))))

    def partition(self, state: PartitionState, pieces: Iterable[bytes], answers: bytes = b"") -> None:
        """Write one partition, the pieces of its state, and what it has answered."""
        head = Chunk(
            ChunkKind.PARTITION,
            self._term,
            self._index,
            state.partition_id,
            state.born,
            state.partition_log_index,
            state.applied_global,
            flags=LOG_IS_STATE if state.log_is_state else 0,
        )
        self._add(head)
        for piece in pieces:
            self._add_cut(head._replace(kind=ChunkKind.STATE, flags=0), piece)
        self._add_cut(head._replace(kind=ChunkKind.ANSWERS, flags=0), answers)

    def finish(self) -> None:
        """Write the end, and give the snapshot its name.  Durable on return."""
        count = self._log.next_sequence
        end = Chunk(ChunkKind.END, self._term, self._index, applied_global=count, checksum=self._checksum)
        self._log.append(encode_chunk(end))
        self._log.close()  # 1. Its chunks are durable, the end included.
        _publish(self._fs, self._path)  # 2. Now it is a snapshot.

    def abandon(self) -> None:
        """Give it up, and remove what there is of it."""
        with suppress(LatewoodError):  # What cannot be synced any more is not wanted any more.
            self._log.close()
        self._fs.remove_tree(_incoming(self._path))

    def _add_cut(self, chunk: Chunk, data: bytes) -> None:
        for at in range(0, len(data), CHUNK_BYTES_MAX):
            self._add(chunk._replace(data=data[at : at + CHUNK_BYTES_MAX]))

    def _add(self, chunk: Chunk) -> None:
        raw = encode_chunk(chunk)
        self._log.append(raw)
        self._checksum = crc32c(raw, self._checksum)


class SnapshotReader:
    """A whole snapshot.  Use it as a context manager, or call `close`."""

    def __init__(self, log: Log) -> None:
        """Hold the log; `SnapshotReader.open` is what opens one."""
        self._log = log
        self.index = self.term = 0
        self.chunk_count = 0
        """How many chunks there are, the end included."""
        self.conf = ConfState()
        self.partitions: list[PartitionState] = []

    @classmethod
    def open(cls, fs: FileSystem, path: Path) -> Self:
        """Open a snapshot, and check all of it.

        Raises:
            CorruptError: it is damaged, or not whole.
            NotFoundError: it is not there.
        """
        reader = cls(Log.open(path, mode="r", fs=fs))
        try:
            reader._check()
        except BaseException:
            reader.close()
            raise
        return reader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def chunks(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield number and bytes of the chunks from `start` on: what a receiver is sent."""
        for record in self._log.scan(start, self.chunk_count) if start < self.chunk_count else ():
            yield record.sequence, record.payload

    def state(self, partition: PartitionState) -> Iterator[bytes]:
        """Yield the pieces of a partition's state."""
        for record in self._log.scan(partition.first_chunk):
            chunk = decode_chunk(record.payload, self._log.path, record.sequence)
            if chunk.kind != ChunkKind.STATE:
                return
            yield chunk.data

    def answers(self, partition: PartitionState) -> Iterator[bytes]:
        """Yield the pieces of what a partition has answered."""
        for record in self._log.scan(partition.first_chunk):
            chunk = decode_chunk(record.payload, self._log.path, record.sequence)
            if chunk.kind not in (ChunkKind.STATE, ChunkKind.ANSWERS):
                return
            if chunk.kind == ChunkKind.ANSWERS:
                yield chunk.data

    def engine_snapshot(self) -> Snapshot:
        """Return what the engine sends for it: its name, not its contents."""
        return Snapshot(self.index, self.term, self.conf, f"{self.index}-{self.term}".encode())

    def close(self) -> None:
        """Release it."""
        self._log.close()

    def _check(self) -> None:
        checker = _Checker(self._log.path)
        for record in self._log.scan():
            if checker.is_whole:
                _logger.warning("%s: what stands behind the end of this snapshot is no part of it", self._log.path)
                break
            number = record.sequence
            chunk = checker.add(number, record.payload)
            if chunk.kind == ChunkKind.PARENT:
                self.index, self.term = chunk.index, chunk.term
                self.conf = ConfState(*decode_members(chunk.data, self._log.path, number)[0])
            elif chunk.kind == ChunkKind.PARTITION:
                self.partitions.append(_partition_state(chunk, number + 1))
        checker.check_whole()
        self.chunk_count = checker.count


class SnapshotReceiver:
    """Takes in a snapshot from another node; what came before a crash need not come again."""

    def __init__(
        self, fs: FileSystem, clock: Clock, directory: Path, index: int, term: int, options: LogOptions = OPTIONS
    ) -> None:
        self._fs, self._path = fs, directory / f"{index}-{term}"
        self._expected = (index, term)
        self._checker = _Checker(self._path)
        self.is_complete = fs.exists(self._path)
        if self.is_complete:
            return
        self._log = _open_incoming(self._path, options, fs, clock)
        for record in self._log.scan():
            self._checker.add(record.sequence, record.payload)
        if self._checker.is_whole:
            self._finish()

    @property
    def next_number(self) -> int:
        """The number of the chunk that it wants next."""
        return self._checker.count

    def add(self, number: int, raw: bytes) -> None:
        """Take in a chunk; one that is here already does no harm.  The last one makes the snapshot whole and durable.

        Raises:
            ConflictError: it is not the next one, or of another snapshot; nothing was written.
            CorruptError: it is damaged, or what came before it is; the transfer must begin anew: `abandon`.
        """
        if self.is_complete or number < self.next_number:
            return
        if number > self.next_number:
            message = f"chunk {number} does not follow chunk {self.next_number - 1}"
            raise ConflictError(message)
        chunk = decode_chunk(raw, self._path, number)
        if (chunk.index, chunk.term) != self._expected:
            message = f"a chunk of snapshot {chunk.index}-{chunk.term}, and {self._path.name} is being received"
            raise ConflictError(message)
        self._checker.add(number, raw)
        self._log.append(raw)
        if self._checker.is_whole:
            self._finish()

    def flush(self) -> None:
        """Make what has come durable, so that it need not come again."""
        if not self.is_complete:
            self._log.flush()

    def abandon(self) -> None:
        """Throw away what has come."""
        if not self.is_complete:
            self._log.close()
            self._fs.remove_tree(_incoming(self._path))

    def close(self) -> None:
        """Stop here, and keep what has come for the next time."""
        if not self.is_complete:
            self._log.close()

    def _finish(self) -> None:
        self._log.close()
        _publish(self._fs, self._path)
        self.is_complete = True


class _Checker:
    """Checks that chunks make a snapshot: their order, their identity, and the sum over all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checksum = 0
        self._identity = tuple(map(int, path.name.split("-")))
        self.count = 0
        self.is_whole = False

    def add(self, number: int, raw: bytes) -> Chunk:
        chunk = decode_chunk(raw, self._path, number)
        self._require(number == self.count and not self.is_whole, "does not follow the one before", number)
        self._require((chunk.index, chunk.term) == self._identity, "is of another snapshot", number)
        self._require((chunk.kind == ChunkKind.PARENT) == (number == 0), "is out of place", number)
        if chunk.kind == ChunkKind.END:
            sums = (chunk.applied_global, chunk.checksum) == (number, self._checksum)
            self._require(sums, "does not agree with those before it", number)
            self.is_whole = True
        self._checksum = crc32c(raw, self._checksum)
        self.count += 1
        return chunk

    def check_whole(self) -> None:
        self._require(self.is_whole, "is missing: the snapshot is not whole", self.count)

    def _require(self, holds: bool, what: str, number: int) -> None:  # noqa: FBT001 - an assertion, not a mode
        if not holds:
            reason = f"chunk {number} of a snapshot {what}"
            raise CorruptError(reason, self._path, number)


class SnapshotInHand:
    """A snapshot whose chunks are written.  It counts once `publish` has returned.

    Made and recorded by the thread that owns the partitions; in between, any other may publish it while the owner goes
    on: what is routed meanwhile only makes more durable than the snapshot says.  Any thread may abandon it at any time.
    """

    def __init__(self, snapshot: Snapshot, writer: SnapshotWriter | None) -> None:
        """Without a writer it is there already; with one, that is the snapshot's from now on."""
        self.snapshot, self._writer = snapshot, writer
        self._mutex = threading.Lock()
        """Guards `_writer`.  The thread that took the writer either finishes or abandons it; no other thread does."""
        self._marks: list[tuple[PartitionLogStore, PartitionProgress]] = []
        """Every partition with its progress, as it was."""

    def add(self, partition: PartitionLogStore, progress: PartitionProgress) -> None:
        """Take in a partition."""
        self._marks.append((partition, replace(progress)))

    def publish(self) -> None:
        """Make the partitions durable as far as the snapshot says, and then the snapshot.

        Raises:
            Poisoned: a sync failed; the node must be opened again.
        """
        writer = self._take_writer()  # A node that stops abandons the snapshot; that must not empty what has its name.
        try:
            for partition, progress in self._marks:
                if progress.flushed_index < progress.highest_index:
                    _flush(partition)
            if writer:
                writer.finish()
        except BaseException:
            if writer:
                writer.abandon()
            raise

    def abandon(self) -> None:
        """Give it up, unless it is published or being published; again does no harm."""
        if writer := self._take_writer():
            writer.abandon()

    def _take_writer(self) -> SnapshotWriter | None:
        with self._mutex:
            writer, self._writer = self._writer, None
            return writer

    def record(self, machine: SegmentedStateMachine) -> None:
        """Let the watermarks know."""
        marks, roster = machine.parts.watermarks, machine.parts.roster
        for partition, progress in self._marks:
            if roster.get(partition.partition_id) is partition:
                marks.record_flushed(partition.partition_id, progress.highest_index, self.snapshot.index)
                marks.record_snapshot(partition.partition_id, progress.applied_index, progress.applied_global)
        marks.record_parent_snapshot(self.snapshot.index)


def _flush(partition: PartitionLogStore) -> None:
    """Make a partition durable, unless it was torn down: then its end is committed, and that is durable."""
    try:
        partition.flush()
    except (Poisoned, DirectoryReplaced):  # They are ClosedErrors, and say that the partition is not safe.
        raise
    except ClosedError:
        return


def begin_snapshot(
    machine: SegmentedStateMachine,
    fs: FileSystem,
    directory: Path,
    term: int,
    conf: ConfState,
    options: LogOptions = OPTIONS,
) -> SnapshotInHand:
    """Write a snapshot of all partitions at the parent entry that was routed last; `publish` makes it count.

    Nothing is routed meanwhile, so all partitions stand at one parent index; what machines have done was collected
    before, by whoever tells others of it.  If there is one at that index already, such as one that a crash kept from
    being used, it is not written again.

    Raises:
        UnavailableError: a partition has not applied all that it was given, or its machine hangs; try again later.
        UsageError: nothing was ever routed.
    """
    marks = machine.parts.watermarks
    index = marks.routed
    if not index:
        raise UsageError("there is nothing to snapshot yet")
    if marks.applied_floor() < index:
        message = f"entries after {marks.applied_floor()} are not applied yet; a snapshot at {index} must wait"
        raise UnavailableError(message)
    is_there = (index, term) in snapshots(fs, directory)
    writer = None if is_there else SnapshotWriter(fs, machine.parts.clock, directory, index, term, options)
    if writer:
        _write_snapshot(machine, writer, conf)
    in_hand = SnapshotInHand(Snapshot(index, term, conf, f"{index}-{term}".encode()), writer)
    for partition in _routed(machine):
        in_hand.add(partition, marks[partition.partition_id])
    return in_hand


def take_snapshot(
    machine: SegmentedStateMachine,
    fs: FileSystem,
    directory: Path,
    term: int,
    conf: ConfState,
    options: LogOptions = OPTIONS,
) -> Snapshot:
    """Take a snapshot from its beginning to its end, while nothing is routed; return it for the parent log.

    Raises:
        UnavailableError, UsageError, Poisoned: as `begin_snapshot` and `SnapshotInHand.publish`.
    """
    in_hand = begin_snapshot(machine, fs, directory, term, conf, options)
    in_hand.publish()
    in_hand.record(machine)
    return in_hand.snapshot


def _write_snapshot(machine: SegmentedStateMachine, writer: SnapshotWriter, conf: ConfState) -> None:
    """Write all partitions that something was routed to, each while it stands still."""
    parts = machine.parts
    try:
        writer.parent(conf)
        for partition in _routed(machine):
            progress = parts.watermarks[partition.partition_id]
            is_log = parts.applier.machine(partition.partition_id).log_is_state
            with parts.applier.snapshot(partition.partition_id) as pieces:
                at = (partition.partition_id, partition.born, progress.applied_index, progress.applied_global)
                answers = machine.answers.encode(partition.partition_id)
                writer.partition(PartitionState(*at, is_log, 0), pieces, answers)
    except BaseException:
        writer.abandon()
        raise


def _routed(machine: SegmentedStateMachine) -> list[PartitionLogStore]:
    """Return the partitions, without those that were made for an entry that could not be placed yet."""
    return [one for one in machine.parts.roster if one.partition_id in machine.parts.watermarks]


def snapshots(fs: FileSystem, directory: Path) -> list[tuple[int, int]]:
    """Return index and term of the snapshots that are whole, the newest last."""
    return sorted((int(match[1]), int(match[2])) for match in map(_NAME.fullmatch, fs.list(directory)) if match)


def remove_snapshots_before(fs: FileSystem, directory: Path, index: int) -> None:
    """Remove the snapshots below an index, and what is left of transfers of such."""
    for name in fs.list(directory):
        match = _NAME.match(name)
        if match and int(match[1]) < index:
            path = directory / name
            if _NAME.fullmatch(name):  # 1. Half a snapshot must not have the name of a whole one.
                path = path.with_name(name + _DROPPED)
                fs.rename(directory / name, path)
                fs.sync_directory(directory)
            fs.remove_tree(path)  # 2. What a crash leaves of it, the next call removes.


def _open_incoming(path: Path, options: LogOptions, fs: FileSystem, clock: Clock) -> Log:
    return Log.open(_incoming(path), options, fs=fs, clock=clock, background=False, owner=Owner.NODE)


def _incoming(path: Path) -> Path:
    return path.with_name(path.name + _INCOMING)


def _publish(fs: FileSystem, path: Path) -> None:
    fs.rename(_incoming(path), path)
    fs.sync_directory(path.parent)


def _partition_state(chunk: Chunk, first_chunk: int) -> PartitionState:
    return PartitionState(
        chunk.partition_id,
        chunk.born,
        chunk.partition_log_index,
        chunk.applied_global,
        bool(chunk.flags & LOG_IS_STATE),
        first_chunk,
    )
