"""One open file of the real disk, and its mapping."""

import errno
import fcntl
import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latewood.errors import Locked
from latewood.forking import close_after_fork, no_fork
from latewood.fs.calls import SYNC, pwrite_all, sync_and_note
from latewood.fs.failures import errors_of, translated
from latewood.fs.root import Identity, Root, identity_of, lent

if TYPE_CHECKING:
    from latewood.fs.base import File

_FILE_MODE = 0o600
_AROUND_BYTES = 64 * 1024
"""A fault brings so much into the page table, of what is in the page cache."""
_HEAD_BYTES = 8
_PIECE_BYTES = 64 * 1024
"""What is longer is written in such pieces: larger ones become large folios, which a later sync writes whole."""
_LOCK: Final = struct.Struct("hhqqi0q")
"""The system's `struct flock`: type, whence, start, length, process."""
_LOCKED_AT: Final = 1 << 62
"""The byte that is locked lies behind every file: some network file systems refuse to read a byte that is locked."""
_NO_LOCKS: Final = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EOVERFLOW}
"""The system's errors where files cannot be locked so."""
_SMALL_BYTES = 8 << 20
"""A file below this is one of many: what is written to it comes page by page, and nothing is read ahead of that.  Else
the first byte would have the kernel make zeros of the whole file, or of as much as it reads ahead."""


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

    def __init__(self, path: Path, flags: int, root: Root | None = None) -> None:
        """Open the file at `path`, through the directory that is held open if there is one."""
        self.path = path
        self._was_cut = self._is_locked = False
        with errors_of(path), lent(root, path) as (name, descriptor):
            self._descriptor = os.open(name, flags, _FILE_MODE, dir_fd=descriptor)

    def fileno(self) -> int:
        """Return the descriptor, for whoever locks it; -1 once the file is closed."""
        return self._descriptor

    def identity(self) -> Identity:
        """Return what tells this file from every other."""
        with errors_of(self.path):
            return identity_of(os.fstat(self._descriptor))

    def size(self) -> int:
        """Return its length in bytes."""
        with errors_of(self.path):
            return os.fstat(self._descriptor).st_size

    def stamp(self) -> str:
        """Return inode, size and time of the last change, which no program can set."""
        with errors_of(self.path):
            status = os.fstat(self._descriptor)
        return f"{status.st_ino:x}-{status.st_size:x}-{status.st_ctime_ns:x}"

    def pread(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes at `offset`; fewer only at the end of the file."""
        parts = []
        with errors_of(self.path):
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
            raise translated(OSError(number, os.strerror(number)), self.path)

    def allocate(self, size: int) -> None:
        """Grow to `size` bytes of zeros that the disk has promised room for."""
        with errors_of(self.path):
            os.posix_fallocate(self._descriptor, 0, size)

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros, to `size` bytes."""
        with errors_of(self.path):
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
            raise translated(error, self.path) from error

    def sync_and_note(self, note: "File", data: bytes, *, durable: bool) -> None:
        """Do three things in order: `sync`, write `data` at the front of `note`, and if asked sync that too."""
        if not isinstance(note, PosixFile):
            raise TypeError("both files must be on the same file system")
        step, number = sync_and_note(self._descriptor, self._was_cut, note._descriptor, data, durable)  # noqa: SLF001 - one module, one owner of descriptors
        if step:
            raise translated(OSError(number, os.strerror(number)), self.path if step == SYNC else note.path)
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

    def lock(self) -> None:
        """Lock it until it is closed.  Unlike a lock of the process, it does not end with another open file of it."""
        with no_fork():  # A child that did not know of it would hold it for as long as it lives.
            self._is_locked = self._range_lock(fcntl.F_WRLCK)
            if self._is_locked:
                close_after_fork(self)

    def abandon_after_fork(self) -> None:
        """Close the child's descriptor; the parent's keeps the lock."""
        self._is_locked = False
        self.close()

    def _range_lock(self, kind: int) -> bool:
        """Set or end the lock; say whether the platform and the file system have such locks."""
        command = getattr(fcntl, "F_OFD_SETLK", None)  # Linux has it.
        if command is None:
            return False
        try:
            fcntl.fcntl(self._descriptor, command, _LOCK.pack(kind, os.SEEK_SET, _LOCKED_AT, 1, 0))
        except (BlockingIOError, PermissionError):
            raise Locked(self.path, 0) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise translated(error, self.path) from error
            return False
        return True

    def map(self, length: int, *, writable: bool) -> PosixMapping:
        """Map the first `length` bytes."""
        with errors_of(self.path):
            return PosixMapping(self._descriptor, length, writable=writable)

    def close(self) -> None:
        """Close the descriptor once, and give its lock up, also on behalf of children that inherited it."""
        try:
            if self._is_locked:
                self._is_locked = False
                self._range_lock(fcntl.F_UNLCK)
        finally:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
