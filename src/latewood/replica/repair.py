"""Repair of a node whose files are damaged, while it is stopped: what other nodes have too is set aside.

A partition's log follows from the parent log and from what other nodes hold, so a damaged one is moved out of the way,
and the next start makes it anew: its records come from the parent log and, before that begins, from the other nodes.
A snapshot can be done without, unless the parent log begins behind it.

Of a partition that another program has appended to, the records before that are kept: no other node may have them.

The parent log is never touched.  It holds what this node has promised to others, votes and acknowledgements, and they
count on that: a node that has lost it must not come back under its id.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple

from latewood.clock import Clock
from latewood.errors import CorruptError, Diverged, StrayLog, StrayRecord
from latewood.fs import FileSystem
from latewood.log import LogOptions
from latewood.replica.agreement import Agreement
from latewood.replica.births import Births, check_birth
from latewood.replica.config import NodeConfig
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.founding import births_of, check_owner, open_parent, replacement
from latewood.replica.partition import PartitionLogStore, partition_text
from latewood.replica.recovery import NodeLayout
from latewood.replica.roster import beginning_at, finish_repairs, kept_path, partition_names
from latewood.replica.snapshot import SnapshotReader, snapshots

DAMAGED: Final = "damaged"
"""The directory, beside a node's own, that damaged ones are moved to."""


_AT_ONCE: Final = 32
"""Partitions that are open side by side: each takes some descriptors."""
_KEEP_RECORDS: Final = 1_024
"""Records that are copied at a time."""


class SetAside(NamedTuple):
    """What was not as it should be, and is made anew at the next start."""

    what: Literal["partition", "snapshot"]
    problem: str
    path: Path
    """Where it is now."""
    kept: int = 0
    """Records in front of the problem that stay in the partition."""


class Repair(NamedTuple):
    """What a repair has looked at and done."""

    partitions: int
    snapshots: int
    set_aside: list[SetAside]


class _Fault(NamedTuple):
    what: Literal["partition", "snapshot"]
    problem: str
    path: Path
    sound_below: int = 0
    """A partition is sound up to this sequence."""


class Mender(NamedTuple):
    """What a repair works with."""

    layout: NodeLayout
    fs: FileSystem
    clock: Clock
    births: Births
    partition_options: LogOptions
    replacement: str
    """How the node is replaced."""


def repair_node(config: NodeConfig, fs: FileSystem, clock: Clock) -> Repair:
    """Read all of a stopped node's files, and set aside what is damaged, or not its own, and can be made anew.

    Raises:
        CorruptError: the parent log is damaged or lacks entries, or the snapshot that it begins behind is damaged or
            gone; nothing was changed then.  It says how the node is replaced.
        Locked: the node runs.
        NotFoundError, UsageError: the directory is not this node's.
    """
    check_owner(config, fs)
    layout = NodeLayout(config.data)
    try:
        store = open_parent(config, fs, clock)
    except CorruptError as error:
        error.add_note(replacement(config))
        raise
    options = LogOptions(segment_bytes_max=config.storage.partition_segment_bytes)
    with store:  # Its lock keeps the node from starting meanwhile.
        return repair_files(store, Mender(layout, fs, clock, births_of(config), options, replacement(config)))


def repair_files(store: SegmentedLogStore, mender: Mender) -> Repair:
    """Set aside what is not as it should be beside a parent log, as `repair_node`."""
    layout, fs = mender.layout, mender.fs
    base = store.snapshot.data.decode() if store.snapshot else ""
    _check_base(mender, base)
    finish_repairs(fs, layout.partitions)
    found = list(_snapshot_faults(mender, base))
    found += _partition_faults(store, mender, found)
    # Partitions first: a repair that is cut short and run again must still know that a snapshot was damaged.
    done = [_mended(mender, fault) for fault in reversed(found)]
    counted = (len(partition_names(fs, layout.partitions)), len(snapshots(fs, layout.snapshots)))
    return Repair(*counted, done[::-1])


# -- finding ----------------------------------------------------------------------------------------------


def _check_base(mender: Mender, base: str) -> None:
    path = mender.layout.snapshots / base
    if base and not mender.fs.exists(path):
        error = Diverged("the parent log begins behind this snapshot, and it is gone", path, 0)
        error.mend = mender.replacement
        raise error


def _snapshot_faults(mender: Mender, base: str) -> Iterator[_Fault]:
    directory = mender.layout.snapshots
    for index, term in snapshots(mender.fs, directory):
        path = directory / f"{index}-{term}"
        try:
            SnapshotReader.open(mender.fs, path).close()
        except CorruptError as error:
            if path.name == base:
                error.add_note(mender.replacement)
                raise
            yield _Fault("snapshot", _problem(error), path)


