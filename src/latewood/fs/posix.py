"""The real disk.

Every file is made with mode 0600 and every directory with 0700.  A disk that is `rooted` opens what lies below its root
relative to a descriptor of it: see fs/root.py.  It calls `check_root` before each change of a name.  Where files are
opened by path, that keeps the change out of another directory; and in a directory that was deleted it raises
`DirectoryReplaced`, which says more than that a file is missing.
"""

import copy
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from latewood.errors import ConflictError
from latewood.fs.failures import errors_of
from latewood.fs.file import PosixFile
from latewood.fs.locks import DirectoryLock, PosixLock
from latewood.fs.root import KnownPath, Root, Seen, identity_of, is_directory, lent

if TYPE_CHECKING:
    from latewood.fs.base import Lock

_DIRECTORY_MODE: Final = 0o700
_NO_LINKS: Final = {
    errno.EPERM,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EINVAL,
    errno.EXDEV,
}
"""What the system says where a file cannot have two names, as on exFAT, or not in two directories, as on AFS."""
_ANOTHER: Final = "another directory is there now"
Names: TypeAlias = list[str]


class _Own(NamedTuple):
    """The directory that one file system is rooted in."""

    path: Path
    known: KnownPath
    is_lender: bool
    """Whether it was opened for this file system, which then closes it."""


class PosixFS:
    """The disk, through the operating system.  Any thread may call it."""

    _root: Root | None = None
    """The directory that is held open: that of `_own`, or one above it."""
    _own: _Own | None = None
    _lock: "Lock | None" = None
    """The lock of the root, once it was taken."""

    # -- the root -----------------------------------------------------------------------------------------

    def absolute(self, path: Path) -> Path:
        """Return a path that means the same when the current directory is another."""
        with errors_of(path):
            return path.absolute()

    def rooted(self, path: Path) -> Self:
        """Return this disk with the directory `path` held open; one that is held open above it is shared."""
        path, root = self.absolute(path), self._root
        with errors_of(path):
            if root is not None and root.holds(path):
                with lent(root, path) as (name, descriptor):
                    identity = identity_of(os.stat(name, dir_fd=descriptor))
            else:
                root = Root(path)
                identity = root.identity
        own = _Own(path, KnownPath(path, path, identity, _ANOTHER, "another"), is_lender=root is not self._root)
        below = copy.copy(self)
        below._root, below._own, below._lock = root, own, None  # noqa: SLF001 - it is one of these, too
        return below

    def check_root(self) -> None:
        """Raise DirectoryReplaced if the root's path leads elsewhere, or its lock file is another."""
        if self._own is not None:
            self._own.known.check()
        if self._lock is not None:
            self._lock.check()

    def lock_root(self, path: Path, *, whole: bool = True) -> "Lock":
        """Take the lock file at `path`, and lock the root itself if it is what is held open."""
        own, root = self._own, self._root
        if own is None or root is None:
            return self.lock(path)
        self._lock = DirectoryLock(path, root) if whole and own.path == root.path else PosixLock(path, root)
        return self._lock

    def close(self) -> None:
        """Close the root's descriptor, if it was opened for this one."""
        self._lock = None
        if self._own and self._own.is_lender and self._root:
            self._root.close()

    # -- files and directories ----------------------------------------------------------------------------

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> PosixFile:
        """Open a file; `create` makes it if it is not there and implies `write`."""
        if create:
            self.check_root()
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return PosixFile(path, flags | (os.O_CREAT if create else 0), self._root)

    def exists(self, path: Path) -> bool:
        """Say whether there is a file or directory."""
        with errors_of(path), lent(self._root, path) as (name, descriptor):
            try:
                os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True  # Other errors are raised: without permission nobody knows whether there is a file.

    def is_writable(self, path: Path) -> bool:
        """Say whether this process may create files in the directory `path`."""
        with lent(self._root, path) as (name, descriptor):
            if not os.access(name, os.W_OK, dir_fd=descriptor):
                return False
            return not os.statvfs(path if descriptor is None else descriptor).f_flag & os.ST_RDONLY

    def list(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; none if there is no directory."""
        with errors_of(path):
            if not self._is_directory(path):
                return []
            descriptor = self._open_directory(path)
            try:
                return sorted(os.listdir(descriptor))
            finally:
                os.close(descriptor)

    def walk(self, path: Path) -> Iterator[Path]:
        """Yield every file under a directory, sorted within each directory.  Links to directories are not followed."""
        files, directories = self._entries(path)
        yield from (path / name for name in sorted(files))
        for name in sorted(directories):
            yield from self.walk(path / name)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, durably, if it is not there."""
        if self._is_directory(path):
            return
        self.check_root()
        self.make_directory(path.parent)
        with errors_of(path):
            with suppress(FileExistsError), lent(self._root, path) as (name, descriptor):
                os.mkdir(name, _DIRECTORY_MODE, dir_fd=descriptor)
            if not self._is_directory(path):
                raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", str(path))
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with errors_of(path):
            descriptor = self._open_directory(path)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` with `source`, atomically."""
        self.check_root()
        with errors_of(target), lent(self._root, source) as old, lent(self._root, target) as new:
            os.replace(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor)

    def rename_new(self, source: Path, target: Path) -> None:
        """Give a file a second name that is free, then take the first one away.

        Where a file cannot have two names, this checks that the new one is free, and renames; the caller holds a lock.
        """
        self.check_root()
        with errors_of(target), lent(self._root, source) as old, lent(self._root, target) as new:
            try:
                os.link(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor)
            except FileExistsError:
                # Perhaps a file server did it, its answer was lost, and it was asked again: then it is the same file.
                if not _is_same_file(old, new):
                    raise _taken(target) from None
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if self.exists(target):
                    raise _taken(target) from None
                os.replace(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor)
                return
            os.unlink(old.name, dir_fd=old.descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        self.check_root()
        with errors_of(path), lent(self._root, path) as (name, descriptor):
            os.unlink(name, dir_fd=descriptor)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all that is in it, if it is there."""
        self.check_root()
        with errors_of(path), suppress(FileNotFoundError), lent(self._root, path) as (name, descriptor):
            shutil.rmtree(name, dir_fd=descriptor)

    def lock(self, path: Path) -> PosixLock:
        """Take the lock file at `path`."""
        self.check_root()
        return PosixLock(path, self._root)

    def _is_directory(self, path: Path) -> bool:
        with errors_of(path), lent(self._root, path) as (name, descriptor):
            return is_directory(name, descriptor)

    def _open_directory(self, path: Path) -> int:
        with lent(self._root, path) as (name, descriptor):
            return os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)

    def _entries(self, path: Path) -> "tuple[Names, Names]":
        """Return the files and the directories in a directory; none if it is gone, or not for us to see."""
        found: tuple[Names, Names] = [], []
        try:
            directory = self._open_directory(path)
        except OSError:
            return found
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    leads_below = _leads_to_directory(entry)
                    if not (leads_below and entry.is_symlink()):
                        found[leads_below].append(entry.name)
        finally:
            os.close(directory)
        return found


def _leads_to_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_same_file(old: Seen, new: Seen) -> bool:
    found = [os.stat(one.name, dir_fd=one.descriptor, follow_symlinks=False) for one in (old, new)]
    return identity_of(found[0]) == identity_of(found[1])


def _taken(target: Path) -> ConflictError:
    return ConflictError(f"{target} is there already, and is not replaced")
