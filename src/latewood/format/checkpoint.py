"""`index.meta`: how far the open segment is durable, so that recovery scans only what came after.

`SIZE` bytes:

| offset | size | field              | type | meaning                                              |
| -----: | ---: | ------------------ | ---- | ---------------------------------------------------- |
|      0 |    8 | magic              | [u8] | "LWINDEX1"                                           |
|      8 |    2 | version            | u16  | 1                                                    |
|     10 |    1 | flush_failure_flag | u8   | 1: a flush of this segment failed                    |
|     11 |    1 | reserved           | u8   | 0                                                    |
|     12 |    4 | checksum           | u32  | CRC-32C of these 96 bytes, this field as zero        |
|     16 |    8 | segment_id         | u64  | the open segment                                     |
|     24 |    8 | write_offset       | u64  | every record before this byte is durable             |
|     32 |    8 | reserved_end       | u64  | no byte of a record was ever written from here on    |
|     40 |    8 | record_count       | u64  | records of this segment before write_offset          |
|     48 |    8 | first_timestamp    | u64  | timestamp of the segment's first record              |
|     56 |    8 | last_timestamp     | u64  | timestamp of the last record before write_offset     |
|     64 |    8 | max_timestamp      | u64  | largest timestamp in the log before write_offset     |
|     72 |    8 | min_ext_id         | u64  | smallest ext_id before write_offset                  |
|     80 |    8 | max_ext_id         | u64  | largest ext_id before write_offset                   |
|     88 |    8 | durable_sequence   | u64  | sequence of the record that write_offset begins      |

Little-endian.  Advisory: without it the whole open segment is scanned.  Written in place, within one disk
sector, so a power cut leaves the old or the new one.  Format: docs/format/checkpoint.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.format.checked import Frame

SIZE: Final = 96
VERSION: Final = 1
_MAGIC: Final = b"LWINDEX1"
_LAYOUT: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "B"  # flush_failure_flag
    "B"  # reserved
    "I"  # checksum
    "Q"  # segment_id
    "Q"  # write_offset
    "Q"  # reserved_end
    "Q"  # record_count
    "Q"  # first_timestamp
    "Q"  # last_timestamp
    "Q"  # max_timestamp
    "Q"  # min_ext_id
    "Q"  # max_ext_id
    "Q"  # durable_sequence
)
assert _LAYOUT.size == SIZE
_FRAME: Final = Frame("checkpoint", _MAGIC, VERSION, 8, 2, 12, SIZE)


class Checkpoint(NamedTuple):
    """One decoded checkpoint."""

    segment_id: int
    write_offset: int
    reserved_end: int
    record_count: int
    first_timestamp: int
    last_timestamp: int
    max_timestamp: int
    min_ext_id: int
    max_ext_id: int
    durable_sequence: int
    flush_failure_flag: bool = False


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the checkpoint's 96 bytes."""
    raw = _LAYOUT.pack(_MAGIC, VERSION, checkpoint.flush_failure_flag, 0, 0, *checkpoint[:10])
    return _FRAME.sign(raw)


def decode(raw: bytes, path: Path) -> Checkpoint:
    """Return the checkpoint in `raw`.

    Raises:
        CorruptError: it is not a sound checkpoint.
        UnsupportedVersion: a later program wrote it.
    """
    _FRAME.check(raw, path)
    fields = _LAYOUT.unpack_from(raw)
    return Checkpoint._make((*fields[5:], bool(fields[2])))
