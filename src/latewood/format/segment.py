"""Segment header and footer: what one segment file says about itself.

A segment is header, records, seal block (docs/format/seal.md), footer.  The header is final from the first
record on; the footer is written exactly once, when the segment is sealed, and ends the file.

Header, `HEADER_SIZE` bytes:

| offset | size | field             | type | meaning                                          |
| -----: | ---: | ----------------- | ---- | ------------------------------------------------ |
|      0 |    8 | magic             | [u8] | "LWSEGMNT"                                       |
|      8 |    2 | version           | u16  | 1                                                |
|     10 |    2 | reserved          | u16  | 0                                                |
|     12 |    4 | segment_index     | u32  | this segment's id                                |
|     16 |    8 | base_offset       | u64  | record bytes in all segments before this one     |
|     24 |    8 | base_record_count | u64  | records before this one: its first sequence      |
|     32 |    4 | max_size          | u32  | header and records never pass this               |
|     36 |    4 | flags             | u32  | bit 0: keyed records                             |
|     40 |    8 | created_at        | i64  | nanoseconds since 1970                           |
|     48 |    8 | ext_id            | u64  | cohort shared by the segment's records; 0: none  |
|     56 |    4 | index_interval    | u32  | records between two index entries                |
|     60 |    4 | checksum          | u32  | CRC-32C of these 64 bytes, this field as zero    |

Footer, `FOOTER_SIZE` bytes:

| offset | size | field                 | type | meaning                                         |
| -----: | ---: | --------------------- | ---- | ----------------------------------------------- |
|      0 |    8 | magic                 | [u8] | "LWSEALED"                                      |
|      8 |    2 | version               | u16  | 1                                               |
|     10 |    1 | flush_failure_flag    | u8   | 1: a flush of this segment had failed           |
|     11 |    1 | reserved              | u8   | 0                                               |
|     12 |    4 | segment_index         | u32  | as in the header                                |
|     16 |    8 | ext_id                | u64  | as in the header                                |
|     24 |    8 | durable_bytes         | u64  | record bytes after base_offset, all durable     |
|     32 |    8 | record_count          | u64  | records in this segment                         |
|     40 |    8 | first_record_timestamp | i64 | timestamp of the first record                   |
|     48 |    8 | last_record_timestamp | i64  | timestamp of the last record                    |
|     56 |    8 | max_timestamp         | i64  | largest timestamp in the log up to here         |
|     64 |    8 | coordinator_watermark | u64  | operation-log sequence applied when sealing     |
|     72 |    8 | min_ext_id            | u64  | smallest ext_id of its records                  |
|     80 |    8 | max_ext_id            | u64  | largest ext_id of its records                   |
|     88 |    8 | index_offset          | u64  | where the seal block begins: the end of records |
|     96 |    4 | index_count           | u32  | index entries in the seal block                 |
|    100 |    4 | index_interval        | u32  | as in the header                                |
|    104 |    8 | base_record_count     | u64  | as in the header                                |
|    112 |    8 | sealed_at             | i64  | nanoseconds since 1970                          |
|    120 |    4 | reserved_2            | u32  | 0                                               |
|    124 |    4 | checksum              | u32  | CRC-32C of these 128 bytes, this field as zero  |

Little-endian.  Format: docs/format/segment.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.format.checked import Frame

HEADER_SIZE: Final = 64
FOOTER_SIZE: Final = 128
VERSION: Final = 1
FLAG_KEYED: Final = 1

_HEADER_MAGIC: Final = b"LWSEGMNT"
_HEADER: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "H"  # reserved
    "I"  # segment_index
    "Q"  # base_offset
    "Q"  # base_record_count
    "I"  # max_size
    "I"  # flags
    "q"  # created_at
    "Q"  # ext_id
    "I"  # index_interval
    "I"  # checksum
)
assert _HEADER.size == HEADER_SIZE

_FOOTER_MAGIC: Final = b"LWSEALED"
_FOOTER: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "B"  # flush_failure_flag
    "B"  # reserved
    "I"  # segment_index
    "Q"  # ext_id
    "Q"  # durable_bytes
    "Q"  # record_count
    "q"  # first_record_timestamp
    "q"  # last_record_timestamp
    "q"  # max_timestamp
    "Q"  # coordinator_watermark
    "Q"  # min_ext_id
    "Q"  # max_ext_id
    "Q"  # index_offset
    "I"  # index_count
    "I"  # index_interval
    "Q"  # base_record_count
    "q"  # sealed_at
    "I"  # reserved_2
    "I"  # checksum
)
assert _FOOTER.size == FOOTER_SIZE

_HEADER_FRAME: Final = Frame("segment header", _HEADER_MAGIC, VERSION, 8, 2, 60, HEADER_SIZE)
_FOOTER_FRAME: Final = Frame("segment footer", _FOOTER_MAGIC, VERSION, 8, 2, 124, FOOTER_SIZE)


class SegmentHeader(NamedTuple):
    """One decoded header; field order is the order on disk."""

    segment_index: int
    base_offset: int
    base_record_count: int
    max_size: int
    flags: int
    created_at: int
    ext_id: int
    index_interval: int


class SegmentFooter(NamedTuple):
    """One decoded footer; field order is the order on disk."""

    flush_failure_flag: bool
    segment_index: int
    ext_id: int
    durable_bytes: int
    record_count: int
    first_record_timestamp: int
    last_record_timestamp: int
    max_timestamp: int
    coordinator_watermark: int
    min_ext_id: int
    max_ext_id: int
    index_offset: int
    index_count: int
    index_interval: int
    base_record_count: int
    sealed_at: int

    @property
    def checksum(self) -> int:
        """The last four of its bytes: they tell this seal from any other, since it has a time of its own."""
        return int.from_bytes(encode_footer(self)[-4:], "little")


def encode_header(header: SegmentHeader) -> bytes:
    """Return the header's 64 bytes."""
    return _HEADER_FRAME.sign(_HEADER.pack(_HEADER_MAGIC, VERSION, 0, *header, 0))


def decode_header(raw: bytes, path: Path) -> SegmentHeader:
    """Return the header at the start of `raw`.

    Raises:
        CorruptError: it is not a sound header.
        UnsupportedVersion: a later program wrote it.
    """
    _HEADER_FRAME.check(raw, path)
    return SegmentHeader(*_HEADER.unpack_from(raw)[3:-1])


def encode_footer(footer: SegmentFooter) -> bytes:
    """Return the footer's 128 bytes."""
    raw = _FOOTER.pack(_FOOTER_MAGIC, VERSION, footer.flush_failure_flag, 0, *footer[1:], 0, 0)
    return _FOOTER_FRAME.sign(raw)


def decode_footer(raw: bytes, path: Path, offset: int) -> SegmentFooter:
    """Return the footer in `raw`, which was found at `offset`.

    Raises:
        CorruptError: it is not a sound footer.
        UnsupportedVersion: a later program wrote it.
    """
    _FOOTER_FRAME.check(raw, path, offset)
    fields = _FOOTER.unpack_from(raw)
    return SegmentFooter(bool(fields[2]), *fields[4:-2])
