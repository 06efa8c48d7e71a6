"""A directory that is held open, and how to know that its path still leads to it.

A path is where a directory is found, never what it is: it can be moved, replaced, or lie behind a link that is set
anew.  A `Root` keeps a descriptor of the directory.  Whatever is opened below it is opened relative to that descriptor,
so nothing is ever written into another directory of the same name.  The descriptor also keeps the inode from being
given to another directory, so comparing (device, inode) with what the path leads to now is proof.

Where the platform cannot open relative to a descriptor, files are opened by path; the comparison is the same.
Threads: any.  Why: docs/adr/0030-which-directory.md
"""

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from latewood.errors import ClosedError, DirectoryReplaced, LatewoodError
from latewood.forking import close_after_fork, forked, no_fork
from latewood.fs.failures import translated
from latewood.missing import Missing

_BY_DESCRIPTOR: Final = {os.open, os.mkdir, os.rename, os.unlink, os.stat, os.link, os.access}
OPENS_BY_DESCRIPTOR: bool = (
    os.supports_dir_fd >= _BY_DESCRIPTOR and os.scandir in os.supports_fd and shutil.rmtree.avoids_symlink_attacks
)
"""Whether this platform opens files relative to a directory's descriptor.  A test sets it to False."""

_GONE: Final = {
    errno.ENOENT: "it was deleted or moved",
    errno.ENOTDIR: "a part of the path is no directory any more",
    errno.ELOOP: "its path is a loop of links",
    errno.ESTALE: "the file server has forgotten it",
    errno.EACCES: "it cannot be looked at any more",
}
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY
_SEARCH_ONLY: Final = getattr(os, "O_PATH", 0)
"""Linux opens a directory that may be passed through, and not be read."""


class Identity(NamedTuple):
    """What tells a file or directory from every other one, while it is there."""

    device: int
    inode: int


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity in what the system says of a file."""
    return Identity(status.st_dev, status.st_ino)


class KnownPath:
    """A path, and the file or directory that it led to when this was made."""

    __slots__ = ("_device", "_directory", "_inode", "_kind", "_other", "_path", "_text")

    def __init__(self, directory: Path, path: Path, identity: Identity, other: str, kind: Missing) -> None:
        """Remember; `directory` is what errors name, and `other` says what it means if something else is there.

        `kind` is what errors say that is missing then.
        """
        self._directory, self._path, self._text, self._other = directory, path, str(path), other
        self._kind = kind
        self._device, self._inode = identity

    def check(self) -> None:
        """Do nothing if the path still leads there.

        Raises:
            DirectoryReplaced: it does not.
            StorageError: the system cannot tell.
        """
        try:
            found = os.stat(self._text)
        except OSError as error:
            raise self._missing(error) from error
        if found.st_ino != self._inode or found.st_dev != self._device:
            raise DirectoryReplaced(self._directory, self._other, self._kind)

    def _missing(self, error: OSError) -> LatewoodError:
        if error.errno not in _GONE:
            return translated(error, self._path)
        if self._path != self._directory and os.path.isdir(self._directory):
            return DirectoryReplaced(self._directory, f"the file {self._path.name} was removed", self._kind)
        return DirectoryReplaced(self._directory, _GONE[error.errno], "directory")


def known_file(path: Path, kind: Missing) -> KnownPath:
    """Return a file, as its path leads to it now; whoever has it open keeps its inode from being another's.

    Raises:
        StorageError: the system cannot tell.
    """
    try:
        identity = identity_of(os.stat(path))
    except OSError as error:
        raise translated(error, path) from error
    return KnownPath(path.parent, path, identity, f"{path.name} is another file now", kind)


class Root:
    """One directory, held open.  Used as a context manager it lends its descriptor, which stays open meanwhile."""

    def __init__(self, path: Path) -> None:
        """Open the directory at an absolute path.

        Raises:
            OSError: it cannot be opened.
        """
        self.path = path
        self._prefix = f"{path}{'' if str(path).endswith(os.sep) else os.sep}"
        self._mutex = threading.Lock()
        self._users = 0
        self._over: ClosedError | None = None
        with no_fork():  # A child that did not know of it would hold its lock for as long as it lives.
            self._descriptor = _opened(path)
            close_after_fork(self)
        self.identity = identity_of(os.fstat(self._descriptor))

    def relative(self, path: Path) -> str | None:
        """Return a path as it is seen from here; None if it is not here, or has to be opened as it is."""
        text = str(path)
        if not OPENS_BY_DESCRIPTOR:
            return None
        if text.startswith(self._prefix):
            return text[len(self._prefix) :]
        return "." if path == self.path else None

    def holds(self, path: Path) -> bool:
        """Say whether a path is this directory's, or below it."""
        return path == self.path or str(path).startswith(self._prefix)

    def __enter__(self) -> int:
        with self._mutex:
            if self._over:
                raise type(self._over)(*self._over.args)
            self._users += 1
            return self._descriptor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._mutex:
            self._users -= 1
            self._let_go()

    def close(self) -> None:
        """Give the directory up, once nobody uses it any more."""
        with self._mutex:
            self._over = self._over or ClosedError(f"{self.path} is closed; open it again")
            self._let_go()

    def abandon_after_fork(self) -> None:
        """Close the child's descriptor: the file behind it is the parent's, and so is a lock on it."""
        self._mutex, self._users = threading.Lock(), 0
        self._over = forked(self.path)
        self._let_go()

    def __del__(self) -> None:
        """Give the descriptor back, of one that nobody has closed."""
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()

    def _let_go(self) -> None:
        if self._over and not self._users and self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        return os.open(path, _FLAGS)
    except PermissionError:
        if not _SEARCH_ONLY:
            raise
        return os.open(path, _FLAGS | _SEARCH_ONLY)


class Seen(NamedTuple):
    """How the system is asked for a path: by a name, seen from a descriptor if there is one."""

    name: str
    descriptor: int | None


@contextmanager
def lent(root: Root | None, path: Path) -> Iterator[Seen]:
    """Lend what `path` is opened by: the descriptor of `root`, if it lies there, or nothing but the path."""
    name = root.relative(path) if root else None
    if root is None or name is None:
        yield Seen(str(path), None)
        return
    with root as descriptor:
        yield Seen(name, descriptor)


def is_directory(name: "str | Path", descriptor: int | None) -> bool:
    """Say whether there is a directory, seen from a directory's descriptor."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=descriptor).st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
