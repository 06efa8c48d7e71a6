"""Locks of the real disk: flocks, which the kernel drops with the process, so a dead holder never blocks.

A lock file can be removed while it is locked, and the next program would lock the file that it makes in its place.  So
a lock remembers which file it has locked, `check` compares, and whoever writes a directory locks that one as well: it
cannot be removed while its files are there.
"""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from latewood.errors import ClosedError, LatewoodError, Locked, NotFoundError, StorageError
from latewood.forking import close_after_fork, no_fork
from latewood.fs.failures import errors_of
from latewood.fs.file import PosixFile
from latewood.fs.root import KnownPath, Root, identity_of, lent

_TRIES_MAX: Final = 100
"""Attempts to lock a lock file that others remove before it is locked.  More would only hide what is wrong."""
_NO_DIRECTORY_LOCKS: Final = {errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL}
"""What the system says where a directory cannot be locked, as on NFS."""
_PID_BYTES: Final = 20


class PosixLock:
    """A lock file."""

    def __init__(self, path: Path, root: Root | None = None) -> None:
        with no_fork():  # A child that did not know of it would hold it for as long as it lives.
            self._take(path, root)
            # A child of fork inherits the descriptor; left open there, the lock would outlive the parent.
            close_after_fork(self)
        with suppress(LatewoodError):  # The process id is only for error texts: without it the lock is held as well.
            self._file.pwrite(f"{os.getpid():<{_PID_BYTES - 1}}\n".encode(), 0)

    def _take(self, path: Path, root: Root | None) -> None:
        for _ in range(_TRIES_MAX):
            self._file = PosixFile(path, os.O_RDWR | os.O_CREAT, root)
            try:
                if self._is_taken(root):
                    break
            except BaseException:
                self._file.close()  # And with it the lock, which a caller who tries again would find taken.
                raise
            self._file.close()
        else:
            raise StorageError(f"{path}: it is removed or replaced again and again while it is being locked")

    def _is_taken(self, root: Root | None) -> bool:
        """Lock the file; say whether it is still the one of that name."""
        path = self._file.path
        with errors_of(path):
            try:
                fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Locked(path, _pid_in(self._file)) from None
            identity = self._file.identity()
            other = f"the lock file {path.name} was replaced, and another program may write"
            self._known = KnownPath(path.parent, path, identity, other, "lock")
            try:
                with lent(root, path) as (name, descriptor):
                    return identity_of(os.stat(name, dir_fd=descriptor)) == identity
            except FileNotFoundError:
                return False

    def check(self) -> None:
        """Raise DirectoryReplaced if the file was removed or replaced."""
        self._known.check()

    def close(self) -> None:
        """Give the lock up, also on behalf of children that inherited it."""
        if (descriptor := self._file.fileno()) >= 0:
            try:
                with errors_of(self._file.path):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                self._file.close()

    def abandon_after_fork(self) -> None:
        """Close the child's descriptor; the parent's keeps the lock."""
        self._file.close()


class DirectoryLock:
    """A directory and the lock file in it, locked both.  Programs before this one know the lock file only."""

    def __init__(self, path: Path, root: Root) -> None:
        """Lock the directory, then the file at `path`: a program that finds the directory locked makes no lock file."""
        self._root = root
        self._has_directory = _lock_directory(root, path)
        try:
            self._lock = PosixLock(path, root)
        except BaseException:
            self._unlock_directory()
            raise

    def check(self) -> None:
        """Raise DirectoryReplaced if the lock file was removed or replaced."""
        self._lock.check()

    def close(self) -> None:
        """Give both up, also on behalf of children that inherited them."""
        try:
            self._lock.close()
        finally:
            self._unlock_directory()

    def _unlock_directory(self) -> None:
        if self._has_directory:
            self._has_directory = False
            # A closed descriptor holds no lock any more, and a forked child has none: the lock is the parent's.
            with suppress(ClosedError), errors_of(self._root.path), self._root as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock_directory(root: Root, path: Path) -> bool:
    """Lock a directory that is held open; say whether that is possible there.

    Raises:
        Locked: another holder has it; the error names the lock file at `path`, and the process that this names.
    """
    with errors_of(root.path), root as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(path, _pid_at(path, root)) from None
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_LOCKS:
                raise
            return False
        return True


def _pid_at(path: Path, root: Root) -> int:
    try:
        file = PosixFile(path, os.O_RDONLY, root)
    except NotFoundError:
        return 0
    try:
        return _pid_in(file)
    finally:
        file.close()


def _pid_in(file: PosixFile) -> int:
    holder = file.pread(_PID_BYTES, 0).strip(b"\0\n ")
    return int(holder) if holder.isdigit() else 0
