"""A file system in memory, for tests: quick, counted, and failing on demand.

Follows POSIX where Latewood could notice: names point at inodes, an inode without a name lives on in
its open files and mappings, and every mapping of a file is the same memory.  Paths are those of one
tree whose root is the current directory too: `q` and `/q` are the same.

Not kept: space of a removed file is free at once, though it may still be open.

A disk that is `rooted` finds what lies below its root from the directory that was opened, whatever its path means by
now: see `mem_root`.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from latewood.errors import (
    ConflictError,
    DirectoryReplaced,
    DiskFull,
    Locked,
    NotFoundError,
    ReadOnlyError,
    StorageError,
)
from latewood.testing.faults import Faults
from latewood.testing.mem_file import MemFile, MemLock
from latewood.testing.mem_root import RootedMemFS
from latewood.testing.node import Directory, Inode, Node


@dataclass(slots=True)
class Counts:
    """What has been asked of a file system, so that a test can say what something costs."""

    files_opened: int = 0
    preads: int = 0
    bytes_read: int = 0
    writes: int = 0
    bytes_written: int = 0
    maps: int = 0
    bytes_mapped: int = 0
    allocations: int = 0
    truncations: int = 0
    syncs: int = 0
    directory_syncs: int = 0
    directories_made: int = 0
    renames: int = 0
    links: int = 0
    removes: int = 0
    lists: int = 0


NameChange = tuple[Directory, str, Node | None]
"""In this directory, this name now means this node, or nothing."""


class MemFS:
    """The disk as a tree of objects.  Any thread may call it."""

    read_only: bool = False
    """Set it to make the names unchangeable, as a mount with `ro` would."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.counts = Counts()
        self.opened: list[Path] = []
        self.root = Directory()
        self._faults = Faults()
        self._locks: set[Node] = set()
        self._mutex = threading.RLock()
        self._pins = threading.local()

    def fail(self, op: str, path_suffix: str, error: Exception, after: int = 0) -> None:
        """Raise `error` from every `op` on a path that ends in `path_suffix`, once `after` have passed.

        A failed operation changes nothing.  A rename matches by either of its paths.
        """
        self._faults.plan(op, path_suffix, error, after)

    def heal(self) -> None:
        """Take back every `fail`."""
        self._faults.heal()

    def absolute(self, path: Path) -> Path:
        """Return the path: the current directory of this tree is always its root."""
        return path

    def rooted(self, path: Path) -> RootedMemFS:
        """Return this disk with the directory `path` held open."""
        directory = self.find_directory(path)
        return RootedMemFS(self, path, directory, path, directory)

    def check_root(self) -> None:
        """There is no root."""

    def lock_root(self, path: Path, *, whole: bool = True) -> MemLock:
        """Take the lock file at `path`."""
        del whole
        return self.lock(path)

    def close(self) -> None:
        """There is no root."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> MemFile:
        """Open a file; `create` makes it if it is not there and implies `write`."""
        with self._mutex:
            made = create and self._find(path) is None
            with self.changing("open", path) if made else self.reading("open", path):
                if write or create:
                    self._check_writable(path)
                inode = self._create(path) if made else self._inode_at(path)
                self.counts.files_opened += 1
                self.opened.append(path)
                return MemFile(self, path, inode, writable=write or create)

    def exists(self, path: Path) -> bool:
        """Say whether there is a file or directory."""
        return self._find(path) is not None

    def is_writable(self, path: Path) -> bool:
        """Say whether files may be made in the directory `path`; not if there is no directory."""
        return not self.read_only and isinstance(self._find(path), Directory)

    def walk(self, path: Path) -> Iterator[Path]:
        """Yield every file under a directory, sorted within each directory, files before directories."""
        directory = self._find(path)
        if not isinstance(directory, Directory):
            return
        entries = sorted(directory.entries.items())
        yield from (path / name for name, node in entries if isinstance(node, Inode))
        for name, node in entries:
            if isinstance(node, Directory):
                yield from self.walk(path / name)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, durably, if it is not there."""
        with self._mutex:
            node = self._find(path)
            if isinstance(node, Inode):
                raise NotFoundError(f"{path}: is a file, not a directory")
            if node is None:
                self.make_directory(path.parent)
                with self.changing("make_directory", path):
                    self._check_writable(path)
                    self.counts.directories_made += 1
                    self.add_directory(path, (self._directory_at(path.parent), path.name, Directory()))

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with self.changing("sync_directory", path):
            directory = self._directory_at(path)
            self.counts.directory_syncs += 1
            self.settle_directory(path, directory)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` with `source`, atomically."""
        with self.changing("rename", source, target):
            self._check_writable(target)
            node, directory = self._find(source), self._directory_at(target.parent)
            if node is None:
                raise NotFoundError(f"{source}: no such file")
            self._check_replaceable(node, target)
            self.counts.renames += 1
            if source != target:
                old: NameChange = (self._directory_at(source.parent), source.name, None)
                self.change_names(old, (directory, target.name, node))

    def rename_new(self, source: Path, target: Path) -> None:
        """Give a file a second name that is free, then take the first one away."""
        with self.changing("link", source, target):
            self._check_writable(target)
            node, directory = self._inode_at(source), self._directory_at(target.parent)
            if self._find(target) not in (None, node):
                raise ConflictError(f"{target} is there already, and is not replaced")
            self.counts.links += 1
            self.change_names((directory, target.name, node))
        self.remove(source)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with self.changing("remove", path):
            self._inode_at(path)
            self._check_writable(path)
            self.counts.removes += 1
            self.change_names((self._directory_at(path.parent), path.name, None))

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all that is in it, if it is there."""
        with self.changing("remove_tree", path):
            if self.exists(path):
                self._check_writable(path)
                self.change_names((self._directory_at(path.parent), path.name, None))

    def lock(self, path: Path) -> MemLock:
        """Take the lock file at `path`, making it if need be.

        Raises:
            Locked: it is held, always by this process.
        """
        return self.lock_with(path)

    def lock_with(self, path: Path, *directories: Directory) -> MemLock:
        """Take the lock file at `path`, and lock directories as well; nothing is made if one of them is locked."""
        with self._mutex:
            node = self._find(path)
            with self.changing("lock", path) if node is None else self.reading("lock", path):
                if not self._locks.isdisjoint((node, *directories)):
                    raise Locked(path, os.getpid())
                self._check_writable(path)
                return MemLock(self, path, (node or self._create(path), *directories), self._locks)

    def lock_open_file(self, path: Path, inode: Inode) -> None:
        """Lock an open file, apart from lock files.

        Raises:
            Locked: it is locked.
        """
        with self._mutex:
            if inode in self._locks:
                raise Locked(path, os.getpid())
            self._locks.add(inode)

    def unlock_open_file(self, inode: Inode) -> None:
        """Give an open file up."""
        with self._mutex:
            self._locks.discard(inode)

    def list(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; none if there is no directory."""
        with self.reading("list", path):
            directory = self._find(path)
            self.counts.lists += 1
            return sorted(directory.entries) if isinstance(directory, Directory) else []

    # What follows is for MemFile and RootedMemFS, and for file systems built on this one to refine.

    @contextmanager
    def pinned(self, path: Path, directory: Directory) -> Iterator[None]:
        """Have this thread find whatever lies below `path` from a directory that it holds open."""
        before = getattr(self._pins, "pin", None)
        self._pins.pin = _parts(path), directory
        try:
            yield
        finally:
            self._pins.pin = before

    def check_named(self, directory: Path, path: Path, node: Node) -> None:
        """Do nothing if `path` leads to a node.

        Raises:
            DirectoryReplaced: it does not; the error names `directory`.
        """
        found = self._find(path)
        if found is None:
            is_lock = path != directory and self._find(directory) is not None
            raise DirectoryReplaced(directory, f"{path.name} was removed", "lock" if is_lock else "directory")
        if found is not node:
            raise DirectoryReplaced(
                directory, f"there is another {path.name} now", "another" if path == directory else "lock"
            )

    def find_directory(self, path: Path) -> Directory:
        """Return the directory at `path`.

        Raises:
            NotFoundError: there is none.
        """
        return self._directory_at(path)

    @contextmanager
    def reading(self, op: str, path: Path) -> Iterator[None]:
        """Bracket an operation that changes nothing on the disk."""
        with self._mutex:
            self._faults.check(op, path)
            yield

    @contextmanager
    def changing(self, op: str, *paths: Path) -> Iterator[None]:
        """Bracket an operation that changes the disk."""
        with self._mutex:
            self._faults.check(op, *paths)
            yield

    def sync_file(self, path: Path, inode: Inode) -> None:
        """Make one inode durable."""
        with self.changing("sync", path):
            self.counts.syncs += 1
            self.settle(path, inode)

    def change_names(self, *changes: NameChange) -> None:
        """Change names, all at once."""
        for directory, name, node in changes:
            if node is None:
                del directory.entries[name]
            else:
                directory.entries[name] = node

    def add_directory(self, path: Path, change: NameChange) -> None:
        """Add the name of a new directory, durably."""
        del path  # for whoever refines this
        self.change_names(change)

    def settle(self, path: Path, inode: Inode) -> None:
        """Make an inode's bytes and length durable.  Memory is as durable as it gets."""

    def settle_directory(self, path: Path, directory: Directory) -> None:
        """Make a directory's names durable.  Memory is as durable as it gets."""

    def touch(self, inode: Inode, start: int, stop: int) -> None:
        """Take note that the bytes of an inode from `start` to `stop` are about to be written, cut or added."""

    def share(self, inode: Inode) -> None:
        """Take note that an inode's bytes may change through a mapping from now on."""

    def check_room(self, path: Path, growth: int) -> None:
        """Raise DiskFull if `growth` more bytes do not fit."""
        if growth <= 0 or self.capacity_bytes is None:
            return
        free = self.capacity_bytes - self.used_bytes()
        if growth > free:
            raise DiskFull(f"{path}: {growth:,} bytes do not fit into the {free:,} that are left")

    def used_bytes(self) -> int:
        """Return the length of all files that have a name."""
        return sum(self._inode_at(path).size for path in self.walk(Path("/")))

    def _find(self, path: Path) -> Node | None:
        node: Node | None = self.root
        names = _parts(path)
        pin: tuple[tuple[str, ...], Directory] | None = getattr(self._pins, "pin", None)
        if pin is not None and names[: len(pin[0])] == pin[0]:
            node, names = pin[1], names[len(pin[0]) :]
        for name in names:
            node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _inode_at(self, path: Path) -> Inode:
        node = self._find(path)
        if isinstance(node, Directory):
            raise StorageError(f"{path}: is a directory")
        if node is None:
            raise NotFoundError(f"{path}: no such file")
        return node

    def _directory_at(self, path: Path) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise NotFoundError(f"{path}: no such directory")
        return node

    def _create(self, path: Path) -> Inode:
        inode = Inode()
        self.change_names((self._directory_at(path.parent), path.name, inode))
        return inode

    def _check_writable(self, path: Path) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{path}: this file system is read-only")

    def _check_replaceable(self, node: Node, target: Path) -> None:
        replaced = self._find(target)
        if replaced is None or (isinstance(node, Inode) and isinstance(replaced, Inode)):
            return
        if isinstance(replaced, Directory) and isinstance(node, Directory) and not replaced.entries:
            return
        raise StorageError(f"{target}: is a directory, or what would replace it is")


def _parts(path: Path) -> tuple[str, ...]:
    return path.parts[1 if path.anchor else 0 :]
