"""What a simulated node asks of its storage, and what both see of the world.

Two storages answer: `simulate_model`, a model of a disk, which is fast; and `simulate_log`, which is the real thing on
a disk that tears.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol, TypeVar

from latewood.replica.engine import ConfState, Entry, LogStore, Recovered, Snapshot
from latewood.replica.machine import PartitionEntry
from latewood.replica.snapshot import PartitionState
from latewood.testing.simulate_climate import Climate
from latewood.testing.simulate_planted import Bug
from latewood.testing.simulate_truth import Truth

Item = TypeVar("Item")


class Surroundings(Protocol):
    """What storage sees of the world."""

    random: Random
    truth: Truth
    bug: Bug | None
    now_ms: int
    is_peace: bool

    @property
    def climate(self) -> Climate:
        """How bad it is."""
        ...

    def chance(self, share: float) -> bool:
        """Say yes in this share of the cases."""
        ...

    def housekeeps(self, share: float) -> bool:
        """Say yes in this share of the cases, where it is asked what is forgotten and when."""
        ...

    def choose(self, items: Sequence[Item]) -> Item:
        """Pick one, apart as `housekeeps`."""
        ...

    def note(self, *values: int) -> None:
        """Make values part of the trace that two runs of a seed must share."""
        ...

    def pull(self, node: int, partition: PartitionState, low: int) -> list[PartitionEntry]:
        """Return records of a partition from another node.

        Raises:
            UnavailableError: nobody who knows can be reached.
            NotFoundError: the partition was torn down since.
        """
        ...


class Storage(Protocol):
    """A parent log and its partitions.  What a crash leaves is here; `start` makes all else anew."""

    @property
    def store(self) -> LogStore:
        """The parent log, to be written to."""
        ...

    @property
    def base_index(self) -> int:
        """The parent log has forgotten everything up to here."""
        ...

    def start(self) -> Recovered:
        """Come up from what the disk holds.

        Raises:
            UnavailableError: it needs records of others, and cannot reach them.
        """
        ...

    def settle(self) -> None:
        """End the sync that the store was told to make."""
        ...

    def lose_power(self) -> None:
        """Keep what is durable, and some of the rest."""
        ...

    def hand_on(self, entries: Sequence[Entry]) -> None:
        """Take committed entries to their partitions."""
        ...

    def lead(self) -> None:
        """Begin to give out indices: behind all that is in the log, committed or not."""
        ...

    def admit(self, partition: int, count: int) -> int | None:
        """Return the first of so many new indices of a partition, if it may have them."""
        ...

    def withdraw(self, partition: int, index: int) -> None:
        """Give indices from this one on back."""
        ...

    def end(self, partition: int) -> bool:
        """Give out no index of a partition until its teardown is committed; say whether this can be done."""
        ...

    def set_members(self, conf: ConfState) -> None:
        """Know who is a member."""
        ...

    def progress(self) -> int:
        """Return the global index up to which all is applied here: for the acknowledgement that others get."""
        ...

    def acknowledge(self, node: int, global_index: int) -> None:
        """Take an acknowledgement."""
        ...

    def work(self) -> None:
        """Let the partitions do a little, or all that there is in times of peace; check them."""
        ...

    @property
    def has_waiting_snapshot(self) -> bool:
        """Whether a snapshot waits until the parent log may be cut there."""
        ...

    def compact(self, conf: ConfState, conf_index: int, *, wanted: int) -> Snapshot | None:
        """Take a snapshot where that can be done, and return it; forget the entries that it holds as soon as may be.

        `wanted` is an index that a node waits for, or 0.
        """
        ...

    def install(self, snapshot: Snapshot) -> bool:
        """Take a snapshot from another node in; say whether the node goes on, or must come up anew."""
        ...

    def offers(self, snapshot: Snapshot) -> list[bytes]:
        """Return what another node must have before it hears of a snapshot; nothing if it is gone."""
        ...

    def receive(self, snapshot: Snapshot, chunks: Sequence[bytes]) -> int:
        """Take in some of these chunks, and return how many are missing still."""
        ...

    def records(self, partition: PartitionState, low: int) -> list[PartitionEntry] | None:
        """Return some records for another node; None if it is not known here what became of them.

        Raises:
            NotFoundError: the partition was torn down since.
        """
        ...

    def check_whole(self, handed_on: int) -> None:
        """Check that the partitions are those of the agreed log."""
        ...
