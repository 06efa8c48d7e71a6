"""The lock between retention and readers that claim old records.

A reader that begins, or moves back, stores its position and then relies on the records from there on.  Retention
looks at all positions and then deletes.  One lock keeps the two apart; committing forward needs none.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from latewood.errors import Locked
from latewood.fs import FileSystem, Lock

_TRIES_MAX: Final = 1000
_PAUSE_S: Final = 0.005
"""Both sides hold the lock for milliseconds; five seconds mean that something is stuck."""


@contextmanager
def retention_held(fs: FileSystem, root: Path) -> Iterator[Lock]:
    """Keep retention, and readers that move back, out while the block runs.

    Whoever is about to act checks the lock: its file may have been removed, and then somebody else may be at it too.

    Raises:
        Locked: somebody has held it for five seconds.
    """
    lock = _locked(fs, root / "retention.lock")
    try:
        yield lock
    finally:
        lock.close()


def _locked(fs: FileSystem, path: Path) -> Lock:
    for _ in range(_TRIES_MAX):
        try:
            return fs.lock(path)
        except Locked as error:
            holder = error
            time.sleep(_PAUSE_S)
    raise holder
