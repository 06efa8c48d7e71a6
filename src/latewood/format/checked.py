"""What all our fixed-size structures share: magic, version, and a checksum over the whole.

The checksum is CRC-32C of all the structure's bytes with the checksum's own four bytes as zero.  The
version is looked at before the checksum and before any other field, because a later version may put
these elsewhere: unknown is not corrupt.
"""

from pathlib import Path
from typing import NamedTuple

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.kernel import crc32c


class Frame(NamedTuple):
    """How one kind of structure proves that it is one."""

    what: str
    magic: bytes
    version: int
    version_offset: int
    version_bytes: int
    checksum_offset: int
    size: int

    def sign(self, raw: bytes) -> bytes:
        """Return `raw` with its checksum filled in."""
        at = self.checksum_offset
        return raw[:at] + self._checksum(raw).to_bytes(4, "little") + raw[at + 4 :]

    def check(self, raw: bytes, path: Path, offset: int = 0) -> None:
        """Raise unless `raw` is a whole and sound structure of a version we know.

        Raises:
            CorruptError: it is not.
            UnsupportedVersion: a later program wrote it.
        """
        version_end = self.version_offset + self.version_bytes
        if raw[: len(self.magic)] != self.magic or len(raw) < version_end:
            reason = f"no {self.what} here"
            raise CorruptError(reason, path, offset)
        version = int.from_bytes(raw[self.version_offset : version_end], "little")
        if version == 0:  # There never was one: a power cut kept the sector of the magic and lost the next.
            reason = f"the {self.what} was not written completely"
            raise CorruptError(reason, path, offset)
        if version != self.version:
            raise UnsupportedVersion(self.what, version, path)
        if len(raw) < self.size:
            reason = f"the {self.what} is cut short at {len(raw)} of {self.size} bytes"
            raise CorruptError(reason, path, offset)
        self._check_checksum(raw[: self.size], path, offset)

    def _check_checksum(self, raw: bytes, path: Path, offset: int) -> None:
        at = self.checksum_offset
        stored = int.from_bytes(raw[at : at + 4], "little")
        if stored != self._checksum(raw):
            reason = f"the {self.what}'s checksum does not match"
            raise CorruptError(reason, path, offset)

    def _checksum(self, raw: bytes) -> int:
        at = self.checksum_offset
        return crc32c(raw[:at] + b"\0\0\0\0" + raw[at + 4 :])
