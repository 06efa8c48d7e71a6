"""Crash-safe writes that know nothing of what the bytes mean.

`replace_file` swaps a whole small file.  `DualSlot` keeps two copies of a larger one and a one-byte
pointer to the current copy.  Every step is listed in docs/crash-safety.md.
"""

from pathlib import Path
from typing import Final

from latewood.fs.base import File, FileSystem

SLOTS: Final = (1, 2)


def replace_file(fs: FileSystem, path: Path, data: bytes) -> None:
    """Make `path` hold exactly `data`, durably; after a crash it holds the old bytes or the new."""
    temporary = path.with_name(path.name + ".tmp")
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()  # 1. The new bytes are durable under a name that nobody reads.
    finally:
        file.close()
    fs.rename(temporary, path)  # 2. One name, either file.
    fs.sync_directory(path.parent)  # 3. The rename is durable.


class DualSlot:
    """`<name>.1`, `<name>.2`, and `<name>.current`: one byte that says which of them counts.

    The pointer is written in place and never truncated, so there is no moment without one.
    """

    def __init__(self, fs: FileSystem, directory: Path, name: str) -> None:
        self._fs = fs
        self._directory = directory
        self._pointer = directory / f"{name}.current"
        self._slots = {slot: directory / f"{name}.{slot}" for slot in SLOTS}

    def path(self, slot: int) -> Path:
        """Return the file of a slot."""
        return self._slots[slot]

    @property
    def pointer_path(self) -> Path:
        """The one-byte file."""
        return self._pointer

    def current(self) -> int | None:
        """Return the byte in the pointer: a slot, some other number, or None if there is none."""
        if not self._fs.exists(self._pointer):
            return None
        file = self._fs.open(self._pointer)
        try:
            byte = file.pread(1, 0)
        finally:
            file.close()
        return byte[0] if byte else None

    def read(self, slot: int, length_max: int) -> bytes:
        """Return the bytes of a slot, at most `length_max` + 1 of them."""
        file = self._fs.open(self._slots[slot])
        try:
            return file.pread(min(file.size(), length_max + 1), 0)
        finally:
            file.close()

    def write(self, slot: int, pieces: list[tuple[int, bytes]], size: int) -> None:
        """Write pieces at their offsets into a slot that is not current, cut it to `size`, and sync it."""
        known = self._fs.exists(self._slots[slot])
        file = self._fs.open(self._slots[slot], create=True)
        try:
            for offset, data in pieces:
                file.pwrite(data, offset)
            file.truncate(size)
            file.sync()
        finally:
            file.close()
        if not known:
            self._fs.sync_directory(self._directory)

    def publish(self, slot: int) -> None:
        """Make a written slot the current one, durably."""
        known = self._fs.exists(self._pointer)
        file = self._fs.open(self._pointer, create=True)
        try:
            self._write_pointer(file, slot)
        finally:
            file.close()
        if not known:
            self._fs.sync_directory(self._directory)

    @staticmethod
    def _write_pointer(file: File, slot: int) -> None:
        file.pwrite(bytes([slot]), 0)
        file.sync()
