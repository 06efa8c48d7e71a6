"""The storage of a simulated node as a model: fast, and good for what lies around it, the engine and its driver.

A snapshot's data are the partitions themselves.
"""

from collections.abc import Sequence

from latewood.replica.engine import ConfState, Entry, Recovered, Snapshot
from latewood.replica.machine import PartitionEntry
from latewood.replica.routing import commands_of
from latewood.replica.snapshot import PartitionState
from latewood.testing.simulate_disk import ModelPartition, ModelStore, pack_partitions, unpack_partitions
from latewood.testing.simulate_planted import Bug
from latewood.testing.simulate_storage import Surroundings


class ModelStorage:
    """A `Storage` in memory."""

    has_waiting_snapshot = False

    def __init__(self, node: int, world: Surroundings, first: ConfState | None, first_index: int) -> None:
        self._node, self._world = node, world
        data = pack_partitions({}, first_index)
        self.store = ModelStore(Snapshot(first_index, 1, first, data) if first else None)
        self.partitions: dict[int, ModelPartition] = {}
        self._handed_on = 0
        self._next_index: dict[int, int] = {}

    @property
    def base_index(self) -> int:
        """The compacted index."""
        return self.store.base_index

    def start(self) -> Recovered:
        """Come up from what the disk holds."""
        if self._world.bug is Bug.ROLL_BACK_RECOVERY:
            self._roll_back()
        recovered = self.store.recover()
        self._handed_on = recovered.applied
        return recovered

    def settle(self) -> None:
        """End a sync."""
        if self._world.bug is not Bug.SYNC_DOES_NOTHING:
            self.store.settle()

    def lose_power(self) -> None:
        """Keep what is durable, and some of the rest."""
        self.store.lose_power(self._world.random)
        for partition in self.partitions.values():
            partition.lose_power(self._world.random)

    def hand_on(self, entries: Sequence[Entry]) -> None:
        """Take entries to their partitions."""
        verifies = self._world.bug is not Bug.FORWARD_AT_FSYNC
        for entry in entries:
            self._handed_on = max(self._handed_on, entry.index)
            for command in commands_of(entry):
                partition = self.partitions.setdefault(command.partition_id, ModelPartition())
                partition.place(command, entry.index, verifies=verifies)

    def lead(self) -> None:
        """Begin to give out indices."""
        self._next_index = {key: len(partition.placed) + 1 for key, partition in self.partitions.items()}
        if self._world.bug is Bug.INDEX_FROM_COMMIT:
            return
        for command in (command for entry in self.store.entries for command in commands_of(entry)):
            following = max(self._next_index.get(command.partition_id, 1), command.last_index + 1)
            self._next_index[command.partition_id] = following

    def admit(self, partition: int, count: int) -> int | None:
        """Return the first of so many new indices of a partition."""
        index = self._next_index.get(partition, 1)
        self._next_index[partition] = index + count
        return index

    def withdraw(self, partition: int, index: int) -> None:
        """Give indices from this one on back."""
        self._next_index[partition] = index

    def end(self, partition: int) -> bool:
        """Refuse: partitions of the model live for ever."""
        del partition
        return False

    def set_members(self, conf: ConfState) -> None:
        """Do nothing."""

    def progress(self) -> int:
        """Return nothing: nobody counts."""
        return 0

    def acknowledge(self, node: int, global_index: int) -> None:
        """Do nothing."""

    def work(self) -> None:
        """Sync, apply, save."""
        with_index = self._world.bug is not Bug.DOUBLE_APPLY
        for key, partition in self.partitions.items():
            if self._world.is_peace:
                partition.finish()
                partition.save(with_index=with_index)
            else:
                self._work_a_little(partition, with_index=with_index)
            self._check(key, partition)

    def compact(self, conf: ConfState, conf_index: int, *, wanted: int) -> Snapshot | None:
        """Take a snapshot at the highest index that no partition needs entries below of."""
        del wanted
        index = min((one.required_index(self._handed_on) for one in self.partitions.values()), default=self._handed_on)
        if self._world.bug in (Bug.TRUNCATE_PENDING, Bug.SNAPSHOT_BEHIND):
            index = self._handed_on
        if index <= self.store.base_index or index > self.store.last_index or conf_index > index:
            return None
        held = self.store.base_index if self._world.bug is Bug.SNAPSHOT_BEHIND else index
        snapshot = Snapshot(index, self.store.term(index), conf, pack_partitions(self.partitions, held))
        self.store.compact(snapshot)
        return snapshot

    def install(self, snapshot: Snapshot) -> bool:
        """Take a snapshot in: first the partitions, then the parent, or a cut between them would lose records."""
        self.partitions = unpack_partitions(snapshot.data)
        self._handed_on = snapshot.index
        for key, partition in self.partitions.items():
            self._check(key, partition)
        return True

    def offers(self, snapshot: Snapshot) -> list[bytes]:
        """Return something: all is in the snapshot's data."""
        return [snapshot.data]

    def receive(self, snapshot: Snapshot, chunks: Sequence[bytes]) -> int:
        """Miss nothing."""
        del snapshot, chunks
        return 0

    def records(self, partition: PartitionState, low: int) -> list[PartitionEntry] | None:
        """Return nothing: nobody asks."""
        del partition, low
        return None

    def check_whole(self, handed_on: int) -> None:
        """Check that the partitions are those of the agreed log."""
        held = {(key, one.born): len(one.placed) for key, one in self.partitions.items() if one.placed}
        self._world.truth.check_whole(self._node, held, handed_on)
        for key, partition in self.partitions.items():
            self._world.truth.check_partition(self._node, key, partition.born, partition.placed)

    def _work_a_little(self, partition: ModelPartition, *, with_index: bool) -> None:
        if self._world.chance(0.2):
            partition.sync()
        if self._world.chance(self._world.climate.apply_share):
            partition.apply()
        if self._world.chance(0.3):
            partition.save(with_index=with_index)

    def _check(self, key: int, partition: ModelPartition) -> None:
        partition.check()
        if self._world.bug is not Bug.FORWARD_AT_FSYNC:
            self._world.truth.check_partition(self._node, key, partition.born, partition.placed)

    def _roll_back(self) -> None:
        for entry in self.store.recover().entries:
            for command in commands_of(entry):
                partition = self.partitions.get(command.partition_id)
                if partition is None or command.last_index > partition.durable:
                    self.store.cut(entry.index)
                    return
