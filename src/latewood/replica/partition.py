"""One partition: a `Log` of its payloads, placed there at commit.

Record `sequence` holds the entry with partition_log_index `sequence` + 1; its `ext_id` is the Raft index of the parent
entry that it came with, its timestamp and payload are the entry's.  So the log itself says up to which parent entry it
has come, and a replay is verified against what is there, never appended twice.

Not flushed for each entry: the parent log is durable, and keeps what this one may lose until `flush`.

Threads: one places and compacts; any may read, and flush.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final, Self

from latewood.clock import Clock
from latewood.errors import CorruptError, DataLost, Diverged, StrayRecord
from latewood.format.identity import Owner
from latewood.fs import FileSystem, PosixFS
from latewood.log import Log, LogOptions
from latewood.log.head import SealedPart, door_of, retire_before, room_bytes, sealed_parts, sweep_head
from latewood.replica.births import check_birth
from latewood.replica.machine import PartitionEntry

_READ_BYTES: Final = 1 << 20
RECORD_HEAD_BYTES: Final = 32
"""At most what a record takes beside its payload, alignment included."""


class PartitionLogStore:
    """The log of one partition.  Use `open`, then `close`."""

    def __init__(self, log: Log, partition_id: int, born: int) -> None:
        """Hold the parts; `PartitionLogStore.open` is what opens one."""
        self._log = log
        self.door = door_of(log)
        """What single records go through that wait for nothing."""
        self.partition_id, self.born = partition_id, born
        """`born` is the Raft index of its first write: what came before was for one of the same id, torn down since."""
        self._room = 0
        """Bytes that its log takes at least before it rolls, less what it was asked to take since `_asked_at`."""
        self._asked_at = -1

    @classmethod
    def open(
        cls,
        path: Path,
        partition_id: int,
        born: int,
        *,
        birth: bytes | None = None,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        options: LogOptions | None = None,
        background: bool = False,
    ) -> Self:
        """Open the log, making it if it is not there.  `birth` is its identity, in a cluster.

        Raises:
            StrayLog: another log is there.
            CorruptError: something that was durable is damaged.
        """
        if birth is not None:
            check_birth(fs or PosixFS(), path, birth, partition_text(partition_id, born))
        owner = Owner.NODE
        log = Log.open(path, options, fs=fs, clock=clock, background=background, owner=owner, birth=birth)
        try:
            sweep_head(log)
        except BaseException:
            log.close()
            raise
        return cls(log, partition_id, born)

    @property
    def path(self) -> Path:
        """Its directory: a Latewood log."""
        return self._log.path

    @property
    def first_index(self) -> int:
        """The oldest entry that it holds, or would."""
        return self._log.first_sequence + 1

    @property
    def next_index(self) -> int:
        """The entry that comes next."""
        return self._log.next_sequence + 1

    @property
    def flushed_index(self) -> int:
        """Every entry up to here is durable in this log."""
        return self._log.durable_sequence

    def takes(self, size: int) -> bool:
        """Say whether it takes so many more bytes of records before its log rolls, which waits for the disk.

        All that was asked for before is placed by now, or never will be.
        """
        if self._asked_at != self._log.next_sequence:
            self._asked_at, self._room = self._log.next_sequence, room_bytes(self._log)
        self._room -= size
        return self._room >= 0

    def last(self) -> PartitionEntry | None:
        """Return the newest entry; None if there is none here."""
        return next(self.read(self.next_index - 1, self.next_index), None) if self._holds_any() else None

    def place_run(self, first: int, global_index: int, timestamp_ns: int, payloads: Sequence[bytes]) -> bool:
        """Write records that came with one parent entry, if they follow exactly; say whether they do.

        If not, `place` can tell why.

        Raises:
            DiskFull, Poisoned: as `place`.
        """
        if first != self._log.next_sequence + 1:
            return False
        if len(payloads) == 1:  # One by one costs a tenth of a batch of one.
            self._log.append(payloads[0], ext_id=global_index, timestamp_ns=timestamp_ns)
        else:
            self._log.append_many(payloads, ext_id=global_index, timestamps_ns=timestamp_ns)
        return True

    def place_quickly(self, first: int, global_index: int, timestamp_ns: int, payloads: Sequence[bytes]) -> bool:
        """Write records as `place_run`, if they follow exactly and the log need not roll; say whether it was done.

        Raises:
            DiskFull, Poisoned: as `place`.
        """
        if first != self._log.next_sequence + 1:
            return False
        size = sum(map(len, payloads)) + RECORD_HEAD_BYTES * len(payloads)
        return self.takes(size) and self.place_run(first, global_index, timestamp_ns, payloads)

    def place(self, entries: Sequence[PartitionEntry]) -> list[PartitionEntry]:
        """Write what is new of committed entries, in order, and return that; written, not durable.

        What is there already is compared, and left alone.

        Raises:
            StrayRecord: something else is there; nothing was written.
            Diverged: entries before these are missing; nothing was written.
            DiskFull: there was no room for all of them; the same call again goes on.
            Poisoned: a sync failed; open it again.
        """
        following = self.next_index
        self.compare(entries)
        fresh = [entry for entry in entries if entry.index >= following]
        for expected, entry in enumerate(fresh, following):
            if entry.index != expected:
                raise self._diverged(f"entry {entry.index} does not follow entry {expected - 1}", expected)
        if fresh:
            self._log.append_many(
                [entry.payload for entry in fresh],
                ext_ids=[entry.global_index for entry in fresh],
                timestamps_ns=[entry.timestamp_ns for entry in fresh],
            )
        return fresh

    def compare(self, entries: Sequence[PartitionEntry]) -> None:
        """Compare entries, in order, with those of them that are here; those that were compacted are believed.

        Raises:
            StrayRecord: something else is here.
            Diverged: they are not all here.
        """
        known = [entry for entry in entries if self.first_index <= entry.index < self.next_index]
        if not known:
            return
        try:
            for entry, stored in zip(known, self.read(known[0].index, known[-1].index + 1), strict=True):
                if entry != stored:
                    raise self.stray(_difference(entry, stored), entry.index)
        except (DataLost, ValueError) as error:
            raise self._diverged("entries of the parent log are not all here", known[0].index) from error

    def stray(self, reason: str, index: int) -> StrayRecord:
        """Return the error that says of an entry that is here that it is none of the cluster's."""
        return StrayRecord(reason, self.path, self.partition_id, index - 1)

    def flush(self) -> int:
        """Make what was placed durable, and return the highest index that is.

        Raises:
            Poisoned: that failed; open it again.
        """
        self._log.flush()
        return self.flushed_index

    def read(self, low: int, high: int) -> Iterator[PartitionEntry]:
        """Yield the entries from `low`, below `high`.

        Raises:
            DataLost: they were compacted.
            CorruptError: one that was placed cannot be read.
        """
        following, written = low, min(high, self.next_index)
        for record in self._log.scan(low - 1, high - 1) if low < high else ():
            following = record.sequence + 2
            yield PartitionEntry(
                self.partition_id, record.sequence + 1, record.ext_id, record.timestamp_ns, record.payload
            )
        # A log takes a bad record that was not flushed for its end.  Here it is known what was placed.
        if following < written:
            raise self._damaged(following)

    def read_some(self, low: int, count_max: int) -> list[PartitionEntry]:
        """Return entries from `low`, at most `count_max` and about a MiB."""
        found, size = list[PartitionEntry](), 0
        for entry in islice(self.read(low, self.next_index), count_max):
            found.append(entry)
            size += len(entry.payload)
            if size > _READ_BYTES:
                break
        return found

    def sealed(self, *, with_times: bool) -> Iterator[SealedPart]:
        """Yield its sealed segments, the oldest first: for whoever decides what may go."""
        return sealed_parts(self._log, with_times=with_times)

    def compact(self, index: int) -> None:
        """Drop whole segments of entries up to `index`: they are in a snapshot, or nobody wants them."""
        retire_before(self._log, index)

    def close(self) -> None:
        """Flush and release the log."""
        self._log.close()

    def _holds_any(self) -> bool:
        return self.next_index > self.first_index

    def _damaged(self, index: int) -> CorruptError:
        with closing(self._log.view().segment_with(index - 1)) as segment:
            reason = f"entry {index} was placed, and cannot be read"
            return CorruptError(reason, segment.path, segment.offset_of(index - 1))

    def _diverged(self, reason: str, index: int) -> Diverged:
        return Diverged(f"partition {self.partition_id}: {reason}", self.path, index)


def partition_text(partition_id: int, born: int) -> str:
    """Return what errors call a partition."""
    return f"partition {partition_id} that entry {born} made"


def _difference(entry: PartitionEntry, stored: PartitionEntry) -> str:
    if entry.global_index != stored.global_index:
        came = f"came with entry {stored.global_index}" if stored.global_index else "came with no entry"
        return f"{came}, and the parent log has this record with entry {entry.global_index}"
    return f"is not what entry {entry.global_index} of the parent log says"
