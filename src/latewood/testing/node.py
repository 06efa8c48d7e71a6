"""What an in-memory disk is made of: inodes that hold bytes, and directories that hold names.

An inode's bytes live in one block of memory that every mapping of it shares.  The block never moves
while a view of it is alive: growth past its room is refused then, where a real disk would go on.
`Inode` keeps room to spare, so that only a file that more than doubles under a mapping meets this.

Invariant: bytes between an inode's size and the end of its memory mean nothing; growing zeroes them.
"""

import mmap
from dataclasses import dataclass, field
from typing import Final

from latewood.errors import StorageError
from latewood.limits import KiB

_ROOM_MIN: Final = 64 * KiB
"""Files of tests are about this large: most never outgrow their first memory."""

_LAZY_MIN: Final = 256 * KiB
"""From here on the kernel hands out zero pages as they are touched; a bytearray would fill them all."""


class Inode:
    """One file's bytes, whatever its names.

    Content that nobody has written to or mapped yet stays an immutable `bytes`, shared between disks,
    which makes the thousands of survivors of a crash test cheap.
    """

    __slots__ = ("__weakref__", "_frozen", "_memory", "_used", "size")

    def __init__(self, content: bytes = b"") -> None:
        self.size = len(content)
        self._used = self.size  # the largest size so far: memory beyond it is still zero
        self._frozen: bytes | None = content
        self._memory: bytearray | mmap.mmap = bytearray()

    def read(self, length: int, offset: int) -> bytes:
        """Return what there is of `length` bytes at `offset`."""
        stop = max(offset, min(self.size, offset + length))
        if self._frozen is not None:
            return self._frozen[offset:stop]
        with memoryview(self._memory) as view:
            return bytes(view[offset:stop])

    def content(self) -> bytes:
        """Return all the bytes; the same object again for as long as nothing could have changed them."""
        return self.read(self.size, 0) if self._frozen is None else self._frozen

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write `data` at `offset`, growing as need be."""
        source = memoryview(data).cast("B")
        if not source:
            return
        self.resize(max(self.size, offset + len(source)))
        with memoryview(self._memory) as view:
            view[offset : offset + len(source)] = source

    def resize(self, size: int) -> None:
        """Cut to `size` bytes, or grow to them with zeros.

        Raises:
            StorageError: it would have to move to a larger memory, and a mapping is alive.
        """
        self._thaw(size)
        low, high = sorted((self.size, min(size, self._used)))
        with memoryview(self._memory) as view:
            view[low:high] = bytes(high - low)
        self.size, self._used = size, max(size, self._used)

    def view(self, length: int) -> memoryview:
        """Return the first `length` bytes themselves, not a copy."""
        self._thaw(self.size)
        return memoryview(self._memory)[:length]

    def _thaw(self, size: int) -> None:
        if self._frozen is None and size <= len(self._memory):
            return
        content = self.content()
        self._retire_memory()
        room = max(_ROOM_MIN, 2 * size, 2 * len(content))
        memory = mmap.mmap(-1, room) if room >= _LAZY_MIN else bytearray(room)
        memory[: len(content)] = content
        self._memory, self._frozen, self._used = memory, None, len(content)

    def _retire_memory(self) -> None:
        try:
            # Both refuse while a view is exported, which is the question asked here.
            self._memory.close() if isinstance(self._memory, mmap.mmap) else self._memory.clear()
        except BufferError:
            raise StorageError(
                f"a file in memory cannot grow past {len(self._memory):,} bytes while it is mapped; "
                f"allocate it before mapping it, or close the mapping and drop its views"
            ) from None


@dataclass(slots=True, eq=False)
class Directory:
    """Names, as a running program sees them."""

    entries: dict[str, "Inode | Directory"] = field(default_factory=dict)


Node = Inode | Directory
