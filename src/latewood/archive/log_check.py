"""Looks whether the log of a shard goes as far as its chunks; `coverage` decides.  Never writes."""

from pathlib import Path

from latewood.archive.coverage import shortfall
from latewood.errors import LogBehind
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.reach import reach_of


def log_behind(fs: FileSystem, path: Path, covered: int, wanted: bytes | None) -> LogBehind | None:
    """Return what is wrong with the log of a shard whose chunks go up to `covered`; None: nothing.

    `wanted` is the identity that the catalog notes of it; None: nobody has noted one.

    What chunks cover must have been looked up before, because a writer may go on meanwhile: both only grow, and the log
    is never behind.

    Raises:
        CorruptError, UnsupportedVersion: the log cannot be read.
    """
    reason = shortfall(reach_of(fs, Layout(path), covered), covered, wanted)
    return None if reason is None else LogBehind(path, reason)
