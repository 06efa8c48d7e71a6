"""A parent log in memory, small segments, and the entries that go into it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from latewood.fs import FileSystem
from latewood.log import LogOptions
from latewood.replica.engine import ConfState, Entry, EntryKind, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.testing import FakeClock

ROOT: Final = Path("parent")
SMALL: Final = LogOptions(segment_bytes_max=512, index_interval=2)
CONF: Final = ConfState(voters=(1, 2, 3))


def open_store(fs: FileSystem, recent_bytes_max: int = 1 << 20, options: LogOptions = SMALL) -> SegmentedLogStore:
    return SegmentedLogStore.open(
        ROOT, options, fs=fs, clock=FakeClock(), background=False, recent_bytes_max=recent_bytes_max
    )


def entry(index: int, term: int = 1, data: bytes | None = None, kind: int = EntryKind.NORMAL) -> Entry:
    return Entry(index, term, kind, f"{term}/{index}".encode() if data is None else data)


def entries(low: int, high: int, term: int = 1) -> list[Entry]:
    """Entries from `low`, below `high`."""
    return [entry(index, term) for index in range(low, high)]


def snapshot_at(index: int, term: int = 1, conf: ConfState = CONF, data: bytes = b"") -> Snapshot:
    return Snapshot(index, term, conf, data)


def everything(store: SegmentedLogStore) -> list[Entry]:
    return store.read_all(store.first_index, store.last_index + 1)


def indices(found: Sequence[Entry]) -> list[int]:
    return [one.index for one in found]
