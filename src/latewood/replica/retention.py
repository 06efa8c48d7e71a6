"""What partitions' logs may forget: what is in a snapshot, or, where the log is the state, what nobody wants any more.

**A machine's partition** drops what is in the snapshot that the parent log begins behind: recovery begins with that, or
with a later one, whatever happens.  Named readers hold what they want there, too.

**A partition whose log is its state** has retention, by the rule of the embedded log (docs/adr/0011-retention.md): a
segment goes once every named reader has passed it; without readers by size and age.  Age counts from the newest record
of a segment, which all nodes have alike.  The newest record of a partition always stays: a node that comes later begins
with the first that others have, so there must be one.

A leader decides for all nodes and tells them by the cluster's own partition, where readers that came first are counted
once more.  Then each node drops whole segments below that.  A reader of a node's own files, beside the cluster, holds
what it needs on that node.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from latewood.fs import FileSystem
from latewood.queue.cursor import cursor_names, cursor_path, load_cursor, sync_cursors
from latewood.queue.holding import retention_held
from latewood.queue.retention import ReaderState, RetentionPolicy, SealedSegment, plan
from latewood.replica.directory import DirectoryMachine, LowMark, ReaderPosition, is_silent
from latewood.replica.partition import PartitionLogStore
from latewood.replica.routing import SegmentedStateMachine
from latewood.replica.snapshot import PartitionState

_MS: Final = 1_000_000
_READERS: Final = "readers"


def silent_before(policy: RetentionPolicy, now_ns: int) -> int:
    """Return since when a reader must have committed something to count; 0: whenever it was."""
    silent_ms = policy.ignore_readers_silent_ms
    return 0 if silent_ms is None else max(0, now_ns - silent_ms * _MS)


def log_partitions(machine: SegmentedStateMachine) -> list[PartitionLogStore]:
    """Return the partitions whose log is their state."""
    parts = machine.parts
    found = [one for one in parts.roster if one.partition_id in parts.watermarks]
    return [one for one in found if parts.applier.machine(one.partition_id).log_is_state]


def proposals(
    partitions: Iterable[PartitionLogStore], directory: DirectoryMachine, policy: RetentionPolicy, now_ns: int
) -> list[LowMark]:
    """Return the marks that a leader wants moved on."""
    silent_ns, found = silent_before(policy, now_ns), []
    positions: dict[int, list[ReaderPosition]] = {}
    for position in directory.readers.values():
        positions.setdefault(position.partition, []).append(position)
    for partition in partitions:
        first = _first_kept(partition, positions.get(partition.partition_id, []), policy, now_ns)
        if first > directory.first_sequence(partition.partition_id, partition.born):
            found.append(LowMark(partition.partition_id, partition.born, first, silent_ns))
    return found


def outdated(machine: SegmentedStateMachine, directory: DirectoryMachine) -> list[LowMark]:
    """Return what has the marks forgotten of partitions that were torn down."""
    roster = machine.parts.roster
    known = ((mark, roster.get(mark.partition)) for mark in directory.marks.values())
    return [
        LowMark(mark.partition, mark.born, -1)
        for mark, partition in known
        if partition is None or partition.born > mark.born
    ]


def compact_partition(
    machine: SegmentedStateMachine,
    state: PartitionState,
    fs: FileSystem,
    directory: DirectoryMachine | None = None,
    silent_before_ns: int = 0,
) -> None:
    """Drop what a snapshot holds of a machine's partition; the parent log must begin at or behind that snapshot.

    Raises:
        CorruptError, Locked, Poisoned: as `drop_below`.
    """
    parts = machine.parts
    partition = parts.roster.get(state.partition_id)
    if partition is None or partition.born != state.born or partition.partition_id not in parts.watermarks:
        return  # It was torn down since.
    if state.log_is_state or parts.applier.machine(state.partition_id).log_is_state:
        return
    wanted = directory.wanted(state.partition_id, state.born, silent_before_ns) if directory else None
    first = state.partition_log_index if wanted is None else min(wanted, state.partition_log_index)
    drop_below(partition, first, fs, silent_before_ns)


def drop_below(
    partition: PartitionLogStore, first_sequence: int, fs: FileSystem, silent_before_ns: int = 0
) -> int | None:
    """Drop whole segments of records below a sequence, but nothing that a reader of the files here wants.

    Return what such a reader wants, if that held something back.

    Raises:
        CorruptError: the file of such a reader is damaged; nothing was dropped.
        Locked: somebody has claimed old records for seconds; nothing was dropped.
        Poisoned: the log must be opened again.
    """
    with retention_held(fs, partition.path):
        wanted = _wanted_here(partition, fs, silent_before_ns)
        held = wanted is not None and wanted < first_sequence
        first = wanted if wanted is not None and held else first_sequence
        if first > partition.first_index - 1:
            sync_cursors(fs, partition.path / _READERS)
            partition.compact(first)
        return wanted if held else None


def _first_kept(
    partition: PartitionLogStore, positions: Iterable[ReaderPosition], policy: RetentionPolicy, now_ns: int
) -> int:
    """Return from which sequence on a partition has something that must stay."""
    readers = [
        ReaderState(one.name, one.sequence if one.born == partition.born else 0, one.committed_at_ns)
        for one in positions
    ]
    ends: dict[int, int] = {}

    def segments() -> Iterator[SealedSegment]:
        for part in partition.sealed(with_times=policy.max_age_ms is not None):
            ends[part.segment_id] = part.end_sequence
            yield SealedSegment(*part)

    sealed_bytes = 0
    if policy.max_bytes is not None:
        sealed_bytes = sum(part.size for part in partition.sealed(with_times=False))
    retired = plan(segments(), sealed_bytes, readers, policy, now_ns).retire
    newest = partition.next_index - 2
    return max(0, min(ends[retired[-1]] + 1, newest)) if retired else 0


def _wanted_here(partition: PartitionLogStore, fs: FileSystem, silent_before_ns: int) -> int | None:
    """Return the oldest sequence that a reader of the files of this node wants."""
    directory, found = partition.path / _READERS, []
    for name in cursor_names(fs, directory):
        cursor = load_cursor(fs, cursor_path(directory, name))
        if cursor is not None and not is_silent(name, cursor.committed_at, silent_before_ns):
            found.append(cursor.sequence or 0)  # An older program's has none: it may want anything.
    return min(found, default=None)
