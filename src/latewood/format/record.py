"""Record header: the 24 bytes in front of every payload.

`SIZE` bytes:

| offset | size | field        | type | meaning                                              |
| -----: | ---: | ------------ | ---- | ---------------------------------------------------- |
|      0 |    4 | length       | u32  | payload bytes, this header not counted               |
|      4 |    4 | checksum     | u32  | CRC-32C, seeded with length, of bytes 8..24 + payload |
|      8 |    8 | timestamp_ns | u64  | append time, nanoseconds since 1970                  |
|     16 |    8 | ext_id       | u64  | caller's id, e.g. a Raft index; 0: none              |

Little-endian.  Records begin at multiples of 8 and are padded with zeros.  The checksum is stored last and
is never 0, so a checksum of 0 means that nothing was committed here.  Packing and scanning are the kernel's.
Format: docs/format/record.md
"""

from typing import Final

SIZE: Final = 24
ALIGNMENT: Final = 8
SEAL_LENGTH: Final = 0xFFFF_FFFF
"""The length that no record has: it marks the seal block."""


def record_bytes(payload_bytes: int) -> int:
    """Return how many bytes a record takes on disk."""
    return SIZE + (payload_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def payload_bytes_max(room: int) -> int:
    """Return the largest payload whose record fits `room` bytes."""
    return room // ALIGNMENT * ALIGNMENT - SIZE
