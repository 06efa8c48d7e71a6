"""The open things of a file system in memory: a file, a mapping, a lock."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from latewood.errors import StorageError
from latewood.kernel import crc32c
from latewood.testing.node import Inode, Node

if TYPE_CHECKING:
    from latewood.fs import File
    from latewood.testing.mem_fs import MemFS


class MemMapping:
    """A view of the very memory that the file's reads, writes and other mappings use."""

    def __init__(self, inode: Inode, length: int, *, writable: bool) -> None:
        view = inode.view(length)
        self.view = view if writable else view.toreadonly()

    def load(self, start: int, stop: int) -> None:
        """Everything is loaded."""

    def unload(self, start: int, stop: int) -> None:
        """Nothing can be unloaded."""

    def close(self) -> None:
        """Release the view, so that a use after this raises; slices of it live on."""
        with suppress(BufferError):
            self.view.release()


class MemFile:
    """One open file.  It holds the inode, so it outlives the name.  Any thread may call `sync`."""

    def __init__(self, fs: "MemFS", path: Path, inode: Inode, *, writable: bool) -> None:
        self.path = path
        self._fs, self._inode, self._writable = fs, inode, writable
        self._closed = self._is_locked = False

    def size(self) -> int:
        """Return its length in bytes."""
        return self._open_inode().size

    def stamp(self) -> str:
        """Return size and checksum."""
        content = self._open_inode().content()
        return f"{len(content):x}-{crc32c(content):08x}"

    def pread(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes at `offset`; fewer only at the end of the file."""
        with self._fs.reading("pread", self.path):
            data = self._open_inode().read(length, offset)
            self._fs.counts.preads += 1
            self._fs.counts.bytes_read += len(data)
            return data

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`, or nothing of it."""
        inode, length = self._open_inode(write=True), memoryview(data).nbytes
        with self._fs.changing("pwrite", self.path):
            self._fs.check_room(self.path, offset + length - inode.size if length else 0)
            self._fs.touch(inode, offset, offset + length)
            inode.write(data, offset)
            self._fs.counts.writes += 1
            self._fs.counts.bytes_written += length

    def pwrite_head_last(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`, its first 8 bytes after everything else."""
        view = memoryview(data)
        self.pwrite(view[8:], offset + 8)
        self.pwrite(view[:8], offset)

    def allocate(self, size: int) -> None:
        """Grow to `size` bytes of zeros; never shrinks."""
        inode = self._open_inode(write=True)
        with self._fs.changing("allocate", self.path):
            self._fs.check_room(self.path, size - inode.size)
            self._fs.touch(inode, inode.size, size)
            inode.resize(max(size, inode.size))
            self._fs.counts.allocations += 1

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros, to `size` bytes.  Growing takes no room, as a sparse file does not."""
        inode = self._open_inode(write=True)
        with self._fs.changing("truncate", self.path):
            self._fs.touch(inode, *sorted((inode.size, size)))
            inode.resize(size)
            self._fs.counts.truncations += 1

    def sync(self) -> None:
        """Make contents and length durable."""
        self._fs.sync_file(self.path, self._open_inode())

    def sync_and_note(self, note: "File", data: bytes, *, durable: bool) -> None:
        """Do three things in order: `sync`, write `data` at the front of `note`, and if asked sync that too."""
        self.sync()
        note.pwrite(data, 0)
        if durable:
            note.sync()

    def data_end(self, start: int, stop: int) -> int:
        """Return `stop`: this file system cannot tell."""
        del start
        return stop

    def map(self, length: int, *, writable: bool) -> MemMapping:
        """Map the first `length` bytes, which must exist."""
        inode = self._open_inode(write=writable)
        with self._fs.reading("map", self.path):
            if not 0 < length <= inode.size:
                raise ValueError(f"{self.path}: {length} bytes of {inode.size} cannot be mapped")
            if writable:
                self._fs.share(inode)
            self._fs.counts.maps += 1
            self._fs.counts.bytes_mapped += length
            return MemMapping(inode, length, writable=writable)

    def lock(self) -> None:
        """Lock it until it is closed."""
        self._fs.lock_open_file(self.path, self._open_inode(write=True))
        self._is_locked = True

    def close(self) -> None:
        """Close it, once: a second close must not free the next holder's lock.  Mappings live on."""
        self._closed = True
        if self._is_locked:
            self._is_locked = False
            self._fs.unlock_open_file(self._inode)

    def _open_inode(self, *, write: bool = False) -> Inode:
        if self._closed:
            raise StorageError(f"{self.path}: the file is closed")
        if write and not self._writable:
            raise StorageError(f"{self.path}: the file was opened to read")
        return self._inode


class MemLock:
    """One or more nodes that are locked: a lock file, and perhaps the directory around it."""

    def __init__(self, fs: "MemFS", path: Path, nodes: tuple[Node, ...], held: set[Node]) -> None:
        self.path = path
        self._fs, self._nodes, self._held = fs, nodes, held
        self._closed = False
        held.update(nodes)

    def check(self) -> None:
        """Raise DirectoryReplaced if the lock file was removed or replaced."""
        self._fs.check_named(self.path.parent, self.path, self._nodes[0])

    def close(self) -> None:
        """Give it up, once: a second close must not free the next holder's lock."""
        if not self._closed:
            self._closed = True
            self._held.difference_update(self._nodes)
