"""One simulated node: the real engine and the real driver, on a model of a disk, in a world with its own time.

Invariants: what a crash leaves is `store` and `partitions`; all else is made anew by `start`.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, Protocol

from latewood.replica.driver import Proposals, Write, perform
from latewood.replica.engine import Entry, EntryKind, LogStore, Message, ReadState, Recovered, Role, Snapshot
from latewood.replica.raft_rs import RaftOptions, RaftRsEngine
from latewood.testing.simulate_disk import ModelPartition, pack_partitions, unpack_partitions
from latewood.testing.simulate_planted import Bug, PlantedDriver
from latewood.testing.simulate_truth import Command, Truth, Violation

ELECTION_TICKS: Final = 10


class Surroundings(Protocol):
    """What a node sees of the world."""

    random: Random
    truth: Truth
    bug: Bug | None

    def send(self, sender: int, message: Message) -> None:
        """Let a message travel."""
        ...

    def write_later(self, node: "Node") -> None:
        """Call `disk_done` when the disk is done."""
        ...

    def fetch_later(self, node: "Node", token: int, entries: list[Entry]) -> None:
        """Call `fetched` when the disk is done."""
        ...

    def chance(self, share: float) -> bool:
        """Say yes in this share of the cases."""
        ...

    def note(self, *values: int) -> None:
        """Make values part of the trace that two runs of a seed must share."""
        ...


class SimulatedStore(LogStore, Protocol):
    """A parent log that can lose power."""

    @property
    def base_index(self) -> int:
        """The compacted index."""
        ...

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        ...

    def term(self, index: int) -> int:
        """Return an entry's term."""
        ...

    def settle(self) -> None:
        """End a sync."""
        ...

    def lose_power(self, random: Random) -> None:
        """Keep what is durable, and some of the rest."""
        ...

    def cut(self, index: int) -> None:
        """Drop entries from `index` on: a planted bug."""
        ...


