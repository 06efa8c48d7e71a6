"""What a node's parent log and snapshots say that its partitions hold, compared with what is in their directories.

A partition gets an entry only once that is committed, and durable in the parent log of the same node.  So the records
of a partition are those of the snapshot that the parent log begins behind, and of the entries behind that.  Any other
record was written by another program: by `latewood.open` of the partition's directory, say.

In one state a partition holds more: the installation of a snapshot was cut short.  That snapshot is whole, and the
partitions in it may hold records up to it.  The parent log may then end before it, or with entries that were never
committed.  If its entry at the snapshot's index has the snapshot's term, it has the committed entries up to there: two
logs that have the same term at an index are the same up to it.

Checked are the number of records, the first one, the last one of the snapshot, and those behind what the parent log
has.  That each of the others is what its entry says is compared when entries are replayed.

Reads; changes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from latewood.errors import CorruptError, Diverged, NotFoundError, StrayLog, StrayRecord
from latewood.format.entry import Action, Command
from latewood.fs import FileSystem
from latewood.log import Log
from latewood.replica.engine import Entry
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.machine import PartitionEntry
from latewood.replica.partition import PartitionLogStore
from latewood.replica.routing import commands_of, entries_of
from latewood.replica.snapshot import PartitionState, SnapshotReader

_READ_BYTES: Final = 1 << 20
"""So much of the parent log is read at a time."""

_Key = tuple[int, int]
"""A partition's number and birth."""


class Lives:
    """Which birth of a partition commands are for, if they are taken in the order of their entries."""

    def __init__(self, keys: Iterable[_Key] = ()) -> None:
        """Begin with these partitions."""
        self._born = {partition_id: born for partition_id, born in keys}  # noqa: C416 - keys may be those of a mapping

    def born(self, index: int, command: Command) -> int:
        """Return the birth of the partition that a command of an entry writes to; 0 if it writes nothing."""
        if command.action == Action.TEAR_DOWN:
            self._born.pop(command.partition_id, None)
            return 0
        return self._born.setdefault(command.partition_id, index) if command.payloads else 0


