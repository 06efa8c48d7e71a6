"""The real disk.

Every file is made with mode 0600 and every directory with 0700.  Errors of the operating system are
turned into ours, so that callers branch on what to do next and not on errno.
"""

import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from latewood.errors import DiskFull, LatewoodError, Locked, NotFoundError, ReadOnlyError, StorageError
from latewood.fs.calls import SYNC, pwrite_all, sync_and_note
from latewood.fs.fork import close_after_fork

if TYPE_CHECKING:
    from latewood.fs.base import File

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_AROUND_BYTES = 64 * 1024
"""A fault brings so much into the page table, of what is in the page cache."""
_HEAD_BYTES = 8
_PIECE_BYTES = 64 * 1024
"""What is longer is written in such pieces: larger ones become large folios, which a later sync writes whole."""


_SMALL_BYTES = 8 << 20
"""A file below this is one of many: what is written to it comes page by page, and nothing is read ahead of that.  Else
the first byte would have the kernel make zeros of the whole file, or of as much as it reads ahead."""


def _translated(error: OSError, path: Path) -> LatewoodError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path}: {reason}; free some space and try again")
    if error.errno == errno.EFBIG:
        return DiskFull(f"{path}: {reason}; raise the limit (`ulimit -f`), or use a smaller segment_bytes_max")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFoundError(f"{path}: {reason}")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyError(f"{path}: {reason}; check its owner and mode")
    return StorageError(f"{path}: {reason}")


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(error, path) from error


class PosixMapping:
    """A shared mapping of a file's first bytes."""

    def __init__(self, descriptor: int, length: int, *, writable: bool) -> None:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._mmap = mmap.mmap(descriptor, length, access=access)
        if writable and length < _SMALL_BYTES:
            self._mmap.madvise(mmap.MADV_RANDOM)
        self.view = memoryview(self._mmap)

    def load(self, start: int, stop: int) -> None:
        """Put these pages into the page table, a fault for each stretch; MADV_POPULATE_READ visits every page."""
        sum(self.view[start : min(stop, len(self._mmap)) : _AROUND_BYTES])

    def unload(self, start: int, stop: int) -> None:
        """Take whole pages out of the page table, all at once; touching them brings them back.

        A sync that finds a page there write-protects it, and must tell every processor that runs this process: that
        costs more than writing it.
        """
        first, end = start // mmap.PAGESIZE * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
        if first < end:
            self._mmap.madvise(mmap.MADV_DONTNEED, first, end - first)

    def close(self) -> None:
        """Unmap, or leave that to the last view of it."""
        with suppress(BufferError):
            self.view.release()
            self._mmap.close()


