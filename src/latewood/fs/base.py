"""What Latewood asks of a file system, and no more.

`PosixFS` is the real one; `latewood.testing` has one in memory and one that cuts the power.  Errors of
the operating system surface as `StorageError`, `DiskFull`, `NotFoundError` or `ReadOnlyError`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class Mapping(Protocol):
    """A file's bytes in memory, shared with every other mapping of it."""

    view: memoryview

    def load(self, start: int, stop: int) -> None:
        """Expect these bytes to be read next."""
        ...

    def unload(self, start: int, stop: int) -> None:
        """Expect no more use of these bytes.  They stay as they are, in the file and in the view."""
        ...

    def close(self) -> None:
        """Let go of the memory, now or when the last view of it dies."""
        ...


class File(Protocol):
    """One open file.  Not thread-safe, but for `sync`."""

    path: Path

    def size(self) -> int:
        """Return its length in bytes."""
        ...

    def stamp(self) -> str:
        """Return what is another text once its bytes were changed; nearly always also when only its name or mode was.

        Two files have the same stamp only if they are copies that a file system in memory cannot tell apart.
        """
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes at `offset`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""
        ...

    def pwrite_head_last(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`, its first 8 bytes after everything else."""
        ...

    def allocate(self, size: int) -> None:
        """Grow to `size` bytes of zeros that the disk has promised room for.  Never shrinks."""
        ...

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros, to `size` bytes."""
        ...

    def sync(self) -> None:
        """Make the contents and length durable.  Releases the GIL."""
        ...

    def sync_and_note(self, note: "File", data: bytes, *, durable: bool) -> None:
        """Do three things in order: `sync`, write `data` at the front of `note`, and if asked sync that too."""
        ...

    def data_end(self, start: int, stop: int) -> int:
        """Return a place in `start` to `stop` from which on, up to `stop`, there are only zeros; it may be `stop`."""
        ...

    def lock(self) -> None:
        """Lock it until it is closed, or the process ends.  It is read and written as before, by others too.

        Where the file system has no such locks, this does nothing.

        Raises:
            Locked: a living process, perhaps this one, has locked it through another open file.
        """
        ...

    def map(self, length: int, *, writable: bool) -> Mapping:
        """Map the first `length` bytes, which must exist."""
        ...

    def close(self) -> None:
        """Close it.  Mappings live on."""
        ...


class Lock(Protocol):
    """The right to write, held until `close` or the end of the process."""

    def check(self) -> None:
        """Do nothing if the file that is locked is still the one of that name.

        Raises:
            DirectoryReplaced: it was removed or replaced, so another program may have taken the lock as well.
        """
        ...

    def close(self) -> None:
        """Give it up."""
        ...


class FileSystem(Protocol):
    """The disk.  As `rooted` returns it, the disk with one directory held open: the root."""

    def absolute(self, path: Path) -> Path:
        """Return a path that means the same when the current directory is another.  Links in it stay links."""
        ...

    def rooted(self, path: Path) -> "FileSystem":
        """Return this disk with the directory `path` as its root, held open until `close`.

        What lies below is found through the open directory, wherever that is moved to.  If this disk has a root
        already, at `path` or above it, both share the open directory, and the new one has nothing to close.

        Raises:
            NotFoundError: there is no such directory.
        """
        ...

    def check_root(self) -> None:
        """Do nothing if the root's path still leads to it, and the lock that `lock_root` took is of that name.

        Costs a look at each of the two, and nothing without a root.

        Raises:
            DirectoryReplaced: the path leads nowhere, or to something else.
        """
        ...

    def lock_root(self, path: Path, *, whole: bool = True) -> Lock:
        """Take the lock file at `path`, for which `check_root` looks from then on.

        With `whole` the root is locked as well, where the file system can do that, so that two programs do not write
        though the lock file was removed.  One that lies below what is held open is not: that would take a descriptor.

        Raises:
            Locked: a living process, perhaps this one, holds one of them.
        """
        ...

    def close(self) -> None:
        """Give the root up.  Without one, or with a shared one, this does nothing."""
        ...

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open a file; `create` makes it (mode 0600) if it is not there and implies `write`."""
        ...

    def exists(self, path: Path) -> bool:
        """Say whether there is a file or directory."""
        ...

    def is_writable(self, path: Path) -> bool:
        """Say whether this process may create files in the directory `path`."""
        ...

    def list(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; none if there is no directory."""
        ...

    def walk(self, path: Path) -> Iterator[Path]:
        """Yield every file under a directory, sorted within each directory."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory (mode 0700) and its parents, durably, if it is not there."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` with `source`, atomically."""
        ...

    def rename_new(self, source: Path, target: Path) -> None:
        """Give the file `source` the name `target`, which is free.  A crash may leave both names.

        Raises:
            ConflictError: there is something of that name; it was left as it is.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all that is in it, if it is there.  After a crash some of it may be left."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take the lock file at `path`, making it if need be.

        Raises:
            Locked: a living process, perhaps this one, holds it.
        """
        ...
