"""The storage of a simulated node for real: its parent log, partitions, machines, recovery and snapshots.

They stand on a `CrashFS`: a power cut leaves any sectors that a disk may leave.  Only time is not real: a sync of the
parent log takes as long as the world says, and machines work when it is their turn.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from latewood.errors import CorruptError, NotFoundError, Overloaded, StrayLog, StrayRecord, UnavailableError
from latewood.format.entry import tears_down
from latewood.format.identity import Owner
from latewood.limits import KiB
from latewood.log import Log, LogOptions
from latewood.replica.apply import Alert, Applier
from latewood.replica.births import Births
from latewood.replica.dispatch import Following
from latewood.replica.engine import NO_NODE, ConfState, Entry, HardState, LogStore, Recovered, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.machine import LogMachine, PartitionEntry, PartitionStateMachine
from latewood.replica.partition import PartitionLogStore
from latewood.replica.recovery import (
    NodeLayout,
    NodeSite,
    RecoveredNode,
    close_node,
    following_indices,
    install_snapshot,
    recover_node,
)
from latewood.replica.repair import Mender, repair_files
from latewood.replica.retention import compact_partition, drop_below, log_partitions
from latewood.replica.roster import partition_names
from latewood.replica.schedule import RetryPolicy
from latewood.replica.snapshot import (
    PartitionState,
    SnapshotInHand,
    SnapshotReader,
    SnapshotReceiver,
    SnapshotWriter,
    begin_snapshot,
    remove_snapshots_before,
)
from latewood.testing.crash_fs import TEAR_BYTES, CrashFS
from latewood.testing.fake_clock import START_NS, FakeClock
from latewood.testing.simulate_machine import RememberingMachine
from latewood.testing.simulate_planted import Bug, roll_back
from latewood.testing.simulate_storage import Surroundings
from latewood.testing.simulate_sync import LateSync
from latewood.testing.simulate_truth import Placed, Violation, operation_in

_LAYOUT: Final = NodeLayout(Path("/node"))
_PARENT: Final = LogOptions(segment_bytes_max=8 * KiB)
_PARTITION: Final = LogOptions(segment_bytes_max=512, index_interval=4)
"""Some records each, so that there is something to forget."""
_SNAPSHOT: Final = LogOptions(segment_bytes_max=2 * KiB)
_RECENT_BYTES_MAX: Final = 1 * KiB
"""Little, so that old entries are read from the disk."""

_SURVIVORS_MAX: Final = 16
"""Disks that a cut may leave, out of which one is drawn."""

_CHUNKS_AT_ONCE: Final = 3
_RETRIES: Final = RetryPolicy(attempts_max=3, first_ms=5)


class DiskStorage:
    """A `Storage` on a disk that tears."""

    _up: RecoveredNode
    _store: LateSync

    def __init__(self, node: int, world: Surroundings, first: ConfState | None, first_index: int) -> None:
        self._node, self._world = node, world
        self._clock = FakeClock()
        self._fs = CrashFS(tear_bytes=world.random.choice(TEAR_BYTES))
        self._site = self._make_site()
        self._in_hand: SnapshotInHand | None = None
        """A snapshot that is written, and does not count yet: entries are routed meanwhile."""
        self._taken: Snapshot | None = None
        """A snapshot that is whole, and waits until the parent log may be cut there."""
        self._newest: Snapshot | None = None
        """The last one that has waited long enough."""
        self._verified: dict[tuple[int, int], int] = {}
        """Up to where the records of a partition were compared with the truth since the last start."""
        self._flushed: dict[tuple[int, int], int] = {}
        """What the partitions' own logs had promised to keep when power was lost."""
        if first:
            self._found(Snapshot(first_index, 1, first, f"{first_index}-1".encode()))

    @property
    def store(self) -> LogStore:
        """The parent log."""
        return self._store

    @property
    def base_index(self) -> int:
        """The compacted index."""
        return self._up.store.first_index - 1

    # -- coming and going -----------------------------------------------------------------------------------

    def start(self) -> Recovered:
        """Come up from what the disk holds."""
        self._tell_time()
        if self._world.bug is Bug.SYNC_DOES_NOTHING:
            self._fs.ignore_sync(".q")
        if self._world.bug is Bug.ROLL_BACK_RECOVERY:
            roll_back(self._site)
        self._check_flushed()
        applier = Applier(self._clock, _RETRIES, batch_max=4)
        has_strays = self._world.housekeeps(0.1) and self._append_strays()
        try:
            self._up = up = recover_node(self._site, pull=self._pull, applier=applier)
        except (StrayRecord, StrayLog):
            if not has_strays:
                raise
            self._repair()
            self._up = up = recover_node(self._site, pull=self._pull, applier=applier)
        self._store = LateSync(up.store)
        self._in_hand, self._taken, self._newest, self._verified = None, None, None, {}
        if self._world.bug is not Bug.FORWARD_AT_FSYNC:
            for entry in up.store.read_all(up.store.first_index, up.applied + 1):
                self._world.truth.commit(self._node, entry)
        self._check()
        return up.store.recover(up.applied)

    def _append_strays(self) -> bool:
        """Append to a partition, as another program does, if there is one; none of that may be there later."""
        names = partition_names(self._fs, _LAYOUT.partitions)
        if names:
            partition_id, born = self._world.choose(names)
            path = _LAYOUT.partitions / f"{partition_id}-{self._world.choose((born, born, born, born + 1))}"
            owner = Owner.NODE
            with Log.open(path, _PARTITION, fs=self._fs, clock=self._clock, background=False, owner=owner) as log:
                ext_id = self._world.choose((0, 0, born))
                log.append_many([b"stray"] * self._world.choose((1, 2, 40)), ext_id=ext_id)
        return bool(names)

    def _repair(self) -> None:
        """Do what the error says."""
        with self._open_parent() as store:
            repair_files(store, Mender(_LAYOUT, self._fs, self._clock, self._site.births, _PARTITION, "replace it"))

    def settle(self) -> None:
        """End a sync."""
        self._store.settle()

    def lose_power(self) -> None:
        """Go on with one of the disks that a cut may leave."""
        survivors = self._fs.survivors(limit=_SURVIVORS_MAX, seed=self._world.random.getrandbits(32))
        place = self._world.random.randrange(_SURVIVORS_MAX)
        self._flushed = {
            (one.partition_id, one.born): self._up.machine.parts.watermarks[one.partition_id].flushed_index
            for one in self._up.machine.parts.roster
            if one.partition_id in self._up.machine.parts.watermarks
        }
        self._fs = list(islice(survivors, place + 1))[-1]
        self._site = self._make_site()

    # -- entries --------------------------------------------------------------------------------------------

    def hand_on(self, entries: Sequence[Entry]) -> None:
        """Take entries to their partitions."""
        self._tell_time()
        if any(tears_down(entry.data) for entry in entries):
            self._up.store.keep_commit(entries[-1].index)
        self._up.machine.commit(entries, self._up.store.durable_index)

    def lead(self) -> None:
        """Begin to give out indices."""
        following = following_indices(self._up.store, self._up.machine)
        if self._world.bug is Bug.INDEX_FROM_COMMIT:
            placed = {one.partition_id: one.next_index for one in self._up.machine.parts.roster}
            following = Following(placed, frozenset())
        self._up.machine.parts.dispatcher.lead(following)

    def admit(self, partition: int, count: int) -> int | None:
        """Return the first of so many new indices of a partition, if they are admitted."""
        try:
            return self._up.machine.parts.dispatcher.admit(partition, count, count, self._clock.now_ns())[0]
        except Overloaded:
            return None

    def withdraw(self, partition: int, index: int) -> None:
        """Give indices from this one on back."""
        self._up.machine.parts.dispatcher.withdraw(partition, index)

    def end(self, partition: int) -> bool:
        """Give out no index of a partition until its teardown is committed."""
        if self._up.machine.parts.roster.get(partition) is None:
            return False
        self._up.machine.parts.dispatcher.end(partition)
        return True

    def set_members(self, conf: ConfState) -> None:
        """Know who has a vote: a majority of those must have what the parent log forgets."""
        self._up.machine.parts.acks.set_members(conf.electors)

    def progress(self) -> int:
        """Return how far all is applied here."""
        return self._up.machine.parts.watermarks.applied_floor()

    def acknowledge(self, node: int, global_index: int) -> None:
        """Take an acknowledgement, perhaps a late one."""
        self._up.machine.parts.acks.acknowledge_through(node, global_index)

    def work(self) -> None:
        """Apply, flush, resume what is paused."""
        self._tell_time()
        machine, is_peace = self._up.machine, self._world.is_peace
        if is_peace or self._world.chance(self._world.climate.apply_share):
            machine.parts.applier.run_ready()
        for event in machine.collect():
            self._world.note(self._node, event.partition_id, event.index, isinstance(event, Alert))
        for partition in machine.parts.roster:
            if machine.parts.applier.is_paused(partition.partition_id) and (is_peace or self._world.chance(0.1)):
                machine.resume(partition.partition_id)
        if self._world.chance(0.1):
            machine.flush()
        if self._world.housekeeps(0.1):
            self._let_go()
        self.acknowledge(self._node, self.progress())
        self._check()

    def _let_go(self) -> None:
        """Drop what was decided that logs may forget."""
        for partition in log_partitions(self._up.machine):
            first = self._world.truth.kept_from.get((partition.partition_id, partition.born), 0)
            if self._world.bug is Bug.DROP_UNDECIDED:
                first = partition.next_index - 2
            if first < partition.next_index - 1:  # Else what was decided has not come here yet.
                drop_below(partition, first, self._fs)
        if self._world.bug is Bug.COMPACT_PAST_SNAPSHOT:
            for partition in self._up.machine.parts.roster:
                if isinstance(self._up.machine.parts.applier.machine(partition.partition_id), RememberingMachine):
                    partition.compact(self._up.machine.parts.watermarks[partition.partition_id].applied_index)

    # -- snapshots --------------------------------------------------------------------------------------------

    @property
    def has_waiting_snapshot(self) -> bool:
        """Whether a snapshot waits until the parent log may be cut there."""
        return self._taken is not None or self._in_hand is not None

    def compact(self, conf: ConfState, conf_index: int, *, wanted: int) -> Snapshot | None:
        """Cut the parent log at a snapshot, the one that waits or a new one, if enough nodes have what is cut off.

        Or at the one before it, as a node does that serves others from its log.  Whoever needs a snapshot gets it in
        any case: it may be one of those that must have what is cut off.
        """
        del conf_index
        self._tell_time()
        up, base = self._up, self.base_index
        if self._taken is None or self._taken.index <= base or self._taken.index < wanted:
            if self._in_hand is None and not self._begin_snapshot(conf):
                return None
            assert self._in_hand is not None
            self._in_hand.publish()
            self._in_hand.record(up.machine)
            self._taken, self._in_hand = self._in_hand.snapshot, None
        if self._taken.index > up.machine.truncatable_to():
            return self._taken
        taken, before = self._taken, self._newest
        self._taken, self._newest = None, taken
        self._cut(before if before and before.index > base and self._world.housekeeps(0.5) else taken)
        return taken

    def _begin_snapshot(self, conf: ConfState) -> bool:
        """Write a snapshot, if there is something to write; say whether it is to be published at once."""
        machine, marks = self._up.machine, self._up.machine.parts.watermarks
        if marks.routed <= self.base_index:
            return False
        try:
            term = self._up.store.term(marks.routed)
            self._in_hand = begin_snapshot(machine, self._fs, _LAYOUT.snapshots, term, conf, _SNAPSHOT)
        except UnavailableError:
            return False
        return self._world.chance(0.5)

    def _cut(self, snapshot: Snapshot) -> None:
        """Have the parent log begin behind a snapshot, and then the partitions of machines."""
        self._up.store.compact(snapshot)
        with SnapshotReader.open(self._fs, self._path(snapshot)) as reader:
            for state in reader.partitions:
                compact_partition(self._up.machine, state, self._fs)
                self._check_compacted(state)
        remove_snapshots_before(self._fs, _LAYOUT.snapshots, snapshot.index)

    def install(self, snapshot: Snapshot) -> bool:
        """Take a snapshot in, if it has arrived and others can be reached; the node must come up anew in any case."""
        try:
            with SnapshotReader.open(self._fs, self._path(snapshot)) as reader:
                if self._world.chance(0.5):
                    install_snapshot(self._up, reader, self._pull)
                else:  # Nothing is fetched before: recovery has to.
                    self._up.store.install(snapshot)
                    self._up.store.sync()
        except (UnavailableError, NotFoundError):
            self._world.note(self._node, snapshot.index, 0)
        if self._world.chance(0.3):
            self.lose_power()
        else:
            if self._in_hand:
                self._in_hand.abandon()
            close_node(self._up)
        return False

    def offers(self, snapshot: Snapshot) -> list[bytes]:
        """Return a snapshot's chunks."""
        try:
            with SnapshotReader.open(self._fs, self._path(snapshot)) as reader:
                return [raw for _, raw in reader.chunks()]
        except NotFoundError:
            return []

    def receive(self, snapshot: Snapshot, chunks: Sequence[bytes]) -> int:
        """Take in the next chunks."""
        receiver = SnapshotReceiver(self._fs, self._clock, _LAYOUT.snapshots, snapshot.index, snapshot.term, _SNAPSHOT)
        start = receiver.next_number
        try:
            for number, raw in islice(enumerate(chunks), start, start + _CHUNKS_AT_ONCE):
                receiver.add(number, raw)
        except CorruptError:
            receiver.abandon()
            return len(chunks)
        if self._world.chance(0.5):
            receiver.flush()
        receiver.close()
        return 0 if receiver.is_complete else len(chunks) - receiver.next_number

    def records(self, partition: PartitionState, low: int) -> list[PartitionEntry] | None:
        """Return some records of a partition."""
        found = self._up.machine.parts.roster.get(partition.partition_id)
        if found and found.born == partition.born:
            return found.read_some(max(low, found.first_index), 5) or None
        if self._up.machine.parts.watermarks.routed >= partition.born:
            message = f"partition {partition.partition_id} was torn down"
            raise NotFoundError(message)
        return None

    # -- checks -----------------------------------------------------------------------------------------------

    def check_whole(self, handed_on: int) -> None:
        """Check that the partitions are those of the agreed log, and their machines' states with them."""
        self.work()
        self._verified = {}
        self._check()
        held = {(one.partition_id, one.born): one.next_index - 1 for one in self._up.machine.parts.roster}
        self._world.truth.check_whole(self._node, held, handed_on)

    def _check_flushed(self) -> None:
        """Check that the partitions kept what they had flushed, before recovery repairs what they lost."""
        for (partition, born), index in self._flushed.items():
            path = _LAYOUT.partitions / f"{partition}-{born}"
            if index and self._fs.exists(path) and self._world.chance(0.3):
                with Log.open(path, mode="r", fs=self._fs) as log:
                    if log.next_sequence < index:
                        raise Violation(f"node {self._node}: partition {partition} has {log.next_sequence} of {index} "
                                        f"records that were flushed")  # fmt: skip
        self._flushed = {}

    def _check(self) -> None:
        self._check_watermarks()
        if self._world.bug is not Bug.FORWARD_AT_FSYNC:
            for partition in self._up.machine.parts.roster:
                self._check_records(partition)
                self._check_machine(partition, self._up.machine.parts.applier.machine(partition.partition_id))

    def _check_watermarks(self) -> None:
        marks, base = self._up.machine.parts.watermarks, self._up.store.first_index - 1
        order = (base, marks.snapshot_global, marks.applied_floor(), marks.routed, marks.parent_durable)
        if list(order) != sorted(order):
            raise Violation(f"node {self._node}: the watermarks {order} are out of order")
        if not base <= self._up.machine.truncatable_to() <= marks.flushed_floor():
            raise Violation(f"node {self._node} may forget up to {self._up.machine.truncatable_to()}")

    def _check_records(self, partition: PartitionLogStore) -> None:
        key = (partition.partition_id, partition.born)
        low = max(self._verified.get(key, 0) + 1, partition.first_index)
        entries = list(partition.read(low, partition.next_index))
        placed = [Placed(operation_in(entry.payload), entry.global_index) for entry in entries]
        self._world.truth.check_partition(self._node, *key, placed, low - 1)
        self._verified[key] = partition.next_index - 1
        truth, is_log = self._world.truth, partition.partition_id % 2 == 1
        if is_log and key not in truth.ended and partition.first_index - 1 > truth.kept_from.get(key, 0):
            raise Violation(f"node {self._node}: partition {key[0]} lacks records that nobody let go")

    def _check_compacted(self, state: PartitionState) -> None:
        """Check that a machine's partition has what the snapshot does not hold that the parent log begins behind."""
        partition = self._up.machine.parts.roster.get(state.partition_id)
        is_here = partition is not None and partition.born == state.born and not state.log_is_state
        if partition and is_here and partition.first_index - 1 > state.partition_log_index:
            raise Violation(f"node {self._node}: partition {state.partition_id} lacks records that no snapshot holds")

    def _check_machine(self, partition: PartitionLogStore, machine: PartitionStateMachine) -> None:
        if not isinstance(machine, RememberingMachine):
            return
        applied = self._up.machine.parts.watermarks[partition.partition_id].applied_index
        placed = self._world.truth.projection[partition.partition_id, partition.born]
        if machine.operations != [one.operation for one in placed[:applied]]:
            raise Violation(f"node {self._node}: the machine of partition {partition.partition_id} did not apply every "
                            f"record once")  # fmt: skip

    # -- inside -----------------------------------------------------------------------------------------------

    def _found(self, first: Snapshot) -> None:
        writer = SnapshotWriter(self._fs, self._clock, _LAYOUT.snapshots, first.index, first.term, _SNAPSHOT)
        writer.parent(first.conf)
        writer.finish()
        with self._open_parent() as store:
            store.install(first)
            store.set_hard_state(HardState(first.term, NO_NODE, first.index))
            store.sync()

    def _open_parent(self) -> SegmentedLogStore:
        birth = self._site.births.parent()
        return SegmentedLogStore.open(
            _LAYOUT.parent, _PARENT, birth=birth, fs=self._fs, clock=self._clock, background=False
        )

    def _make_site(self) -> NodeSite:
        return NodeSite(
            _LAYOUT,
            self._fs,
            self._clock,
            self._make_machine,
            Births("simulated", self._node),
            _PARENT,
            _PARTITION,
            recent_bytes_max=_RECENT_BYTES_MAX,
        )

    def _make_machine(self, partition: int) -> PartitionStateMachine:
        return RememberingMachine(self._world) if partition % 2 == 0 else LogMachine(partition)

    def _pull(self, partition: PartitionState, low: int) -> list[PartitionEntry]:
        return self._world.pull(self._node, partition, low)

    def _path(self, snapshot: Snapshot) -> Path:
        return _LAYOUT.snapshots / snapshot.data.decode()

    def _tell_time(self) -> None:
        self._clock.set(START_NS + self._world.now_ms * 1_000_000)
