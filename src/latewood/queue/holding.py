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

_TRIES_MAX: Final = 4000
_PAUSE_S: Final = 0.005
"""Together they bound the wait to 20 s.  A holder needs a few syncs, but many readers may begin at once."""


@contextmanager
def retention_held(fs: FileSystem, root: Path) -> Iterator[Lock]:
    """Keep retention, and readers that move back, out while the block runs.

    The caller checks the lock before it stores or deletes: if the file was removed, another program may hold it too.

    Raises:
        Locked: others have held it for twenty seconds.
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