class Agreement:
    """What a parent log and snapshots say that partitions hold."""

    def __init__(self, base_index: int, agreed_index: int, end_index: int, base: Sequence[PartitionState]) -> None:
        """Begin with the partitions of the snapshot that the parent log begins behind."""
        self.base_index = base_index
        self.agreed_index = agreed_index
        """Up to here the entries of the parent log are known to be committed."""
        self.end_index = end_index
        """The last entry of the parent log."""
        self._base = {(state.partition_id, state.born): state for state in base}
        self._lives = Lives(self._base)
        self._ends = {key: state.partition_log_index for key, state in self._base.items()}
        """The last record of each partition up to the agreed entry, those that were torn down included."""
        self._tail_ends: dict[_Key, int] = {}
        """The same up to the end of the parent log, where that is later."""
        self._ahead: dict[_Key, PartitionState] = {}
        """Partitions in snapshots that the parent log does not agree with yet."""
        self._teardowns: list[tuple[int, int]] = []
        """Each entry that tears a partition down, with its number."""

    @classmethod
    def of(cls, store: SegmentedLogStore, readers: Sequence[SnapshotReader]) -> Self:
        """Return what a parent log and the whole snapshots beside it, in order, say.  Reads all entries."""
        base_index, end_index = store.first_index - 1, store.last_index
        behind = [reader for reader in readers if base_index < reader.index]
        same = [one.index for one in behind if one.index <= end_index and store.term(one.index) == one.term]
        installed = [reader for reader in readers if reader.index <= base_index]
        states = installed[-1].partitions if installed else ()
        found = cls(base_index, max([store.commit_index, *same]), end_index, states)
        for reader in behind:
            if reader.index > found.agreed_index:
                found.expect(reader.partitions)
        for entry in entries_between(store, base_index + 1, end_index + 1):
            found.follow(entry.index, commands_of(entry))
        return found

    def follow(self, index: int, commands: Iterable[Command]) -> None:
        """Take in what the entry that comes next asks for."""
        ends = self._ends if index <= self.agreed_index else self._tail_ends
        for command in commands:
            if command.action == Action.TEAR_DOWN:
                self._teardowns.append((index, command.partition_id))
            if born := self._lives.born(index, command):
                ends[command.partition_id, born] = command.last_index

    def expect(self, states: Iterable[PartitionState]) -> None:
        """Take in the partitions of a snapshot that the parent log does not agree with yet, the newest last."""
        self._ahead |= {(state.partition_id, state.born): state for state in states}

    def ended(self, commit: int) -> dict[int, int]:
        """Return the partitions that an entry behind the base, up to `commit`, tears down, and the last such entry."""
        return {partition_id: index for index, partition_id in self._teardowns if index <= commit}

    def is_known(self, partition_id: int, born: int) -> bool:
        """Say whether the parent log or a snapshot has a partition of this number and birth."""
        key = (partition_id, born)
        return key in self._ends or key in self._tail_ends or key in self._ahead

    def check_born(self, fs: FileSystem, path: Path, partition_id: int, born: int) -> None:
        """Check that there was a partition of this number and birth, before its directory is opened.

        One from before the base is let pass: if the snapshot does not know it, it was torn down, and is removed.

        Raises:
            StrayLog: there was none.
            Diverged: there was perhaps, and the parent log has lost its end.
        """
        if born <= self.base_index or self.is_known(partition_id, born):
            return
        if born > self.end_index and _first_ext_id(fs, path) == born:
            raise self._beyond(path, partition_id, 0, born)
        raise StrayLog(f"entry {born} of the parent log has not made partition {partition_id}", path)

    def check(self, partition: PartitionLogStore) -> None:
        """Check that a partition holds no other records than those that it was given.

        Raises:
            StrayRecord: it does; the error names the first.
            Diverged: it holds a record of an entry that the parent log has not come to, or has lost.
        """
        key = (partition.partition_id, partition.born)
        state = self._ahead.get(key)
        self._check_first(partition)
        self._check_at_base(partition, self._base.get(key))
        end = self._ends.get(key, 0)
        if state is None:
            end = max(end, self._tail_ends.get(key, 0))
        if partition.next_index - 1 > end:
            self._check_behind(partition, end, state)

    def proven_index(self, partitions: Iterable[PartitionLogStore]) -> int:
        """Return the last entry that snapshots, or records of partitions that `check_equal` compared, prove committed.

        A record of an entry up to the agreed one proves nothing: it is compared when that is replayed.  Nor does what
        partitions hold for a snapshot: the parent log may have other entries.
        """
        proven = self.agreed_index
        for partition in partitions:
            key = (partition.partition_id, partition.born)
            is_compared = key not in self._ahead and partition.next_index - 1 > self._ends.get(key, 0)
            if is_compared and (last := partition.last()):
                proven = max(proven, last.global_index)
        return proven

    def check_equal(self, store: SegmentedLogStore, low: int, partitions: Iterable[PartitionLogStore]) -> None:
        """Compare entries as `unequal`.

        Raises:
            StrayRecord: the first difference.
        """
        for stray in self.unequal(store, low, partitions):
            raise stray

    def unequal(
        self, store: SegmentedLogStore, low: int, partitions: Iterable[PartitionLogStore]
    ) -> Iterator[StrayRecord]:
        """Compare the entries of a parent log from `low` on with what partitions, which were checked, have of them.

        Yield the first difference of each partition that has any.  `low` is behind the base, or behind the commit: a
        teardown is known to be committed before anything is done about it.
        """
        lives, left = Lives(self._base), {(one.partition_id, one.born): one for one in partitions}
        if low > self.base_index + 1:
            lives = Lives(left)
        for entry in entries_between(store, low, self.end_index + 1):
            for command in commands_of(entry):
                key = (command.partition_id, lives.born(entry.index, command))
                partition = left.get(key)
                if partition is None or entry.index < partition.born:  # It was for one that was torn down since.
                    continue
                if entry.index > self.agreed_index and key in self._ahead:
                    continue
                try:
                    partition.compare(entries_of([(entry.index, command)]))
                except StrayRecord as error:
                    del left[key]
                    yield error

    def _check_first(self, partition: PartitionLogStore) -> None:
        first = _held(partition, 1)
        if first is not None and first.global_index != partition.born:
            came = _came_with(first.global_index)
            raise partition.stray(f"{came}, and the partition was made by entry {partition.born}", 1)

    def _check_at_base(self, partition: PartitionLogStore, state: PartitionState | None) -> None:
        """Check the last record that a snapshot knows; a partition that lacks it is to get it from other nodes.

        A machine may have applied more when the snapshot was taken, perhaps a part of an entry behind the base: what
        is of such entries is compared with them.
        """
        if state is None:
            return
        if partition.next_index <= state.partition_log_index:
            self._check_short(partition, state)
            return
        stored = _held(partition, state.partition_log_index)
        if stored is None or stored.global_index > self.base_index:
            return
        if stored.global_index != state.applied_global:
            came = f"record {state.partition_log_index - 1} {_came_with(stored.global_index)}"
            reason = f"is of another partition, it seems: {came}, and snapshot {self.base_index} says that it came with"
            raise partition.stray(f"{reason} entry {state.applied_global}", partition.first_index)

    def _check_short(self, partition: PartitionLogStore, state: PartitionState) -> None:
        """Check a partition that lacks records that the parent log has forgotten; other nodes have them."""
        before = partition.born
        for stored in partition.read(partition.first_index, partition.next_index):
            is_forgotten = state.applied_global < stored.global_index <= self.base_index
            if stored.global_index < before or is_forgotten:
                raise partition.stray(f"{_came_with(stored.global_index)}, behind entry {before}", stored.index)
            before = stored.global_index

    def _check_behind(self, partition: PartitionLogStore, end: int, state: PartitionState | None) -> None:
        """Check the records behind the last one that the parent log has; a snapshot's `state` may know of them."""
        if partition.first_index > end + 1:
            reason = f"is the first that is here, and the parent log has {end} records of this partition"
            raise partition.stray(reason, partition.first_index)
        known_index = self.end_index if state is None else self.agreed_index
        before = known_index + 1
        for stored in partition.read(end + 1, partition.next_index):
            index, global_index = stored.index, stored.global_index
            if global_index <= known_index:
                reason = f"{_came_with(global_index)}, and the parent log has {end} records of this partition"
                raise partition.stray(reason, index)
            if state is None:
                raise self._beyond(partition.path, partition.partition_id, index - 1, global_index)
            if index > state.partition_log_index or not before <= global_index <= state.applied_global:
                reason = f"{_came_with(global_index)}, and a snapshot has {state.partition_log_index} records"
                raise partition.stray(reason, index)
            before = global_index

    def _beyond(self, path: Path, partition_id: int, sequence: int, global_index: int) -> Diverged:
        reason = (
            f"record {sequence} of partition {partition_id} came with entry {global_index}, and the parent log ends "
            f"with entry {self.end_index}: that is an older copy, or another program wrote the record"
        )
        return Diverged(reason, path, sequence)


def entries_between(store: SegmentedLogStore, low: int, high: int) -> Iterator[Entry]:
    """Yield the entries of a parent log from `low`, below `high`, reading some at a time."""
    while low < high:
        entries = store.read(low, high, _READ_BYTES)
        yield from entries
        low = entries[-1].index + 1


def _held(partition: PartitionLogStore, index: int) -> PartitionEntry | None:
    """Return an entry that a partition holds, or None; one that is damaged is found by whoever reads it."""
    if not partition.first_index <= index < partition.next_index:
        return None
    with suppress(CorruptError):
        return next(partition.read(index, index + 1))
    return None


def _first_ext_id(fs: FileSystem, path: Path) -> int:
    """Return the number of the entry that the first record in a directory came with; 0 if there is none."""
    with suppress(NotFoundError, CorruptError), Log.open(path, mode="r", fs=fs) as log:
        return next((record.ext_id for record in log.scan()), 0)
    return 0


def _came_with(global_index: int) -> str:
    return f"came with entry {global_index}" if global_index else "came with no entry of the parent log"
