"""Bugs to plant, so that we know that the simulation would find them.

Each is a mistake that is easily made around an engine, and that loses, changes or repeats data.  Those that would be
made in the code of the replica itself are planted there, for the length of one run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final
from unittest.mock import patch

from latewood.replica import recovery
from latewood.replica.agreement import Agreement
from latewood.replica.driver import Driver, Write
from latewood.replica.engine import HardState
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.markers import cut_record, hard_state_record
from latewood.replica.partition import PartitionLogStore
from latewood.replica.recovery import NodeSite
from latewood.replica.roster import Roster
from latewood.replica.routing import commands_of
from latewood.replica.snapshot import PartitionState, SnapshotReader
from latewood.replica.watermarks import Watermarks


class Bug(Enum):
    """What may be planted; the value says what goes wrong."""

    SEND_BEFORE_FSYNC = "answers leave before what they promise is durable"
    HELD_MESSAGE_OVERTAKES = "answers of a ready without writes overtake the writes before it"
    SYNC_DOES_NOTHING = "a sync returns before anything is on disk"
    FORGOTTEN_VOTE = "a restarted node does not know that it has voted"
    ROLL_BACK_RECOVERY = "recovery drops parent entries that a partition has not got yet"
    FORWARD_AT_FSYNC = "entries reach partitions when they are durable, not when they are committed"
    DOUBLE_APPLY = "a state comes back without how far it got, so records are applied again"
    TRUNCATE_PENDING = "the parent log is compacted past entries that a partition has not applied"
    TRUNCATE_UNFLUSHED = "the parent log is compacted past entries that a partition's log may still lose"
    ACK_AT_APPEND = "a client is told of its success when the leader alone has the entry"
    ACK_WITHOUT_TERM = "a client is told of its success when any entry is committed at its index"
    INDEX_FROM_COMMIT = "a new leader numbers records without looking at its uncommitted entries"
    SNAPSHOT_BEHIND = "a snapshot says that it stands at an index that its partitions have not reached"
    COMPACT_PAST_SNAPSHOT = "a partition's log forgets what is applied, and in no snapshot"
    DROP_UNDECIDED = "a partition whose log is its state forgets records that nobody let go"
    TRUST_PARTITIONS = "recovery takes what stands in a partition for what the node wrote there"


LOG_ONLY: Final = frozenset(
    {Bug.TRUNCATE_UNFLUSHED, Bug.COMPACT_PAST_SNAPSHOT, Bug.DROP_UNDECIDED, Bug.TRUST_PARTITIONS}
)
"""The model of a disk has no place for these."""


class PlantedDriver(Driver):
    """A driver with a mistake."""

    bug: Bug | None = None

    def _take(self) -> Write:
        write = super()._take()
        early = self.bug is Bug.SEND_BEFORE_FSYNC or (self.bug is Bug.HELD_MESSAGE_OVERTAKES and write.is_empty)
        if not early:
            return write
        self._send(write.messages)
        return write._replace(messages=[])


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Have a mistake in the code of the replica, if it is one of those."""
    if bug is Bug.DOUBLE_APPLY:
        with patch.object(recovery, "_usable", _usable_without_its_index):
            yield
    elif bug is Bug.TRUNCATE_PENDING:
        with patch.object(Watermarks, "applied_floor", lambda marks: marks.routed):
            yield
    elif bug is Bug.TRUNCATE_UNFLUSHED:
        with patch.object(PartitionLogStore, "flush", lambda partition: partition.next_index - 1):
            yield
    elif bug is Bug.TRUST_PARTITIONS:
        with patch.object(Agreement, "check", lambda *_: None):
            yield
    else:
        yield


def roll_back(site: NodeSite) -> None:
    """Drop parent entries from the first on that a partition has not got: the plan that we were given."""
    options = site.partition_options
    roster = Roster(site.layout.partitions, site.births, fs=site.fs, clock=site.clock, options=options)
    birth = site.births.parent()
    store = SegmentedLogStore.open(
        site.layout.parent, site.parent_options, birth=birth, fs=site.fs, clock=site.clock, background=False
    )
    roster.open()
    for entry in store.read_all(store.first_index, store.last_index + 1):
        held = {one.partition_id: one.next_index for one in roster}
        if any(command.last_index >= held.get(command.partition_id, 1) for command in commands_of(entry)):
            term, vote, commit = store.hard_state
            state = HardState(term, vote, min(commit, entry.index - 1))
            store._write([cut_record(entry.index, entry.term), hard_state_record(state)])  # noqa: SLF001 - no store would
            break
    roster.close()
    store.close()


def _usable_without_its_index(
    readers: list[SnapshotReader], partition: PartitionLogStore
) -> tuple[SnapshotReader, PartitionState] | None:
    found = _usable(readers, partition)
    if found and partition.first_index <= found[1].partition_log_index:
        return found[0], found[1]._replace(partition_log_index=found[1].partition_log_index - 1)
    return found


_usable: Final = recovery._usable  # noqa: SLF001 - this is the place to plant it
