"""What a disk may hold of one file: every version of every sector since the last sync, and of its length.

Sectors are versioned one by one, because a disk writes them in any order.  The length is versioned apart
from them, because it lives in the inode.  A version is a sector at a step boundary, filled up with zeros;
what a program stores and overwrites between two boundaries is never seen.

Invariant: the last version of each sector, or else its synced one, is the sector in `known`.
"""

from collections.abc import Iterator
from typing import Final

_CHUNK_BYTES: Final = 4096
"""Compared at once, to skip what did not change; a multiple of every sector size."""


class FileHistory:
    """The synced content of one inode, and what was seen of it since."""

    __slots__ = ("_dropped", "known", "lengths", "sector_bytes", "sectors", "synced")

    def __init__(self, synced: bytes, sector_bytes: int) -> None:
        self.sector_bytes = sector_bytes
        self.synced = synced
        self.known = synced
        self.lengths: list[tuple[int, int]] = []
        """(time, length) since the last sync."""
        self.sectors: dict[int, list[tuple[int, bytes]]] = {}
        """(time, bytes) of each sector that changed since the last sync."""
        self._dropped: set[int] = set()

    def observe(self, content: bytes, now: int) -> bool:
        """Take note of the content at a step boundary; say whether it is news."""
        if content == self.known:
            return False
        if len(content) != len(self.known):
            self.lengths.append((now, len(content)))
        for index in self._suspects(content):
            version = self._sector(content, index)
            if version != self._latest(index):
                self.sectors.setdefault(index, []).append((now, version))
                self._dropped.discard(index)
        self.known = content
        return True

    def dirty(self, start: int, stop: int) -> None:
        """Take note of a write, which the kernel will pass on to the disk even if it changes nothing."""
        if self._dropped:
            self._dropped.difference_update(range(start // self.sector_bytes, -(-stop // self.sector_bytes)))

    def settle(self) -> None:
        """Make what is known durable: a sync succeeded.  Sectors that a failed one dropped stay in doubt."""
        synced = bytearray(self.known)
        for index in self._dropped:
            start = index * self.sector_bytes
            stop = min(start + self.sector_bytes, len(synced))
            synced[start:stop] = self.synced_sector(index)[: max(0, stop - start)]
        self.synced = bytes(synced) if self._dropped else self.known
        self.sectors = {index: self.sectors[index] for index in self._dropped}
        self.lengths = []

    def drop(self) -> None:
        """Take note of a failed sync: the kernel calls the pages clean now and never writes them again."""
        self._dropped.update(self.sectors)

    def synced_sector(self, index: int) -> bytes:
        """Return a sector as it was synced."""
        return self._sector(self.synced, index)

    def _suspects(self, content: bytes) -> Iterator[int]:
        """Yield the sectors that differ, and all that were added: their last version may be an old one."""
        size, known = self.sector_bytes, self.known
        for start in range(0, len(content), _CHUNK_BYTES):
            chunk = content[start : start + _CHUNK_BYTES]
            if chunk != known[start : start + _CHUNK_BYTES]:
                yield from range(start // size, -(-(start + len(chunk)) // size))

    def _sector(self, content: bytes, index: int) -> bytes:
        start = index * self.sector_bytes
        return content[start : start + self.sector_bytes].ljust(self.sector_bytes, b"\0")

    def _latest(self, index: int) -> bytes:
        versions = self.sectors.get(index)
        return versions[-1][1] if versions else self.synced_sector(index)
