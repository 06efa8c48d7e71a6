"""The parent log of a simulated node on the real store: `SegmentedLogStore`, on a disk that can lose power.

Slower than the model by far.  What it adds: cuts in the middle of a batch, a roll, a compaction, as sectors.
"""

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Final

from latewood.limits import KiB
from latewood.log import LogOptions
from latewood.replica.engine import NO_NODE, ConfState, Entry, HardState, Recovered, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.testing.crash_fs import CrashFS
from latewood.testing.fake_clock import FakeClock

_PATH: Final = "/parent"
_OPTIONS: Final = LogOptions(segment_bytes_max=8 * KiB)
_SURVIVORS_MAX: Final = 8
"""Disks that a cut may leave, out of which one is drawn."""

_RECENT_BYTES_MAX: Final = 1 * KiB
"""Little, so that old entries are read from the disk."""


class DiskStore:
    """A `LogStore` on a `CrashFS`, with a sync that takes time.  A `SimulatedStore`."""

    def __init__(self, first: Snapshot | None) -> None:
        self._fs, self._clock = CrashFS(), FakeClock()
        self._open()
        self._is_syncing = False
        if first:
            self.install(first)
            self.set_hard_state(HardState(first.term, NO_NODE, first.index))
        self.sync()
        self.settle()

    def _open(self) -> None:
        self._store = SegmentedLogStore.open(
            _PATH, _OPTIONS, fs=self._fs, clock=self._clock, background=False, recent_bytes_max=_RECENT_BYTES_MAX
        )

    @property
    def base_index(self) -> int:
        """The compacted index."""
        return self._store.first_index - 1

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self._store.last_index

    def term(self, index: int) -> int:
        """Return an entry's term."""
        return self._store.term(index)

    def recover(self) -> Recovered:
        """Return what is there."""
        return self._store.recover()

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries."""
        self._store.append(entries)

    def set_hard_state(self, state: HardState) -> None:
        """Write the hard state."""
        self._store.set_hard_state(state)

    def set_conf(self, index: int, conf: ConfState) -> None:
        """Write who is a member."""
        self._store.set_conf(index, conf)

    def install(self, snapshot: Snapshot) -> None:
        """Begin anew behind a snapshot."""
        self._store.install(snapshot)

    def compact(self, snapshot: Snapshot) -> None:
        """Let go of entries up to the snapshot's index."""
        self._store.compact(snapshot)

    def sync(self) -> None:
        """Begin to make all durable; `settle` ends it."""
        self._is_syncing = True

    def settle(self) -> None:
        """End the sync."""
        if self._is_syncing:
            self._is_syncing = False
            self._store.sync()

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Return entries."""
        return self._store.read(low, high, bytes_max)

    def lose_power(self, random: Random) -> None:
        """Come up with one of the disks that a cut may leave."""
        survivors = self._fs.survivors(limit=_SURVIVORS_MAX, seed=random.getrandbits(32))
        place = random.randrange(_SURVIVORS_MAX)
        self._fs = list(islice(survivors, place + 1))[-1]
        self._is_syncing = False
        self._open()

    def cut(self, index: int) -> None:
        """Refuse: only the model can be made to roll back."""
        raise NotImplementedError(f"the store never drops entries from {index} on")