class PosixFile:
    """One file descriptor."""

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self._was_cut = False
        with _errors_of(path):
            self._descriptor = os.open(path, flags, _FILE_MODE)

    def size(self) -> int:
        """Return its length in bytes."""
        with _errors_of(self.path):
            return os.fstat(self._descriptor).st_size

    def stamp(self) -> str:
        """Return inode, size and time of the last change, which no program can set."""
        with _errors_of(self.path):
            status = os.fstat(self._descriptor)
        return f"{status.st_ino:x}-{status.st_size:x}-{status.st_ctime_ns:x}"

    def pread(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes at `offset`; fewer only at the end of the file."""
        parts = []
        with _errors_of(self.path):
            while length > 0 and (part := os.pread(self._descriptor, length, offset)):
                parts.append(part)
                length -= len(part)
                offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""
        self._pwrite(data, offset, 0)

    def pwrite_head_last(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`, its first 8 bytes after everything else."""
        self._pwrite(data, offset, _HEAD_BYTES)

    def _pwrite(self, data: bytes | bytearray | memoryview, offset: int, head_bytes: int) -> None:
        if number := pwrite_all(self._descriptor, data, offset, _PIECE_BYTES, head_bytes):
            raise _translated(OSError(number, os.strerror(number)), self.path)

    def allocate(self, size: int) -> None:
        """Grow to `size` bytes of zeros that the disk has promised room for."""
        with _errors_of(self.path):
            os.posix_fallocate(self._descriptor, 0, size)

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros, to `size` bytes."""
        with _errors_of(self.path):
            os.ftruncate(self._descriptor, size)
        self._was_cut = True

    def sync(self) -> None:
        """Make contents and length durable."""
        try:
            if self._was_cut:  # fdatasync need not make a smaller size durable.
                os.fsync(self._descriptor)
                self._was_cut = False
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise _translated(error, self.path) from error

    def sync_and_note(self, note: "File", data: bytes, *, durable: bool) -> None:
        """Do three things in order: `sync`, write `data` at the front of `note`, and if asked sync that too."""
        if not isinstance(note, PosixFile):
            raise TypeError("both files must be on the same file system")
        step, number = sync_and_note(self._descriptor, self._was_cut, note._descriptor, data, durable)  # noqa: SLF001 - one module, one owner of descriptors
        if step:
            raise _translated(OSError(number, os.strerror(number)), self.path if step == SYNC else note.path)
        self._was_cut = False

    def data_end(self, start: int, stop: int) -> int:
        """Return where, as far as the file system knows without reading, only zeros follow up to `stop`."""
        end = start
        try:
            while start < stop:
                start = os.lseek(self._descriptor, start, os.SEEK_DATA)
                if start < stop:
                    start = os.lseek(self._descriptor, start, os.SEEK_HOLE)
                    end = min(start, stop)
        except OSError as error:
            return end if error.errno == errno.ENXIO else stop  # No data any more, or a file system that cannot tell.
        return end

    def map(self, length: int, *, writable: bool) -> PosixMapping:
        """Map the first `length` bytes."""
        with _errors_of(self.path):
            return PosixMapping(self._descriptor, length, writable=writable)

    def close(self) -> None:
        """Close the descriptor once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class PosixLock:
    """An flock: the kernel drops it with the process, so a dead holder never blocks."""

    def __init__(self, path: Path) -> None:
        self._file = PosixFile(path, os.O_RDWR | os.O_CREAT)
        descriptor = self._file._descriptor  # noqa: SLF001 - one module, one owner of descriptors
        try:
            with _errors_of(path):
                self._take(path, descriptor)
            with suppress(DiskFull):  # Who holds it is told to others, and is no part of holding it.
                self._file.pwrite(f"{os.getpid():<19}\n".encode(), 0)
        except BaseException:
            self._file.close()  # And with it the lock, which a caller who tries again would find taken.
            raise
        # A child of fork inherits the descriptor; left open there, the lock would outlive the parent.
        close_after_fork(self)

    def _take(self, path: Path, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._file.pread(20, 0).strip(b"\0\n ")
            raise Locked(path, int(holder) if holder.isdigit() else 0) from None

    def close(self) -> None:
        """Give the lock up, also on behalf of children that inherited it."""
        descriptor = self._file._descriptor  # noqa: SLF001 - one module, one owner of descriptors
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._file.close()

    def abandon_after_fork(self) -> None:
        """Close the child's descriptor; the parent's keeps the lock."""
        self._file.close()


class PosixFS:
    """The disk, through the operating system."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> PosixFile:
        """Open a file; `create` makes it if it is not there and implies `write`."""
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return PosixFile(path, flags | (os.O_CREAT if create else 0))

    def exists(self, path: Path) -> bool:
        """Say whether there is a file or directory."""
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:  # Not to be allowed to look is not the same as that nothing is there.
            raise _translated(error, path) from error
        return True

    def is_writable(self, path: Path) -> bool:
        """Say whether this process may create files in the directory `path`."""
        return os.access(path, os.W_OK) and not os.statvfs(path).f_flag & os.ST_RDONLY

    def list(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; none if there is no directory."""
        with _errors_of(path):
            return sorted(os.listdir(path)) if path.is_dir() else []

    def walk(self, path: Path) -> Iterator[Path]:
        """Yield every file under a directory, sorted within each directory."""
        for directory, directories, names in os.walk(path):
            directories.sort()
            for name in sorted(names):
                yield Path(directory, name)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents, durably, if it is not there."""
        with _errors_of(path):
            if path.is_dir():
                return
        self.make_directory(path.parent)
        with _errors_of(path):
            with suppress(FileExistsError):
                path.mkdir(_DIRECTORY_MODE)
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", str(path))
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with _errors_of(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` with `source`, atomically."""
        with _errors_of(target):
            source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with _errors_of(path):
            path.unlink()

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all that is in it, if it is there."""
        with _errors_of(path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def lock(self, path: Path) -> PosixLock:
        """Take the lock file at `path`."""
        return PosixLock(path)
