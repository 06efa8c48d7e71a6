"""State machines: what user code does with the entries of a partition.

The default one does nothing: the partition's log is its state, a Latewood log that anybody can read.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeAlias


class PartitionEntry(NamedTuple):
    """One entry of a partition, as its machine sees it: the same on every node."""

    partition_id: int
    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in an entry
    """Its number in the partition: 1, 2, 3 …"""
    global_index: int
    """The Raft index of the parent entry that it came with."""
    timestamp_ns: int
    """When its leader took it."""
    payload: bytes


class Run(NamedTuple):
    """Entries of a partition that are neighbours, and came with one parent entry."""

    first: int
    last: int
    global_index: int


Placed: TypeAlias = tuple[int, int, int, int]
"""A run with its partition in front, as plain numbers: of partitions whose log is their state there are many."""


def runs_of(entries: Iterable[PartitionEntry]) -> list[Run]:
    """Return the runs that entries, in order, make up."""
    runs: list[Run] = []
    for entry in entries:
        if runs and (runs[-1].last + 1, runs[-1].global_index) == (entry.index, entry.global_index):
            runs[-1] = runs[-1]._replace(last=entry.index)
        else:
            runs.append(Run(entry.index, entry.index, entry.global_index))
    return runs


class PartitionStateMachine(Protocol):
    """The state of one partition.  Its calls never overlap, but come from different threads."""

    @property
    def log_is_state(self) -> bool:
        """Whether the partition's log is all there is.

        Then what is in it counts as applied, without a call; there is nothing to snapshot, and nothing of the log is
        dropped for one.
        """
        ...

    def apply(self, entry: PartitionEntry) -> None:
        """Take in an entry.  Must be deterministic, and may be called again for an entry if it raised.

        After a restart it begins behind the last snapshot, so a machine that keeps something outside of its snapshots
        must recognize by `index` what it has seen.  An exception means: try again later.
        """
        ...

    def snapshot(self) -> Iterable[bytes]:
        """Yield the state after the last applied entry, in pieces."""
        ...

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Become the state that `snapshot` yielded, in pieces of the same or another cut; without any, the first."""
        ...


MachineFactory = Callable[[int], PartitionStateMachine]
"""Makes the machine of a partition, in its first state."""


class LogMachine:
    """The default: the partition is a log, to be read with named readers and with Spark."""

    log_is_state = True

    def __init__(self, partition_id: int = 0) -> None:
        self.partition_id = partition_id

    def apply(self, entry: PartitionEntry) -> None:
        """Do nothing: the entry is in the log already.  Nobody calls it."""

    def snapshot(self) -> Iterable[bytes]:
        """Yield nothing."""
        return ()

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Take nothing."""
        for _ in pieces:
            raise ValueError("a partition whose log is its state has no other state")