def _partition_faults(store: SegmentedLogStore, mender: Mender, bad_snapshots: Sequence[_Fault]) -> list[_Fault]:
    """Return what is wrong with partitions; some of them are looked at together.

    Raises:
        Diverged: one holds records of entries that the parent log has not come to, and no snapshot explains it.
    """
    layout, fs = mender.layout, mender.fs
    bad = {fault.path.name for fault in bad_snapshots}
    names, found = partition_names(fs, layout.partitions), list[_Fault]()
    with ExitStack() as opened:
        sound = [name for name in snapshots(fs, layout.snapshots) if _name_of(*name) not in bad]
        readers = [opened.enter_context(SnapshotReader.open(fs, layout.snapshots / _name_of(*name))) for name in sound]
        agreement = Agreement.of(store, readers)
    bad_ahead = any(int(name.partition("-")[0]) > agreement.agreed_index for name in bad)
    for at in range(0, len(names), _AT_ONCE):
        for path, error in _unsound(store, mender, agreement, names[at : at + _AT_ONCE]):
            if isinstance(error, StrayRecord):
                found.append(_Fault("partition", f"record {error.sequence} {error.reason}", path, error.sequence))
            elif isinstance(error, StrayLog):
                found.append(_Fault("partition", error.reason, path))
            elif not isinstance(error, Diverged):
                found.append(_Fault("partition", _problem(error), path))
            elif bad_ahead:  # What may have explained it is damaged: such records come again.
                found.append(_Fault("partition", error.reason, path, error.offset))
            else:
                error.mend = mender.replacement
                raise error
    return found


def _unsound(
    store: SegmentedLogStore, mender: Mender, agreement: Agreement, names: Sequence[tuple[int, int]]
) -> list[tuple[Path, CorruptError]]:
    """Return the directories of those of some partitions that are not sound, with the first thing that is wrong."""
    found, partitions = dict[Path, CorruptError](), list[PartitionLogStore]()
    with ExitStack() as opened:
        for partition_id, born in names:
            path = mender.layout.partitions / f"{partition_id}-{born}"
            try:
                birth = mender.births.partition(partition_id, born)
                check_birth(mender.fs, path, birth, partition_text(partition_id, born))
                agreement.check_born(mender.fs, path, partition_id, born)
                partition = _open(mender, path, partition_id, born)
                opened.callback(partition.close)
                for _ in partition.read(partition.first_index, partition.next_index):
                    pass  # Reading checks.
                if agreement.is_known(partition_id, born):
                    partitions.append(partition)
                    agreement.check(partition)
            except CorruptError as error:
                found[path] = error
        for stray in agreement.unequal(store, agreement.base_index + 1, partitions):
            known = found.get(stray.path)
            if known is None or (isinstance(known, StrayRecord) and known.sequence > stray.sequence):
                found[stray.path] = stray
    return list(found.items())


# -- mending ----------------------------------------------------------------------------------------------


def _mended(mender: Mender, fault: _Fault) -> SetAside:
    kept = _keep_sound(mender, fault) if fault.sound_below else 0  # 1. What is sound, durably, beside it.
    path = _set_aside(mender, fault.path)  # 2. The whole of it, away.
    if fault.what == "partition":
        finish_repairs(mender.fs, mender.layout.partitions)  # 3. What was kept, in its place.
    return SetAside(fault.what, fault.problem, path, kept)


def _keep_sound(mender: Mender, fault: _Fault) -> int:
    """Copy the records of a partition that are sound to where `finish_repairs` finds them; return how many they are."""
    partition_id, born = map(int, fault.path.name.split("-"))
    with ExitStack() as opened:
        source = _open(mender, fault.path, partition_id, born)
        opened.callback(source.close)
        first_index = source.first_index
        if first_index > fault.sound_below:
            return 0
        options = beginning_at(mender.partition_options, first_index)
        target = _open(mender._replace(partition_options=options), kept_path(fault.path), partition_id, born)
        opened.callback(target.close)
        entries = source.read(first_index, fault.sound_below + 1)
        while some := list(islice(entries, _KEEP_RECORDS)):
            target.place(some)
        return target.flush() - first_index + 1


def _open(mender: Mender, path: Path, partition_id: int, born: int) -> PartitionLogStore:
    fs, clock, options = mender.fs, mender.clock, mender.partition_options
    birth = mender.births.partition(partition_id, born)
    return PartitionLogStore.open(path, partition_id, born, birth=birth, fs=fs, clock=clock, options=options)


def _set_aside(mender: Mender, path: Path) -> Path:
    """Move a directory to where nobody takes it for a partition or a snapshot.  Durable on return."""
    fs, directory = mender.fs, mender.layout.root / DAMAGED
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


def _name_of(index: int, term: int) -> str:
    return f"{index}-{term}"


def _problem(error: CorruptError) -> str:
    return f"{error.path.name} at byte {error.offset}: {error.reason}"
