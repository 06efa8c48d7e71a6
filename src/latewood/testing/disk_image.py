"""One state of a disk, told as differences from what was synced, so that thousands of them fit in memory."""

from functools import cached_property
from typing import Final

from latewood.testing.node import Directory, Inode, Node


class FileImage:
    """A file's content: a base, some sectors that differ, and a length."""

    def __init__(self, base: bytes, length: int, sector_bytes: int, sectors: tuple[tuple[int, bytes], ...]) -> None:
        self._base, self._length = base, length
        self._sector_bytes, self._sectors = sector_bytes, sectors

    @cached_property
    def fingerprint(self) -> int:
        """Equal contents have equal ones; 64 bits, so for all that tests will see, unequal ones differ."""
        return hash(self.content())

    def content(self) -> bytes:
        """Return the bytes: what lies beyond the length is cut, what nothing was said about is zero."""
        if not self._sectors and self._length == len(self._base):
            return self._base
        content = bytearray(self._base.ljust(self._length, b"\0"))
        for index, sector in self._sectors:
            start = index * self._sector_bytes
            content[start : start + self._sector_bytes] = sector
        return bytes(content[: self._length])


class DirectoryImage:
    """The names in a directory, and what they point at."""

    def __init__(self, entries: dict[str, "FileImage | DirectoryImage"]) -> None:
        self.entries: Final = entries

    @cached_property
    def fingerprint(self) -> int:
        """Equal trees have equal ones."""
        return hash(frozenset((name, image.fingerprint) for name, image in self.entries.items()))


Image = FileImage | DirectoryImage


def load(image: DirectoryImage) -> Directory:
    """Return a fresh tree with this content; two names of one file are two names of one inode again."""
    made: dict[Image, Node] = {}
    return _load_directory(image, made)


def _load_directory(image: DirectoryImage, made: dict[Image, Node]) -> Directory:
    return Directory({name: _load(child, made) for name, child in image.entries.items()})


def _load(image: Image, made: dict[Image, Node]) -> Node:
    if image not in made:
        made[image] = Inode(image.content()) if isinstance(image, FileImage) else _load_directory(image, made)
    return made[image]
