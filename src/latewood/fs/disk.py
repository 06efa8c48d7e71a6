"""What a directory's disk is like: its kind, its room, and what a sync costs.

For those who look at a machine; a log itself never asks.
"""

import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import NotFoundError
from latewood.fs.base import File, FileSystem
from latewood.fs.posix import PosixFS

_MOUNTS: Final = Path("/proc/self/mountinfo")
_CPU: Final = Path("/proc/cpuinfo")
_SYNC_BYTES: Final = 4096


class Disk(NamedTuple):
    """The file system that a directory lies on."""

    kind: str | None
    """`ext4`, `tmpfs` …; None if the system does not say."""
    free_bytes: int
    """Room for this user."""
    total_bytes: int
    is_writable: bool


def describe_disk(directory: Path) -> Disk:
    """Return what the operating system knows of a directory's disk.

    Raises:
        NotFoundError: there is no such directory.
    """
    if not directory.is_dir():
        message = f"{directory}: there is no such directory"
        raise NotFoundError(message)
    room = os.statvfs(directory)
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    return Disk(_kind_of(directory), free, total, PosixFS().is_writable(directory))


def median_sync_ns(fs: FileSystem, directory: Path, rounds: int) -> int:
    """Return what writing 4 KiB in place and syncing it takes, in nanoseconds.  Leaves nothing behind.

    Raises:
        ReadOnlyError: the directory cannot be written.
    """
    path = directory / f".latewood-sync-{os.getpid()}"
    file = fs.open(path, create=True)
    try:
        file.allocate(_SYNC_BYTES)
        file.sync()
        return round(statistics.median([_sync_ns(file, number) for number in range(rounds)]))
    finally:
        file.close()
        fs.remove(path)


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory in `parent`, which is removed with all that is in it."""
    with tempfile.TemporaryDirectory(prefix=".latewood-", dir=parent) as name:
        yield Path(name)


def cpu_features() -> set[str]:
    """Return what the processor says that it can do, in Linux's words; nothing where it does not say."""
    try:
        text = _CPU.read_text()
    except OSError:
        return set()
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return set(match[1].split()) if match else set()


def _sync_ns(file: File, number: int) -> int:
    data = bytes([number % 256]) * _SYNC_BYTES
    begun_ns = time.perf_counter_ns()
    file.pwrite(data, 0)
    file.sync()
    return time.perf_counter_ns() - begun_ns


def _kind_of(directory: Path) -> str | None:
    """Find the mount that the directory's device belongs to: `… major:minor root where options … - kind source …`."""
    number = directory.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    try:
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return None
    kinds = [fields[fields.index("-") + 1] for fields in mounts if fields[2] == device]
    return kinds[-1] if kinds else None
