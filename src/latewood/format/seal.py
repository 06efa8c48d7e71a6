"""Seal block: the mark that ends a segment's records, and the sparse index behind it.

`HEAD_SIZE` bytes, then the entries:

| offset | size | field        | type  | meaning                                                      |
| -----: | ---: | ------------ | ----- | ------------------------------------------------------------ |
|      0 |    4 | length       | u32   | 0xFFFFFFFF: a length that no record has                      |
|      4 |    4 | checksum     | u32   | CRC-32C, seeded with length, of all that follows; stored last |
|      8 |    4 | entry_count  | u32   | index entries                                                |
|     12 |    4 | interval     | u32   | records between two entries                                  |
|     16 |    8 | record_count | u64   | records in this segment                                      |

Then, for the records number 0, interval, 2 x interval, … of the segment, `ENTRY_SIZE` bytes each:

| offset | size | field         | type | meaning                                                 |
| -----: | ---: | ------------- | ---- | ------------------------------------------------------- |
|      0 |    8 | offset        | u64  | where the record begins in the file                     |
|      8 |    8 | max_timestamp | u64  | largest timestamp in the segment, at least, up to that record |

Little-endian.  It stands where the next record would, so whoever scans the records meets it and needs to look
nowhere else.  The footer follows at once.  Format: docs/format/seal.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CorruptError
from latewood.format.record import SEAL_LENGTH
from latewood.format.record import SIZE as RECORD_SIZE
from latewood.format.segment import FOOTER_SIZE, HEADER_SIZE
from latewood.kernel import crc32c

HEAD_SIZE: Final = 24
ENTRY_SIZE: Final = 16
_HEAD: Final = struct.Struct(
    "<"
    "I"  # length
    "I"  # checksum
    "I"  # entry_count
    "I"  # interval
    "Q"  # record_count
)
assert _HEAD.size == HEAD_SIZE


class SealHead(NamedTuple):
    """The decoded head of a seal block; field order is the order on disk."""

    checksum: int
    entry_count: int
    interval: int
    record_count: int


def tail_bytes_max(segment_bytes_max: int, interval: int) -> int:
    """Return the most bytes that seal block and footer of a segment can take."""
    records_max = (segment_bytes_max - HEADER_SIZE) // RECORD_SIZE
    return HEAD_SIZE + (records_max // interval + 1) * ENTRY_SIZE + FOOTER_SIZE


def encode(entries: bytes, interval: int, record_count: int) -> bytes:
    """Return the whole seal block."""
    body = _HEAD.pack(0, 0, len(entries) // ENTRY_SIZE, interval, record_count)[8:] + entries
    checksum = crc32c(body, SEAL_LENGTH) or 0xFFFF_FFFF
    return struct.pack("<II", SEAL_LENGTH, checksum) + body


def decode_head(raw: bytes, path: Path, offset: int) -> SealHead:
    """Return the head of a seal block, whose checksum is still to be checked.

    Raises:
        CorruptError: this is no seal block.
    """
    if len(raw) < HEAD_SIZE or int.from_bytes(raw[:4], "little") != SEAL_LENGTH:
        reason = "no seal block here"
        raise CorruptError(reason, path, offset)
    return SealHead(*_HEAD.unpack_from(raw)[1:])


def check(block: bytes, path: Path, offset: int) -> None:
    """Raise unless a whole seal block matches its checksum.

    Raises:
        CorruptError: it does not.
    """
    stored = int.from_bytes(block[4:8], "little")
    if stored != (crc32c(block[8:], SEAL_LENGTH) or 0xFFFF_FFFF):
        reason = "the seal block's checksum does not match"
        raise CorruptError(reason, path, offset)
