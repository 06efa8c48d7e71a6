"""The partitions of one node: made at their first write, torn down with their files.

`partitions/<partition_id>-<born>` is the log of a partition whose first write is the parent entry `born`.  A partition
that was torn down and written again is another one, with a later `born`: entries that are replayed from before that are
none of its own.  Which partitions there are follows from the parent log alone.

A repair leaves the sound records of a partition in `….kept` before it moves the partition away: `finish_repairs`.

Teardown: 1. the directory is renamed to `….dropped`, durably; 2. what is in it is removed.  A crash between leaves
files that the next opening collects.   Order of writes: docs/crash-safety.md, "replica".

Threads: one, but for reading a partition's log.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from latewood.clock import Clock, checked
from latewood.closing import Closing
from latewood.fs import FileSystem
from latewood.limits import MiB
from latewood.log import LogOptions
from latewood.replica.births import Births, check_birth
from latewood.replica.partition import PartitionLogStore, partition_text

_NAME: Final = re.compile(r"([0-9]+)-([0-9]+)")
_DROPPED: Final = ".dropped"
_KEPT: Final = ".kept"
"""The end of the name of a directory with what a repair keeps of a partition, until it takes the partition's place."""

PARTITION_SEGMENT_BYTES: Final = 4 * MiB
"""Room is promised by the disk a segment ahead: with a thousand partitions that is some GiB, not a hundred."""


