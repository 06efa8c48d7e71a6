"""The one state machine that Raft knows: takes committed entries of the parent log to their partitions.

In this order: 1. the records are written to the partitions' logs, as far as they are not there; 2. watermarks, backlogs
and acknowledgements learn of them; 3. they are queued for their machines.  If a step fails, the same entries again do
no harm.  Entries come here at *commit*, never at a sync.

Threads: one owns it, and everything that it holds but the workers of the `Applier`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from latewood.clock import Clock
from latewood.format.entry import Action, Command, decode_command
from latewood.replica.acks import AckTracker
from latewood.replica.answers import AnswerBook
from latewood.replica.apply import Alert, Applier, Progress
from latewood.replica.dispatch import Dispatcher, Load
from latewood.replica.engine import Entry, EntryKind
from latewood.replica.machine import MachineFactory, PartitionEntry
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


def command_of(entry: Entry) -> Command | None:
    """Return the command in an entry; None if it is Raft's own.

    Raises:
        CorruptError: it is neither.
        UnsupportedVersion: a later program made it.
    """
    return decode_command(entry.data, offset=entry.index) if entry.kind == EntryKind.NORMAL and entry.data else None


class SegmentedStateMachine:
    """The partitions of one node, behind one parent log.  Owned by one thread."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.answers = AnswerBook()
        self._passed: list[Progress | Alert] = []
        """Progress of partitions whose log is their state, which no worker has told."""

    def commit(self, entries: Sequence[Entry], parent_durable: int) -> None:
        """Take committed entries on, in order; those that were taken on before are verified and left alone.

        `parent_durable` is how far the parent log is durable here: at least to the last of them.

        Raises:
            Diverged: a partition holds something else; the node must stop.
            DiskFull: there is no room now; the same call again goes on.
            Poisoned: a sync failed; the node must be opened again.
        """
        self.parts.watermarks.record_parent_durable(max(parent_durable, self.parts.watermarks.parent_durable))
        run: list[tuple[Entry, Command | None]] = []
        for entry in entries:
            if entry.index <= self.parts.watermarks.routed:
                continue
            command = command_of(entry)
            if command and command.action == Action.TEAR_DOWN:
                self._take_on(run)
                run = []
                self._tear_down(command.partition_id, entry.index)
            else:
                run.append((entry, command))
        self._take_on(run)

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
        """Learn what the machines have done, and return it: for barriers, acknowledgements and operators.

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
        events, self._passed = [*self._passed, *events], []
        return events

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

    def _take_on(self, run: Sequence[tuple[Entry, Command | None]]) -> None:
        if not run:
            return
        placed, requests = self._sorted(run)
        for partition_id, entries in placed.items():
            self._existing(partition_id).place(entries)
        now_ns = self.parts.clock.now_ns()
        for partition_id, entries in placed.items():
            self._note(partition_id, entries, now_ns)
        self.parts.watermarks.record_passed(run[-1][0].index)
        self.answers.note(requests)  # Not before all is placed: what is tried again is noted once.
        for partition_id, entries in placed.items():
            self._offer(partition_id, entries)

    def _sorted(
        self, run: Sequence[tuple[Entry, Command | None]]
    ) -> tuple[dict[int, list[PartitionEntry]], list[tuple[Command, int]]]:
        """Return the entries of each partition, which is made if need be, and those that were somebody's request."""
        placed: dict[int, list[PartitionEntry]] = {}
        requests: list[tuple[Command, int]] = []
        born: dict[int, int] = {}
        for entry, command in run:
            if command is None:
                continue
            partition_id, index = command.partition_id, entry.index
            if partition_id not in born:
                born[partition_id] = self._partition(partition_id, index).born
            if index >= born[partition_id]:  # Else it was for one that was torn down.
                placed.setdefault(partition_id, []).append(
                    PartitionEntry(
                        partition_id, command.partition_log_index, index, command.timestamp_ns, command.payload
                    )
                )
                if command.request:
                    requests.append((command, index))
        return placed, requests

    def _existing(self, partition_id: int) -> PartitionLogStore:
        found = self.parts.roster.get(partition_id)
        assert found is not None, partition_id
        return found

    def _partition(self, partition_id: int, global_index: int) -> PartitionLogStore:
        """Return the partition that a write is for, making it if this is its first."""
        known = self.parts.roster.get(partition_id)
        if known:
            return known
        made = self.parts.roster.make(partition_id, global_index)
        self.parts.applier.open(made, self.parts.factory(partition_id), 0)
        return made

    def _note(self, partition_id: int, entries: Sequence[PartitionEntry], now_ns: int) -> None:
        parts = self.parts
        places = [(entry.index, entry.global_index) for entry in entries]
        parts.watermarks.record_routed(partition_id, places)
        parts.acks.landed(partition_id, places)
        if not parts.applier.machine(
            partition_id
        ).log_is_state:  # Else they are applied at once, and that says as much.
            sizes = [(entry.index, len(entry.payload)) for entry in entries]
            parts.dispatcher.record_committed(partition_id, sizes, now_ns)

    def _offer(self, partition_id: int, entries: Sequence[PartitionEntry]) -> None:
        if self.parts.applier.machine(partition_id).log_is_state:  # It has them: that is all there is to apply.
            self._applied(partition_id, entries[-1].index)
            self._passed.append(Progress(partition_id, entries[-1].index))
            return
        adds = Load(len(entries), sum(len(entry.payload) for entry in entries))
        queued = self.parts.applier.queued(partition_id)
        keep = self.parts.dispatcher.may_queue(queued, adds)
        self.parts.applier.offer(partition_id, entries, keep=keep)

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


def forget_everywhere(parts: Parts, partition_ids: Iterable[int]) -> None:
    """Have watermarks, backlogs and acknowledgements forget partitions that are gone."""
    for partition_id in partition_ids:
        parts.watermarks.forget(partition_id)
        parts.dispatcher.forget(partition_id)
        parts.acks.forget(partition_id)
