"""A node without consensus: whatever is written is committed when the test says so."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from latewood.format.entry import Action, Command, encode_command
from latewood.fs import FileSystem
from latewood.log import LogOptions
from latewood.replica.apply import Alert, Applier
from latewood.replica.births import Births
from latewood.replica.engine import ConfState, Entry, EntryKind, HardState, Snapshot
from latewood.replica.machine import LogMachine, MachineFactory, PartitionEntry
from latewood.replica.recovery import NodeLayout, NodeSite, Pull, RecoveredNode, recover_node
from latewood.replica.retention import compact_partition
from latewood.replica.schedule import RetryPolicy
from latewood.replica.snapshot import SnapshotReader, take_snapshot
from latewood.testing import FakeClock

ROOT: Final = Path("node")
SMALL: Final = LogOptions(segment_bytes_max=512, index_interval=4)
CONF: Final = ConfState(voters=(1,))
BIRTHS: Final = Births("trial", 1)


class Tally:
    """A user's machine: a running hash of all it was given, and how many that were."""

    log_is_state = False

    def __init__(self, partition_id: int) -> None:
        self.partition_id, self.count, self.digest = partition_id, 0, b""

    def apply(self, entry: PartitionEntry) -> None:
        assert entry.index == self.count + 1, "in order, and each once"
        self.count += 1
        self.digest = hashlib.blake2b(self.digest + entry.payload, digest_size=8).digest()

    def snapshot(self) -> Iterable[bytes]:
        yield self.count.to_bytes(8, "little")
        yield self.digest

    def restore(self, pieces: Iterable[bytes]) -> None:
        state = b"".join(pieces)
        self.count, self.digest = int.from_bytes(state[:8], "little"), state[8:]


def tally_or_log(partition_id: int) -> Tally | LogMachine:
    """Even partitions are the user's, odd ones are logs."""
    return Tally(partition_id) if partition_id % 2 == 0 else LogMachine(partition_id)


class Node:
    """A node's storage, driven by hand."""

    def __init__(
        self, fs: FileSystem, factory: MachineFactory = tally_or_log, pull: Pull | None = None, root: Path = ROOT
    ) -> None:
        self.fs, self.clock = fs, FakeClock()
        self.site = NodeSite(NodeLayout(root), fs, self.clock, factory, BIRTHS, SMALL, SMALL)
        self.applier = Applier(self.clock, RetryPolicy(attempts_max=3))
        self.node: RecoveredNode = recover_node(self.site, applier=self.applier, pull=pull)
        self.store, self.machine = self.node.store, self.node.machine
        self.marks = self.machine.parts.watermarks
        self.roster = self.machine.parts.roster
        self.next: dict[int, int] = {one.partition_id: one.next_index for one in self.roster}
        self.alerts: list[Alert] = []

    def entry(self, partition_id: int, *payloads: bytes, index: int | None = None) -> Entry:
        data = self.command(partition_id, *payloads)
        return Entry(index or self.store.last_index + 1, 1, EntryKind.NORMAL, data)

    def command(self, partition_id: int, *payloads: bytes, request: bytes = b"") -> bytes:
        at = self.next.get(partition_id, 1)
        self.next[partition_id] = at + len(payloads)
        return encode_command(Command(partition_id, at, payloads, self.clock.now_ns(), request))

    def write_together(self, *requests: tuple[int, Sequence[bytes]], request: bytes = b"") -> None:
        """As `write`, with one entry for all of it."""
        data = b"".join(self.command(partition_id, *payloads, request=request) for partition_id, payloads in requests)
        self.append([Entry(self.store.last_index + 1, 1, EntryKind.NORMAL, data)])
        self.commit()

    def write(self, partition_id: int, *payloads: bytes) -> None:
        """Append, sync, commit and apply."""
        for payload in payloads:
            self.append([self.entry(partition_id, payload)])
        self.commit()

    def tear_down(self, partition_id: int) -> None:
        self.next.pop(partition_id, None)
        data = encode_command(Command(partition_id, 0, (), action=Action.TEAR_DOWN))
        self.append([Entry(self.store.last_index + 1, 1, EntryKind.NORMAL, data)])
        self.commit()

    def append(self, entries: Sequence[Entry]) -> None:
        self.store.append(entries)

    def commit(self) -> None:
        self.store.set_hard_state(HardState(1, 1, self.store.last_index))
        self.store.sync()
        low = self.marks.routed + 1
        entries = self.store.read_all(low, self.store.last_index + 1)
        self.machine.commit(entries, self.store.durable_index)
        self.work()

    def work(self) -> None:
        self.applier.run_ready()
        self.alerts += [event for event in self.machine.collect() if isinstance(event, Alert)]

    def snapshot(self, *, compact: bool = True) -> Snapshot:
        taken = take_snapshot(self.machine, self.fs, self.site.layout.snapshots, 1, CONF)
        if compact:
            self.store.compact(taken)
        return taken

    def compact_partitions(self) -> None:
        """Drop of the partitions what the snapshot holds that the parent log begins behind."""
        assert self.store.snapshot is not None
        with SnapshotReader.open(self.fs, self.site.layout.snapshots / self.store.snapshot.data.decode()) as reader:
            for state in reader.partitions:
                compact_partition(self.machine, state, self.fs)

    def contents(self) -> dict[int, list[PartitionEntry]]:
        return {one.partition_id: list(one.read(one.first_index, one.next_index)) for one in self.roster}

    def tallies(self) -> dict[int, tuple[int, bytes]]:
        machines = {one.partition_id: self.applier.machine(one.partition_id) for one in self.roster}
        return {key: (user.count, user.digest) for key, user in machines.items() if isinstance(user, Tally)}

    def close(self) -> None:
        self.roster.close()
        self.store.close()
