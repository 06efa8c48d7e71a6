"""A disk in memory with one directory held open, as a descriptor holds it: moved or replaced, it stays the one.

Every call goes to the disk itself, and so through whatever refines that; only the way from a path to a node differs.
Before a name changes, the root's path is looked at, as by `PosixFS`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from latewood.testing.node import Directory

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from latewood.testing.mem_file import MemFile, MemLock
    from latewood.testing.mem_fs import MemFS


class RootedMemFS:
    """What `MemFS.rooted` returns.  `held` is open at `held_path`; the root is it, or a directory below it."""

    def __init__(self, disk: "MemFS", held_path: Path, held: Directory, path: Path, root: Directory) -> None:
        self.disk = disk
        self._held_path, self._held, self._path, self._root = held_path, held, path, root
        self._lock: MemLock | None = None

    def absolute(self, path: Path) -> Path:
        """Return the path, as the disk does."""
        return self.disk.absolute(path)

    def rooted(self, path: Path) -> "RootedMemFS":
        """Return the disk with another root; one below what is held open shares that."""
        if path != self._held_path and self._held_path not in path.parents:
            return self.disk.rooted(path)
        with self._seen():
            return RootedMemFS(self.disk, self._held_path, self._held, path, self.disk.find_directory(path))

    def check_root(self) -> None:
        """Raise DirectoryReplaced if the root's path leads elsewhere, or its lock file is another."""
        self.disk.check_named(self._path, self._path, self._root)
        if self._lock is not None:
            self._lock.check()

    def lock_root(self, path: Path, *, whole: bool = True) -> "MemLock":
        """Take the lock file at `path`, and lock the root itself if it is what is held open."""
        directories = (self._root,) if whole and self._root is self._held else ()
        with self._seen():
            self._lock = self.disk.lock_with(path, *directories)
        return self._lock

    def close(self) -> None:
        """Nothing is open."""
        self._lock = None

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> "MemFile":
        """Open a file."""
        if create:
            self.check_root()
        with self._seen():
            return self.disk.open(path, write=write, create=create)

    def exists(self, path: Path) -> bool:
        """Say whether there is a file or directory."""
        with self._seen():
            return self.disk.exists(path)

    def is_writable(self, path: Path) -> bool:
        """Say whether files may be made in a directory."""
        with self._seen():
            return self.disk.is_writable(path)

    def list(self, path: Path) -> list[str]:
        """Return the names in a directory."""
        with self._seen():
            return self.disk.list(path)

    def walk(self, path: Path) -> Iterator[Path]:
        """Yield every file under a directory."""
        with self._seen():
            found = [*self.disk.walk(path)]
        yield from found

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, durably."""
        if not self.exists(path):
            self.check_root()
        with self._seen():
            self.disk.make_directory(path)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with self._seen():
            self.disk.sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` with `source`."""
        self.check_root()
        with self._seen():
            self.disk.rename(source, target)

    def rename_new(self, source: Path, target: Path) -> None:
        """Give a file a name that is free."""
        self.check_root()
        with self._seen():
            self.disk.rename_new(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        self.check_root()
        with self._seen():
            self.disk.remove(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all that is in it."""
        self.check_root()
        with self._seen():
            self.disk.remove_tree(path)

    def lock(self, path: Path) -> "MemLock":
        """Take the lock file at `path`."""
        self.check_root()
        with self._seen():
            return self.disk.lock(path)

    def _seen(self) -> "AbstractContextManager[None]":
        return self.disk.pinned(self._held_path, self._held)
