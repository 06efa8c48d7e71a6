"""Repair of a node whose files are damaged, while it is stopped: what other nodes have too is set aside.

A partition's log follows from the parent log and from what other nodes hold, so a damaged one is moved out of the way,
and the next start makes it anew: its records come from the parent log and, before that begins, from the other nodes.
A snapshot can be done without, unless the parent log begins behind it.

The parent log is never touched.  It holds what this node has promised to others, votes and acknowledgements, and they
count on that: a node that has lost it must not come back under its id.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from latewood.clock import Clock
from latewood.errors import CorruptError, Diverged
from latewood.fs import FileSystem
from latewood.log import LogOptions
from latewood.replica.config import NodeConfig
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.founding import check_owner, parent_options, replacement
from latewood.replica.partition import PartitionLogStore
from latewood.replica.recovery import NodeLayout
from latewood.replica.roster import partition_names
from latewood.replica.snapshot import SnapshotReader, snapshots

DAMAGED: Final = "damaged"
"""The directory, beside a node's own, that damaged ones are moved to."""


class SetAside(NamedTuple):
    """What was damaged, and is made anew at the next start."""

    what: Literal["partition", "snapshot"]
    problem: str
    path: Path
    """Where it is now."""


class Repair(NamedTuple):
    """What a repair has looked at and done."""

    partitions: int
    snapshots: int
    set_aside: list[SetAside]


def repair_node(config: NodeConfig, fs: FileSystem, clock: Clock) -> Repair:
    """Read all of a stopped node's files, and set aside what is damaged and can be made anew.

    Raises:
        CorruptError: the parent log is damaged, or the snapshot that it begins behind is, or is gone; nothing was
            changed then.  It says how the node is replaced.
        Locked: the node runs.
        NotFoundError, UsageError: the directory is not this node's.
    """
    check_owner(config, fs)
    layout = NodeLayout(config.data)
    try:
        store = SegmentedLogStore.open(layout.parent, parent_options(config), fs=fs, clock=clock, background=False)
    except CorruptError as error:
        error.add_note(replacement(config))
        raise
    with store:  # Its lock keeps the node from starting meanwhile.
        base = store.snapshot.data.decode() if store.snapshot else ""
        _check_base(fs, layout, base, config)
        found = list(_damaged_snapshots(fs, layout, base, config))
        found += _damaged_partitions(fs, clock, layout, config)
        done = [SetAside(what, problem, _set_aside(fs, layout, path)) for what, problem, path in found]
        counted = (len(list(partition_names(fs, layout.partitions))), len(snapshots(fs, layout.snapshots)))
    return Repair(*counted, done)


def _check_base(fs: FileSystem, layout: NodeLayout, base: str, config: NodeConfig) -> None:
    if base and not fs.exists(layout.snapshots / base):
        error = Diverged("the parent log begins behind this snapshot, and it is gone", layout.snapshots / base, 0)
        error.mend = replacement(config)
        raise error


def _damaged_snapshots(fs: FileSystem, layout: NodeLayout, base: str, config: NodeConfig) -> Iterator[SetAside]:
    for index, term in snapshots(fs, layout.snapshots):
        path = layout.snapshots / f"{index}-{term}"
        try:
            SnapshotReader.open(fs, path).close()
        except CorruptError as error:
            if path.name == base:
                error.add_note(replacement(config))
                raise
            yield SetAside("snapshot", _problem(error), path)


def _damaged_partitions(fs: FileSystem, clock: Clock, layout: NodeLayout, config: NodeConfig) -> Iterator[SetAside]:
    options = LogOptions(segment_bytes_max=config.storage.partition_segment_bytes)
    for partition_id, born in partition_names(fs, layout.partitions):
        path = layout.partitions / f"{partition_id}-{born}"
        try:
            partition = PartitionLogStore.open(path, partition_id, born, fs=fs, clock=clock, options=options)
            try:
                for _ in partition.read(partition.first_index, partition.next_index):
                    pass  # Reading checks.
            finally:
                partition.close()
        except CorruptError as error:
            yield SetAside("partition", _problem(error), path)


def _set_aside(fs: FileSystem, layout: NodeLayout, path: Path) -> Path:
    """Move a directory to where nobody takes it for a partition or a snapshot.  Durable on return."""
    directory = layout.root / DAMAGED
    fs.make_directory(directory)
    taken = set(fs.list(directory))
    target = next(name for count in range(len(taken) + 1) if (name := _name(path, count)) not in taken)
    fs.rename(path, directory / target)
    fs.sync_directory(directory)
    fs.sync_directory(path.parent)
    return directory / target


def _name(path: Path, count: int) -> str:
    name = f"{path.parent.name}-{path.name}"
    return f"{name}.{count}" if count else name


def _problem(error: CorruptError) -> str:
    return f"{error.path.name} at byte {error.offset}: {error.reason}"