class Node:
    """One node, up or down."""

    def __init__(self, node: int, world: Surroundings, store: SimulatedStore) -> None:
        self.node, self._world = node, world
        self.store = store
        self.partitions: dict[int, ModelPartition] = {}
        self.incarnation = 0
        self.is_up = False
        self.voted = False
        """Whether the last write that became durable had a vote: a good moment for a crash."""

    @property
    def is_leader(self) -> bool:
        """Whether it is up and thinks so."""
        return self.is_up and self.driver.role == Role.LEADER

    def start(self) -> None:
        """Come up, from what the disk holds."""
        self.incarnation += 1
        self.is_up = True
        self._roll_back()
        recovered = self._recovered()
        ticks = self._world.random.randrange(ELECTION_TICKS, 2 * ELECTION_TICKS)
        options = RaftOptions(
            election_ticks=ELECTION_TICKS,
            heartbeat_ticks=2,
            election_ticks_min=ticks,
            election_ticks_max=ticks + 1,  # a fixed timeout: the engine's own chance would differ in every run
            message_bytes_max=self._world.random.choice((64, 512, 1 << 20)),
            messages_in_flight_max=self._world.random.choice((2, 16, 256)),
            window_bytes_max=self._world.random.choice((0, 500, 1 << 20)),
        )
        self.engine = RaftRsEngine(self.node, recovered, options)
        self.driver = PlantedDriver(
            self.engine, recovered=recovered, send=self._send, hand_on=self._hand_on, on_reads=self._on_reads
        )
        self.driver.bug = self._world.bug
        self.proposals: Proposals[int] = Proposals()
        self.handed_on = recovered.applied
        self.reads: dict[bytes, int] = {}
        self._log = list(recovered.entries)
        self._queue: list[Write] = []
        self._writing: list[Write] = []
        self._lead_term = 0
        self._next_index: dict[int, int] = {}

    def crash(self) -> None:
        """Lose power."""
        self.is_up = False
        self.store.lose_power(self._world.random)
        for partition in self.partitions.values():
            partition.lose_power(self._world.random)

    def tick(self) -> None:
        """Let time pass."""
        self.engine.tick()
        self.pump()

    def receive(self, sender: int, data: bytes) -> None:
        """Take a message in."""
        self.engine.step(sender, [data])
        self.pump()

    def fetched(self, token: int, entries: list[Entry]) -> None:
        """Take old entries in."""
        self.engine.on_fetched(token, entries)
        self.pump()

    def pump(self) -> None:
        """Do all that the engine wants now."""
        writes = self.driver.turn()
        for write in writes:
            self._mirror(write)
        self._queue += writes
        for fetch in self.driver.fetches():
            self._world.fetch_later(self, fetch.token, self.store.read(fetch.low, fetch.high, fetch.bytes_max))
        if self._queue and not self._writing:
            self._begin_writing()

    def disk_done(self) -> None:
        """Take note that what was being written is durable."""
        written, self._writing = self._writing, []
        if self._world.bug is not Bug.SYNC_DOES_NOTHING:
            self.store.settle()
        self.voted = any(write.hard_state and write.hard_state.vote for write in written)
        self._planted_after_sync(written)
        self.driver.written(len(written))
        self.pump()

    def propose(self, partition: int, operation: int) -> bool:
        """Have an operation committed; say whether there is hope."""
        if self._lead_term != self.driver.term:
            self._lead_term, self._next_index = self.driver.term, self._count_records()
        partition_index = self._next_index.get(partition, 1)
        self._world.truth.invoke(operation)
        index = self.engine.propose([Command(partition, partition_index, operation).encode()])
        if index:
            self._next_index[partition] = partition_index + 1
            self.proposals.add(index, self.driver.term, [operation])
            self.pump()
        return bool(index)

    def read(self) -> None:
        """Ask for a linearizable read, and remember what it must see."""
        context = self._world.random.randbytes(8)
        self.reads[context] = self._world.truth.acked_index_max
        self.engine.read_index(context)
        self.pump()

    def work(self) -> None:
        """Let the partitions do a little: sync, apply, save."""
        for key, partition in self.partitions.items():
            if self._world.chance(0.6):
                partition.sync()
            if self._world.chance(0.7):
                partition.apply()
            if self._world.chance(0.3):
                partition.save(with_index=self._world.bug is not Bug.DOUBLE_APPLY)
            self._check(key, partition)
        if self.engine.wants_snapshot():
            self.compact()

    def finish_work(self) -> None:
        """Let the partitions do all that there is."""
        for key, partition in self.partitions.items():
            partition.sync()
            while partition.apply():
                pass
            partition.save(with_index=self._world.bug is not Bug.DOUBLE_APPLY)
            self._check(key, partition)
        if self.engine.wants_snapshot():
            self.compact()

    def compact(self) -> None:
        """Take a snapshot at the highest index that no partition needs entries below of, and forget those."""
        index = min((part.required_index(self.handed_on) for part in self.partitions.values()), default=self.handed_on)
        if self._world.bug in (Bug.TRUNCATE_PENDING, Bug.SNAPSHOT_BEHIND):
            index = self.handed_on
        if index <= self.store.base_index or index > self.store.last_index or self.driver.conf_index > index:
            return
        if self._queue or self._writing:
            return  # The store's one thread is busy.
        held = self.store.base_index if self._world.bug is Bug.SNAPSHOT_BEHIND else index
        data = pack_partitions(self.partitions, held)
        snapshot = Snapshot(index, self.store.term(index), self.driver.conf, data)
        self.store.compact(snapshot)
        self.engine.set_snapshot(snapshot)
        self.engine.compact(index)
        del self._log[: index - (self._log[0].index if self._log else index) + 1]
        self._world.note(self.node, index)

    def _recovered(self) -> Recovered:
        recovered = self.store.recover()
        if self._world.bug is Bug.FORGOTTEN_VOTE:
            return recovered._replace(hard_state=recovered.hard_state._replace(vote=0))
        return recovered

    def _roll_back(self) -> None:
        if self._world.bug is not Bug.ROLL_BACK_RECOVERY:
            return
        for entry in self.store.recover().entries:
            if entry.kind == EntryKind.NORMAL and entry.data:
                command = Command.decode(entry.data)
                partition = self.partitions.get(command.partition)
                if partition is None or command.partition_index > partition.durable:
                    self.store.cut(entry.index)
                    return

    def _begin_writing(self) -> None:
        self._writing, self._queue = self._queue, []
        for write in self._writing:
            if write.snapshot:
                # First the partitions, then the parent: the other way round a cut between them would lose records.
                self.partitions = unpack_partitions(write.snapshot.data)
                self.handed_on = write.snapshot.index
                for key, partition in self.partitions.items():
                    self._check(key, partition)
        perform(self.store, self._writing)
        self._world.write_later(self)

    def _mirror(self, write: Write) -> None:
        if write.snapshot:
            self._log = []
        if write.entries:
            first = write.entries[0].index
            while self._log and self._log[-1].index >= first:
                self._log.pop()
            self._log += write.entries

    def _count_records(self) -> dict[int, int]:
        """Return the next record's number for each partition: behind all that is in the log, committed or not."""
        following = {key: len(partition.placed) + 1 for key, partition in self.partitions.items()}
        if self._world.bug is Bug.INDEX_FROM_COMMIT:
            return following
        for entry in self._log:
            if entry.kind == EntryKind.NORMAL and entry.data:
                command = Command.decode(entry.data)
                following[command.partition] = max(following.get(command.partition, 1), command.partition_index + 1)
        return following

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._world.send(self.node, message)

    def _on_reads(self, reads: Sequence[ReadState]) -> None:
        for index, context in reads:
            if index < self.reads.pop(context, 0):
                raise Violation(f"node {self.node}: a read at {index} misses what was acknowledged before it")

    def _hand_on(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.index != self.handed_on + 1:
                raise Violation(f"node {self.node} hands {entry.index} on after {self.handed_on}")
            self._world.truth.commit(self.node, entry)
            self.handed_on = entry.index
            if self._world.bug is not Bug.FORWARD_AT_FSYNC:
                self._place(entry)
        done, lost = self.proposals.settle(entries)
        if self._world.bug is Bug.ACK_WITHOUT_TERM:
            done += [(operation, entries[-1].index) for operation in lost]
        for operation, index in done:
            self._world.note(self.node, operation, index)
            self._world.truth.acknowledge(operation, index)

    def _place(self, entry: Entry) -> None:
        if entry.kind == EntryKind.NORMAL and entry.data:
            command = Command.decode(entry.data)
            partition = self.partitions.setdefault(command.partition, ModelPartition())
            partition.place(command, entry.index, verifies=self._world.bug is not Bug.FORWARD_AT_FSYNC)

    def _planted_after_sync(self, written: list[Write]) -> None:
        if self._world.bug is Bug.FORWARD_AT_FSYNC:
            for write in written:
                for entry in write.entries:
                    self._place(entry)
        if self._world.bug is Bug.ACK_AT_APPEND and self.is_leader:
            for operation, index in self.proposals.settle([entry for write in written for entry in write.entries])[0]:
                self._world.truth.acked[operation] = index
                self._world.truth.acked_index_max = max(self._world.truth.acked_index_max, index)

    def _check(self, key: int, partition: ModelPartition) -> None:
        partition.check()
        if self._world.bug is not Bug.FORWARD_AT_FSYNC:
            self._world.truth.check_partition(self.node, key, partition.placed)
