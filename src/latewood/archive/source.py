"""Bytes that can be read at any place: a file, an encrypted file seen through its key, an object in a tier."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from latewood.errors import CorruptError
from latewood.fs import FileSystem
from latewood.kernel import crc32c
from latewood.limits import TIER_PIECE_BYTES


class Source(Protocol):
    """Bytes of a known length.  Not thread-safe."""

    path: Path
    """What errors name."""
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes at `offset`.

        Raises:
            CorruptError: there are fewer, or they are not what was written.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Digest(NamedTuple):
    """What tells one file or object from another: length, and CRC-32C of all bytes."""

    size: int
    checksum: int


class FileSource:
    """A file, which nobody changes."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        """Open it.

        Raises:
            NotFoundError: there is none.
        """
        self.path = path
        self._file = fs.open(path)
        self.size = self._file.size()

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes at `offset`."""
        data = self._file.pread(length, offset)
        if len(data) != length:
            raise CorruptError("the file ends too early", self.path, offset + len(data))
        return data

    def stamp(self) -> str:
        """Return what is another text once the file was changed or replaced."""
        return self._file.stamp()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class BytesSource:
    """Bytes in memory."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.path, self.size, self._data = path, len(data), data

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes at `offset`."""
        data = self._data[offset : offset + length]
        if len(data) != length:
            raise CorruptError("it ends too early", self.path, offset + len(data))
        return data

    def close(self) -> None:
        """Nothing is held."""


def pieces(source: Source, piece_bytes: int = TIER_PIECE_BYTES) -> Iterator[bytes]:
    """Yield all bytes of a source in order, a bounded part at a time."""
    for offset in range(0, source.size, piece_bytes):
        yield source.read(offset, min(piece_bytes, source.size - offset))


def digest_of(source: Source) -> Digest:
    """Return length and checksum of a source, reading all of it in flat memory."""
    checksum = 0
    for piece in pieces(source):
        checksum = crc32c(piece, checksum)
    return Digest(source.size, checksum)
