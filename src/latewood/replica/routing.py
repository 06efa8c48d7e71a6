"""The one state machine that Raft knows: takes committed entries of the parent log to their partitions.

In this order: 1. the records are written to the partitions' logs, as far as they are not there; 2. watermarks, backlogs
and acknowledgements learn of them; 3. they are queued for their machines.  If a step fails, the same entries again do
no harm.  Entries come here at *commit*, never at a sync.

Threads: one owns it, and everything that it holds but the workers of the `Applier`.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from latewood.clock import Clock
from latewood.format.entry import VERSION, Action, Command, command_bytes, decode_commands, tears_down
from latewood.replica.acks import AckTracker
from latewood.replica.answers import AnswerBook
from latewood.replica.apply import Alert, Applier, Progress
from latewood.replica.dispatch import Dispatcher, Load
from latewood.replica.engine import Entry, EntryKind
from latewood.replica.machine import MachineFactory, PartitionEntry, Placed, Run
from latewood.replica.native import native
from latewood.replica.partition import PartitionLogStore
from latewood.replica.roster import Roster
from latewood.replica.watermarks import Watermarks


class Parts(NamedTuple):
    """What it works with."""

    roster: Roster
    applier: Applier
    watermarks: Watermarks
    dispatcher: Dispatcher
    acks: AckTracker
    factory: MachineFactory
    clock: Clock


_Write: TypeAlias = tuple[int, Command]
"""A command and the global index of its entry."""


class Committed:
    """A committed entry of the parent log; decoded when somebody looks, for mostly nobody does."""

    __slots__ = ("_commands", "data", "index")

    def __init__(self, entry: Entry) -> None:
        self.index = entry.index
        self.data = entry.data if entry.kind == EntryKind.NORMAL else b""
        """Its commands' bytes; none if it is Raft's own."""
        self._commands: list[Command] | None = None

    @property
    def commands(self) -> list[Command]:
        """What it asks for.

        Raises:
            CorruptError, UnsupportedVersion: as `commands_of`.
        """
        if self._commands is None:
            self._commands = decode_commands(self.data, offset=self.index)
        return self._commands

    @property
    def tears_down(self) -> bool:
        """Whether it removes a partition; then that is all it does."""
        return tears_down(self.data)


def commands_of(entry: Entry) -> list[Command]:
    """Return the commands in an entry; none if it is Raft's own.

    Raises:
        CorruptError: it is neither.
        UnsupportedVersion: a later program made it.
    """
    return Committed(entry).commands


class SegmentedStateMachine:
    """The partitions of one node, behind one parent log.  Owned by one thread."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.answers = AnswerBook()
        self._place_commands = native("_place_commands")
        self._moved: set[int] = set()
        """Partitions whose log is their state, and which have got something: no worker will tell."""

    def commit(self, entries: Iterable[Entry], parent_durable: int) -> None:
        """Take committed entries on: as `route`, which says what happens, and `route_quickly` as far as that goes."""
        routed = self.parts.watermarks.routed
        fresh = [Committed(entry) for entry in entries if entry.index > routed]
        self.route(fresh[self.route_quickly(fresh, parent_durable) :], parent_durable)

    def route(
        self, entries: Iterable[Committed], parent_durable: int, ended: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        """Take committed entries on, in order; those that were taken on before are verified and left alone.

        `parent_durable` is how far the parent log is durable here: at least to the last of them.  `ended` are
        partitions of which it is known that an entry to come tears them down, and which: what is for them until then
        is for nobody.

        Raises:
            Diverged: a partition holds something else; the node must stop.
            DiskFull: there is no room now; the same call again goes on.
            Poisoned: a sync failed; the node must be opened again.
        """
        watermarks = self.parts.watermarks
        watermarks.record_parent_durable(max(parent_durable, watermarks.parent_durable))
        writes: list[_Write] = []
        passed = watermarks.routed
        for entry in entries:
            if entry.index <= watermarks.routed:
                continue
            if entry.tears_down:
                self._take_on(writes, passed)
                writes = []
                self._tear_down(entry.commands[0].partition_id, entry.index)
            else:
                index = entry.index
                writes += [(index, command) for command in entry.commands if index > ended.get(command.partition_id, 0)]
            passed = entry.index
        self._take_on(writes, passed)

    def route_quickly(self, entries: Sequence[Committed], parent_durable: int) -> int:
        """Take on those in front that are new and only bring records to logs that have room; return how many they are.

        The others, and what is only partly there then, are for `route`.

        Raises:
            DiskFull, Poisoned: as `route`.
        """
        watermarks = self.parts.watermarks
        watermarks.record_parent_durable(max(parent_durable, watermarks.parent_durable))
        placed, count = list[Placed](), 0
        for entry in entries:
            before = len(placed)
            if entry.tears_down or not self._place_quickly(entry, placed):
                del placed[before:]
                break
            count += 1
        if placed:
            watermarks.record_logged(placed)
            self.parts.acks.landed_late(placed)
            self.parts.dispatcher.record_logged(placed)
            for entry in entries[:count]:
                self.answers.note_entry(entry.index, entry.data)
            self._moved.update([run[0] for run in placed])
        if count:
            watermarks.record_passed(entries[count - 1].index)
        return count

    def prepare(self, born: Mapping[int, int]) -> None:
        """Make partitions that committed entries are for, given with the first of those; `commit` them after this.

        Raises:
            DiskFull: there is no room now; the same call again goes on.
        """
        try:
            self.parts.roster.make_many({key: at for key, at in born.items() if self.parts.roster.get(key) is None})
        finally:
            for partition_id in born:
                made = self.parts.roster.get(partition_id)
                if made is not None and not self.parts.applier.has(partition_id):
                    self.parts.applier.open(made, self.parts.factory(partition_id), 0)

    def collect(self) -> list[Progress | Alert]:
        """Learn what machines have done, and return it: for barriers, acknowledgements and operators; see `moved`, too.

        A partition that is paused is frozen: it takes nothing new until it is resumed.
        """
        events = self.parts.applier.drain()
        for event in events:
            if event.partition_id not in self.parts.watermarks:
                continue  # It was torn down since.
            if isinstance(event, Alert):
                self.parts.dispatcher.freeze(event.partition_id, frozen=True)
            else:
                self._applied(event.partition_id, event.index)
        return events

    def moved(self) -> set[int]:
        """Return which partitions have got something since the last call whose log is their state."""
        moved, self._moved = self._moved, set()
        return moved

    def resume(self, partition_id: int) -> None:
        """Let a paused partition try again, and take new entries."""
        self.parts.applier.resume(partition_id)
        self.parts.dispatcher.freeze(partition_id, frozen=False)

    def flush(self) -> int:
        """Make all partitions' logs durable; return the global index up to which they are.

        Raises:
            Poisoned: a sync failed; the node must be opened again.
        """
        watermarks = self.parts.watermarks
        for partition in self.parts.roster:
            if partition.partition_id in watermarks:
                progress = watermarks[partition.partition_id]
                if progress.flushed_index < progress.highest_index:
                    watermarks.record_flushed(partition.partition_id, partition.flush())
        return watermarks.flushed_floor()

    def truncatable_to(self) -> int:
        """Return the last entry that the parent log may forget."""
        return self.parts.watermarks.truncatable_to(self.parts.acks.pending_global_min())

    # -- inside -------------------------------------------------------------------------------------------

    def _place_quickly(self, entry: Committed, placed: list[Placed]) -> bool:
        """Write an entry's records if that waits for nothing, and add what was written; say whether all of it was."""
        data, doors, before, at = entry.data, self.parts.applier.doors, len(placed), 0
        while (at := self._place_commands(data, at, VERSION, entry.index, doors, placed)) < len(data):
            command = entry.commands[len(placed) - before]
            if not self._place_with_room(entry.index, command, placed):
                return False
            at += command_bytes(data, at)
        return True

    def _place_with_room(self, index: int, command: Command, placed: list[Placed]) -> bool:
        """Write a command for which a log has to reach further into its segment; not if it has to roll."""
        partition_id, first, payloads, timestamp_ns, _, action = command
        log = self.parts.applier.logs.get(partition_id) if action == Action.WRITE and payloads else None
        if log is None or index < log.born or not log.place_quickly(first, index, timestamp_ns, payloads):
            return False
        placed.append((partition_id, first, command.last_index, index))
        return True

    def _take_on(self, writes: Sequence[_Write], passed: int) -> None:
        """Take on what is to be written up to the entry `passed`."""
        if passed <= self.parts.watermarks.routed:
            return
        sorted_writes = self._sorted(writes)
        partitions = self.parts.roster
        for partition_id, own in sorted_writes.items():
            _place(partitions[partition_id], own)
        now_ns = self.parts.clock.now_ns()
        for partition_id, own in sorted_writes.items():
            self._note(partition_id, own, now_ns)
        self.parts.watermarks.record_passed(passed)
        # Not before all is placed: what is tried again is noted once.
        self.answers.note(write for own in sorted_writes.values() for write in own)

    def _sorted(self, writes: Sequence[_Write]) -> dict[int, list[_Write]]:
        """Return the writes to each partition, which is made if need be."""
        found: dict[int, list[_Write]] = {}
        for write in writes:
            own = found.get(write[1].partition_id)
            if own is not None:
                own.append(write)
            elif write[0] >= self._partition(write[1].partition_id, write[0]).born:  # Else for one torn down.
                found[write[1].partition_id] = [write]
        return found

    def _partition(self, partition_id: int, global_index: int) -> PartitionLogStore:
        """Return the partition that a write is for, making it if this is its first."""
        known = self.parts.roster.get(partition_id)
        if known:
            return known
        made = self.parts.roster.make(partition_id, global_index)
        self.parts.applier.open(made, self.parts.factory(partition_id), 0)
        return made

    def _note(self, partition_id: int, writes: Sequence[_Write], now_ns: int) -> None:
        """Let watermarks, acknowledgements and backlogs know what was placed, then the machine."""
        parts = self.parts
        runs = [Run(command.partition_log_index, command.last_index, index) for index, command in writes]
        last = runs[-1].last
        log_is_state = parts.applier.machine(partition_id).log_is_state
        parts.watermarks.record_routed(partition_id, runs, applied=log_is_state)
        parts.acks.landed(partition_id, runs)
        if log_is_state:  # The log has them: that is all there is to apply.
            parts.dispatcher.record_applied(partition_id, last)
            self._moved.add(partition_id)
            return
        size = sum(len(payload) for _, command in writes for payload in command.payloads)
        parts.dispatcher.record_committed(partition_id, runs[0].first, last, size, now_ns)
        entries = entries_of(writes)
        keep = parts.dispatcher.may_queue(parts.applier.queued(partition_id), Load(len(entries), size))
        parts.applier.offer(partition_id, entries, keep=keep)

    def _applied(self, partition_id: int, index: int) -> None:
        self.parts.watermarks.record_applied(partition_id, index)
        self.parts.dispatcher.record_applied(partition_id, index)

    def _tear_down(self, partition_id: int, global_index: int) -> None:
        partition = self.parts.roster.get(partition_id)
        if partition and partition.born <= global_index:
            self.parts.applier.forget(partition_id)
            self.parts.roster.tear_down(partition_id, global_index)
            forget_everywhere(self.parts, [partition_id])
        self.answers.forget(partition_id, global_index)
        self.parts.watermarks.record_passed(global_index)


def _place(partition: PartitionLogStore, writes: Sequence[_Write]) -> None:
    """Write what is new of writes to one partition, in order."""
    for at, (index, command) in enumerate(writes):
        _, first, payloads, timestamp_ns, _, _ = command
        if not partition.place_run(first, index, timestamp_ns, payloads):
            partition.place(entries_of(writes[at:]))
            return


def entries_of(writes: Iterable[_Write]) -> list[PartitionEntry]:
    """Return the entries of partitions that commands make, each given with the number of its parent entry."""
    return [
        PartitionEntry(command.partition_id, at, index, command.timestamp_ns, payload)
        for index, command in writes
        for at, payload in enumerate(command.payloads, command.partition_log_index)
    ]


def forget_everywhere(parts: Parts, partition_ids: Iterable[int]) -> None:
    """Have watermarks, backlogs and acknowledgements forget partitions that are gone."""
    for partition_id in partition_ids:
        parts.watermarks.forget(partition_id)
        parts.dispatcher.forget(partition_id)
        parts.acks.forget(partition_id)
