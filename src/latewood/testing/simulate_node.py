"""One simulated node: the real engine and the real driver, on a storage that can lose power, in a simulated world.

Invariants: what a crash leaves is `storage`; all else is made anew by `start`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from latewood.replica.driver import Proposals, Write, perform
from latewood.replica.engine import NO_NODE, Entry, Message, MessageKind, ReadState, Recovered, Role, Snapshot
from latewood.replica.raft_rs import RaftOptions, RaftRsEngine
from latewood.testing.fake_clock import START_NS
from latewood.testing.simulate_planted import Bug, PlantedDriver
from latewood.testing.simulate_storage import Storage, Surroundings
from latewood.testing.simulate_truth import Violation, tear_down_data, write_data

ELECTION_TICKS: Final = 10


class NodeWorld(Surroundings, Protocol):
    """What a node sees of the world."""

    def send(self, sender: int, message: Message) -> None:
        """Let a message travel."""
        ...

    def send_snapshot(self, sender: int, message: Message, snapshot: Snapshot) -> None:
        """Let what a snapshot names travel, and then the message."""
        ...

    def write_later(self, node: "Node") -> None:
        """Call `disk_done` when the disk is done."""
        ...

    def fetch_later(self, node: "Node", token: int, entries: list[Entry]) -> None:
        """Call `fetched` when the disk is done."""
        ...

    def restart_later(self, node: "Node") -> None:
        """Call `start` in a while: the node has stopped by itself."""
        ...


class Node:
    """One node, up or down."""

    def __init__(self, node: int, world: NodeWorld, storage: Storage) -> None:
        self.node, self._world = node, world
        self.storage = storage
        self.incarnation = 0
        self.is_up = False
        self.voted = False
        """Whether the last write that became durable gave another node our vote: a good moment for a crash."""

    @property
    def is_leader(self) -> bool:
        """Whether it is up and thinks so."""
        return self.is_up and self.driver.role == Role.LEADER

    def start(self) -> None:
        """Come up, from what the disk holds.

        Raises:
            UnavailableError: it needs records of others, and cannot reach them.
        """
        recovered = self._recovered()
        self.incarnation += 1
        self.is_up = True
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
        self._snapshot = recovered.snapshot
        self._base = self.storage.base_index
        self._vote = recovered.hard_state[:2]
        self._queue: list[Write] = []
        self._writing: list[Write] = []
        self._lead_term = 0

    def crash(self) -> None:
        """Lose power."""
        self.is_up = False
        self.storage.lose_power()

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
        self._queue += self.driver.take()
        if self.is_leader:
            self._world.truth.lead(self.node, self.driver.term)
        for fetch in self.driver.fetches():
            self._world.fetch_later(self, fetch.token, self.storage.store.read(fetch.low, fetch.high, fetch.bytes_max))
        if self._queue and not self._writing:
            self._begin_writing()
        if self.is_up and self.driver.hand_on() and self.engine.has_ready():
            self.pump()

    def disk_done(self) -> None:
        """Take note that what was being written is durable."""
        written, self._writing = self._writing, []
        self.storage.settle()
        votes = [write.hard_state[:2] for write in written if write.hard_state]
        self.voted = any(vote not in (NO_NODE, self.node) and (term, vote) != self._vote for term, vote in votes)
        self._vote = votes[-1] if votes else self._vote
        self._planted_after_sync(written)
        self.driver.written(len(written))
        self.pump()

    def propose(self, requests: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Have operations, each some for a partition, committed with one entry, as far as the partitions take them."""
        self._begin_to_lead()
        time_ns = START_NS + self._world.now_ms * 1_000_000
        admitted: list[tuple[int, int]] = []
        commands, invoked = list[bytes](), list[int]()
        for partition, operations in requests:
            index = self.storage.admit(partition, len(operations))
            if index is not None:
                admitted.append((partition, index))
                commands.append(write_data(partition, index, operations, time_ns))
                invoked += operations
        for operation in invoked:
            self._world.truth.invoke(operation)
        if not admitted:
            return
        if at := self.engine.propose([b"".join(commands)]):
            self.proposals.add(at, self.driver.term, [invoked])
            self.pump()
        else:
            for partition, index in reversed(admitted):
                self.storage.withdraw(partition, index)

    def tear_down(self, partition: int) -> None:
        """Have a partition torn down."""
        self._begin_to_lead()
        if self.storage.end(partition):
            self.engine.propose([tear_down_data(partition)])
            self.pump()

    def read(self) -> None:
        """Ask for a linearizable read, and remember what it must see."""
        context = self._world.random.randbytes(8)
        self.reads[context] = self._world.truth.acked_index_max
        self.engine.read_index(context)
        self.pump()

    def work(self) -> None:
        """Let the partitions do a little."""
        self.storage.work()
        if self.engine.wants_snapshot() or self.storage.has_waiting_snapshot:
            self.compact()

    def compact(self) -> None:
        """Take a snapshot, if that can be done now, and forget the entries that it holds."""
        if self._queue or self._writing:
            return  # The store's one thread is busy.
        wanted = self.engine.wants_snapshot()
        snapshot = self.storage.compact(self.driver.conf, self.driver.conf_index, wanted=wanted)
        if snapshot:
            self._snapshot = snapshot
            self.engine.set_snapshot(snapshot)
            base = self.storage.base_index
            if base > self._base:
                self._base = base
                self.engine.compact(base)
                self._world.note(self.node, base)

    def _recovered(self) -> Recovered:
        recovered = self.storage.start()
        if self._world.bug is Bug.FORGOTTEN_VOTE:
            return recovered._replace(hard_state=recovered.hard_state._replace(vote=0))
        return recovered

    def _begin_to_lead(self) -> None:
        if self._lead_term != self.driver.term:
            self._lead_term = self.driver.term
            self.storage.lead()

    def _begin_writing(self) -> None:
        writes, self._queue = self._queue, []
        for write in writes:
            if write.snapshot:
                if not self.storage.install(write.snapshot):
                    self.is_up = False  # Whatever else was to be written was promised to nobody.
                    self._world.restart_later(self)
                    return
                self.handed_on, self._snapshot = write.snapshot.index, write.snapshot
        perform(self.storage.store, writes)
        self._writing = writes
        self._world.write_later(self)

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.kind == MessageKind.SNAPSHOT and self._snapshot:
                self._world.send_snapshot(self.node, message, self._snapshot)
            else:
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
        done, lost = self.proposals.settle(entries)
        if self._world.bug is Bug.ACK_WITHOUT_TERM:
            done += [(operation, entries[-1].index) for operation in lost]
        for operation, index in done:
            self._world.note(self.node, operation, index)
            self._world.truth.acknowledge(operation, index)
        if self._world.bug is not Bug.FORWARD_AT_FSYNC:
            self.storage.hand_on(entries)
        self.storage.set_members(self.driver.conf)

    def _planted_after_sync(self, written: list[Write]) -> None:
        if self._world.bug is Bug.FORWARD_AT_FSYNC:
            for write in written:
                self.storage.hand_on(write.entries)
        if self._world.bug is Bug.ACK_AT_APPEND and self.is_leader:
            for operation, index in self.proposals.settle([entry for write in written for entry in write.entries])[0]:
                self._world.truth.acked[operation] = index
                self._world.truth.acked_index_max = max(self._world.truth.acked_index_max, index)
