"""The parent log as the engine's driver sees it, with one more rule: a snapshot is installed only if it is here whole.

Tells when one was: then the partitions are to be opened anew.  Owned as the store is.
"""

import time
from collections.abc import Callable, Sequence

from latewood.errors import UnavailableError
from latewood.replica.engine import ConfState, Entry, HardState, Recovered, Snapshot
from latewood.replica.entry_store import SegmentedLogStore


class GuardedStore:
    """A `LogStore`."""

    def __init__(self, store: SegmentedLogStore, on_installed: Callable[[], object]) -> None:
        """`on_installed` is called on the store's thread, once the installation is durable."""
        self._store, self._on_installed = store, on_installed
        self._fetched = b""
        self._has_installed = False
        self.sync_count, self.sync_s = 0, 0.0

    def allow(self, name: bytes) -> None:
        """Let a snapshot be installed: it is whole, and so are its partitions."""
        self._fetched = name

    def recover(self) -> Recovered:
        """Return what is durable."""
        return self._store.recover()

    def append(self, entries: Sequence[Entry], hard_state: HardState | None = None) -> None:
        """Write entries, and then the hard state."""
        self._store.append(entries, hard_state)

    def set_hard_state(self, state: HardState) -> None:
        """Write the hard state."""
        self._store.set_hard_state(state)

    def set_conf(self, index: int, conf: ConfState) -> None:
        """Write who is a member."""
        self._store.set_conf(index, conf)

    def install(self, snapshot: Snapshot) -> None:
        """Begin anew behind a snapshot.

        Raises:
            UnavailableError: it is not the one that was fetched; nothing was written.
        """
        if snapshot.data != self._fetched:
            message = f"snapshot {snapshot.data.decode(errors='replace')} is to be installed, and was not fetched"
            raise UnavailableError(message)
        self._store.install(snapshot)
        self._has_installed = True

    def sync(self) -> None:
        """Make all that was written durable."""
        started_s = time.monotonic()
        self._store.sync()
        self.sync_count += 1
        self.sync_s += time.monotonic() - started_s
        if self._has_installed:
            self._has_installed = False
            self._on_installed()

    def read(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Return entries."""
        return self._store.read(low, high, bytes_max)

    def compact(self, snapshot: Snapshot) -> None:
        """Let go of entries."""
        self._store.compact(snapshot)
