"""A disk on which programs die, and whose operations fail, at any operation that a test likes."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from latewood import LatewoodError
from latewood.testing import CrashFS


class Killed(BaseException):
    """The program is dead: whatever it does from now on does not happen."""


class DroppedSyncFS(CrashFS):
    """A CrashFS on which one line of the source forgets to sync."""

    dropped_site: str | None = None
    sites: dict[str, None]
    """Every place in the source that synced something, in the order of the first time."""

    def _is_heeded(self, name: str) -> bool:
        self.__dict__.setdefault("sites", {})
        heeded = super()._is_heeded(name)
        site = _site(name)
        self.sites[site] = None
        return heeded and site != self.dropped_site


def _site(name: str) -> str:
    """Name a sync by the function that asked for it and the kind of file."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not _is_source(frame):
        frame = frame.f_back
    assert frame is not None
    operation, _, path = name.partition(" ")
    path = re.sub(r"/[0-9]{4}/[0-9]{2}/[0-9]{2}(/[0-9]{9}[.]q)?$", lambda found: "/N.q" if found[1] else "/day", path)
    path = re.sub(r"/[0-9]{4}(/[0-9]{2})?$", "/month", path)
    path = re.sub(r"manifest[.][12]$", "manifest.N", path)
    return f"{frame.f_code.co_qualname}: {operation} {path.removeprefix('/q/')}"


def _is_source(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module.startswith("latewood.") and not module.startswith("latewood.testing")


class MortalFS(DroppedSyncFS):
    """A CrashFS that counts the operations that change it, and ends the program, or fails, before one of them."""

    operations: int = 0
    dies_at: int | None = None
    """The number of the operation that does not happen any more, nor any after it."""
    fails_at: int | None = None
    """The number of the one operation that fails."""
    failure: LatewoodError | None = None
    failed: str = ""
    """Which operation it was."""
    dead: bool = False

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
            raise self.failure
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

    def bury(self) -> None:
        """Let the next program have the disk: memory that it had mapped, and not synced, is still there."""
        self.dead, self.dies_at = False, None
        self._locks.clear()