class Roster:
    """Every partition that is open.  Owned by one thread."""

    def __init__(
        self,
        root: Path,
        births: Births,
        *,
        fs: FileSystem,
        clock: Clock | None = None,
        options: LogOptions | None = None,
        makers: int = 1,
    ) -> None:
        """With several `makers`, threads open logs side by side: each waits for the disk some times."""
        self._makers = makers
        self._root, self._births, self._fs, self._clock = root, births, fs, checked(clock)
        self._options = options or LogOptions(segment_bytes_max=PARTITION_SEGMENT_BYTES)
        self._partitions: dict[int, PartitionLogStore] = {}

    def open(self, is_known: Callable[[int, int], bool] = lambda *_: True) -> None:
        """Open all partitions that there are, and collect what teardowns left: those too that `is_known` denies.

        Raises:
            StrayLog: a directory of a partition has another log; nothing was removed.
            CorruptError: one of them is damaged.
        """
        self._fs.make_directory(self._root)
        finish_repairs(self._fs, self._root)
        names = self._fs.list(self._root)
        for partition_id, born in filter(None, map(_parsed, names)):
            birth = self._births.partition(partition_id, born)
            check_birth(self._fs, self._path(partition_id, born), birth, partition_text(partition_id, born))
        for name in names:
            if name.endswith(_DROPPED):
                self._fs.remove_tree(self._root / name)
        newest: dict[int, int] = {}
        for partition_id, born in filter(None, map(_parsed, names)):
            if is_known(partition_id, born):
                newest[partition_id] = max(born, newest.get(partition_id, 0))
        for partition_id, born in filter(None, map(_parsed, names)):
            if newest.get(partition_id) != born:
                self._discard(self._path(partition_id, born))
        try:
            self.make_many(newest)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[PartitionLogStore]:
        return iter([self._partitions[partition_id] for partition_id in sorted(self._partitions)])

    def __contains__(self, partition_id: object) -> bool:
        return partition_id in self._partitions

    def __getitem__(self, partition_id: int) -> PartitionLogStore:
        """Return a partition that is there."""
        return self._partitions[partition_id]

    def get(self, partition_id: int) -> PartitionLogStore | None:
        """Return a partition, if there is one."""
        return self._partitions.get(partition_id)

    def make(self, partition_id: int, born: int) -> PartitionLogStore:
        """Return a new partition, whose first write is the parent entry `born`."""
        assert partition_id not in self._partitions, partition_id
        partition = self._partitions[partition_id] = self._open_one(partition_id, born, 1)
        return partition

    def make_many(self, born: Mapping[int, int]) -> None:
        """Make partitions, given with the parent entry of their first write, or open them; side by side if we may.

        If some cannot be made, the others are there, and the same call again goes on.

        Raises:
            DiskFull: there is no room for all of them.
        """
        if self._makers == 1:
            for partition_id, at in sorted(born.items()):
                self._partitions[partition_id] = self._open_one(partition_id, at, 1)
            return
        with ThreadPoolExecutor(self._makers) as makers:
            made = [makers.submit(self._open_one, partition_id, at, 1) for partition_id, at in sorted(born.items())]
        found = [one.result() for one in made if one.exception() is None]
        self._partitions |= {one.partition_id: one for one in found}
        for one in made:
            one.result()

    def begin_at(self, partition_id: int, born: int, first_index: int) -> PartitionLogStore:
        """Return a partition that holds entries from `first_index` on, or has come further: for a snapshot.

        What is here of it stays if entries from there on can follow it; else it is replaced.
        """
        partition = self._partitions.get(partition_id)
        if partition and partition.born == born and partition.next_index >= first_index:
            return partition
        if partition:
            self._remove(partition)
        self._partitions[partition_id] = partition = self._open_one(partition_id, born, first_index)
        return partition

    def begin_anew(self, partition: PartitionLogStore) -> PartitionLogStore:
        """Return a partition in place of one whose records are not those of other nodes; it has none."""
        self._remove(partition)
        return self.begin_at(partition.partition_id, partition.born, 1)

    def tear_down(self, partition_id: int, global_index: int) -> bool:
        """Remove a partition with its files, if the teardown at `global_index` is of this one; say whether it was."""
        partition = self._partitions.get(partition_id)
        if partition is None or partition.born > global_index:
            return False
        self._remove(partition)
        return True

    def keep_only(self, born: dict[int, int]) -> list[int]:
        """Remove all partitions but these, given with their birth; return which were removed."""
        gone = [one.partition_id for one in self if born.get(one.partition_id) != one.born]
        for partition_id in gone:
            self._remove(self._partitions[partition_id])
        return gone

    def close(self) -> None:
        """Close all of them, whatever some of them raise."""
        with Closing() as closing:
            for partition in self:
                closing(partition.close)
            self._partitions.clear()

    def _open_one(self, partition_id: int, born: int, first_index: int) -> PartitionLogStore:
        path = self._path(partition_id, born)
        birth, options = self._births.partition(partition_id, born), beginning_at(self._options, first_index)
        return PartitionLogStore.open(
            path, partition_id, born, birth=birth, fs=self._fs, clock=self._clock, options=options
        )

    def _remove(self, partition: PartitionLogStore) -> None:
        self._partitions.pop(partition.partition_id)
        partition.close()
        self._discard(partition.path)

    def _discard(self, path: Path) -> None:
        dropped = path.with_name(path.name + _DROPPED)
        self._fs.remove_tree(dropped)
        self._fs.rename(path, dropped)  # 1. One name, and nobody takes it for a partition any more.
        self._fs.sync_directory(self._root)
        self._fs.remove_tree(dropped)  # 2. If this is cut short, the next opening goes on.

    def _path(self, partition_id: int, born: int) -> Path:
        return self._root / f"{partition_id}-{born}"


def kept_path(path: Path) -> Path:
    """Return where a repair leaves what it keeps of a partition."""
    return path.with_name(path.name + _KEPT)


def finish_repairs(fs: FileSystem, root: Path) -> None:
    """Give what repairs have kept of partitions the name of those, if that was cut short."""
    for name in fs.list(root) if fs.exists(root) else []:
        if name.endswith(_KEPT):
            place = root / name.removesuffix(_KEPT)
            if fs.exists(place):  # The partition was not moved away: not all may be in what is kept.
                fs.remove_tree(root / name)
            else:
                fs.rename(root / name, place)
                fs.sync_directory(root)


def partition_names(fs: FileSystem, root: Path) -> list[tuple[int, int]]:
    """Return number and birth of the partitions that have a directory; none of them is opened."""
    return sorted(filter(None, map(_parsed, fs.list(root)))) if fs.exists(root) else []


def _parsed(name: str) -> tuple[int, int] | None:
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def beginning_at(options: LogOptions, first_index: int) -> LogOptions:
    """Return the options of a partition's log that begins with an entry."""
    return options if first_index == 1 else replace(options, first_sequence=first_index - 1)
