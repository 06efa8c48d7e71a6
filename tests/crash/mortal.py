"""A disk on which programs die, and whose operations fail, at any operation that a test likes."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from latewood import LatewoodError
from latewood.testing import CrashFS
from latewood.testing.mem_fs import NameChange


class Killed(BaseException):
    """The program is dead: whatever it does from now on does not happen."""


class DroppedSyncFS(CrashFS):
    """A CrashFS on which one line of the source forgets to sync."""

    dropped_site: str | None = None

    def __init__(self, capacity_bytes: int | None = None, *, tear_bytes: int = 512) -> None:
        super().__init__(capacity_bytes, tear_bytes=tear_bytes)
        self.sites: set[str] = set()
        """Every place in the source that synced something."""

    def _is_heeded(self, name: str) -> bool:
        heeded = super()._is_heeded(name)
        if site := _site(name):
            self.sites.add(site)
        return heeded and site != self.dropped_site


def _site(name: str) -> str:
    """Name a sync by the function that asked for it and the kind of file; empty if no function of the source did."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not _is_source(frame):
        frame = frame.f_back
    if frame is None:
        return ""
    operation, _, path = name.partition(" ")
    path = re.sub(r"/[0-9]{4}/[0-9]{2}/[0-9]{2}(/[0-9]{9}[.]q)?$", lambda found: "/N.q" if found[1] else "/day", path)
    path = re.sub(r"/[0-9]{4}(/[0-9]{2})?$", "/month", path)
    path = re.sub(r"manifest[.][12]$", "manifest.N", path)
    path = re.sub(r"[a-z]+[.]meta((?:[.]tmp)?)$", r"N.meta\1", path) if "/readers/" in path else path
    return f"{frame.f_code.co_qualname}: {operation} {path.removeprefix('/q/')}"


def _is_source(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module.startswith("latewood.") and not module.startswith("latewood.testing")


class MortalFS(DroppedSyncFS):
    """A CrashFS that counts the operations that change it, and ends the program, or fails, before one of them."""

    operations: int = 0
    directories: list[int]
    """The numbers of those operations that made a directory."""
    dies_at: int | None = None
    """The number of the operation that does not happen any more, nor any after it."""
    dies_within: int | None = None
    """The number of the operation in whose middle it dies, if that makes a directory."""
    fails_at: int | None = None
    """The number of the one operation that fails."""
    failure: LatewoodError | None = None
    failed: str = ""
    """Which operation it was."""
    dead: bool = False

    def __init__(self, capacity_bytes: int | None = None, *, tear_bytes: int = 512) -> None:
        super().__init__(capacity_bytes, tear_bytes=tear_bytes)
        self.directories = []

    @contextmanager
    def changing(self, op: str, *paths: Path) -> Iterator[None]:
        """Count the operation, and perhaps do not do it."""
        self._live()
        self.operations += 1
        if self.operations == self.dies_at:
            self.dead = True
            self._live()
        if self.operations == self.fails_at and self.failure is not None:
            self.failed = f"{op} {' -> '.join(map(str, paths))}"
            raise self.failure.with_traceback(None)  # A longer one each time would keep every disk before this.
        with super().changing(op, *paths):
            yield

    @contextmanager
    def reading(self, op: str, path: Path) -> Iterator[None]:
        """Let nobody read who is dead."""
        self._live()
        with super().reading(op, path):
            yield

    def _live(self) -> None:
        if self.dead:
            raise Killed

    def add_directory(self, path: Path, change: NameChange) -> None:
        """Make a directory, or die between making it and making it durable."""
        self.directories.append(self.operations)
        if self.operations == self.dies_within:
            self._change_names(change)
            self.dead = True
            self._live()
        super().add_directory(path, change)

    def bury(self) -> None:
        """Let the next program have the disk: memory that it had mapped, and not synced, is still there."""
        self.dead, self.dies_at, self.dies_within = False, None, None
        self._locks.clear()
