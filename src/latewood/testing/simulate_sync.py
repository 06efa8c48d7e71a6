"""A parent log whose sync takes time."""

from collections.abc import Sequence
from dataclasses import dataclass

from latewood.replica.engine import ConfState, Entry, HardState, Recovered, Snapshot
from latewood.replica.entry_store import SegmentedLogStore


@dataclass(slots=True)
class LateSync:
    """A `LogStore` whose sync is late: `settle` makes it."""

    real: SegmentedLogStore
    is_syncing: bool = False

    def recover(self) -> Recovered:
        """Return what is there."""
        return self.real.recover()

    def append(self, entries: Sequence[Entry], hard_state: HardState | None = None) -> None:
        """Write entries, and then the hard state."""
        self.real.append(entries, hard_state)

    def set_hard_state(self, state: HardState) -> None:
        """Write the hard state."""
        self.real.set_hard_state(state)

    def set_conf(self, index: int, conf: ConfState) -> None:
        """Write who is a member."""
        self.real.set_conf(index, conf)

    def install(self, snapshot: Snapshot) -> None:
        """Begin anew behind a snapshot."""
        self.real.install(snapshot)

    def compact(self, snapshot: Snapshot) -> None:
        """Let go of entries up to the snapshot's index."""
        self.real.compact(snapshot)

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Return entries."""
        return self.real.read(low, high, bytes_max)

    def sync(self) -> None:
        """Begin to make all durable."""
        self.is_syncing = True

    def settle(self) -> None:
        """End the sync."""
        if self.is_syncing:
            self.is_syncing = False
            self.real.sync()
