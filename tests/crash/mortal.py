"""A disk on which programs die, and whose operations fail, at any operation that a test likes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latewood import LatewoodError
from latewood.testing import CrashFS


class Killed(BaseException):
    """The program is dead: whatever it does from now on does not happen."""


class MortalFS(CrashFS):
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
