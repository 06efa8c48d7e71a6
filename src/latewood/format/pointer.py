"""`segments/current.sealed`: the latest sealed segment, where replay resumes.

`SIZE` bytes:

| offset | size | field                 | type | meaning                                       |
| -----: | ---: | --------------------- | ---- | --------------------------------------------- |
|      0 |    8 | magic                 | [u8] | "LWCURSLD"                                    |
|      8 |    2 | version               | u16  | 1                                             |
|     10 |    1 | flush_failure_flag    | u8   | as in that segment's footer                   |
|     11 |    1 | reserved              | u8   | 0                                             |
|     12 |    4 | checksum              | u32  | CRC-32C of these 40 bytes, this field as zero |
|     16 |    8 | segment_id            | u64  | the latest sealed segment                     |
|     24 |    8 | coordinator_watermark | u64  | as in that segment's footer                   |
|     32 |    8 | durable_bytes         | u64  | as in that segment's footer                   |

Little-endian.  Advisory: a missing or stale one is warned of and written again.  Format: docs/format/pointer.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.format.checked import Frame

SIZE: Final = 40
VERSION: Final = 1
_MAGIC: Final = b"LWCURSLD"
_LAYOUT: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "B"  # flush_failure_flag
    "B"  # reserved
    "I"  # checksum
    "Q"  # segment_id
    "Q"  # coordinator_watermark
    "Q"  # durable_bytes
)
assert _LAYOUT.size == SIZE
_FRAME: Final = Frame("sealed pointer", _MAGIC, VERSION, 8, 2, 12, SIZE)


class SealedPointer(NamedTuple):
    """One decoded pointer."""

    segment_id: int
    coordinator_watermark: int
    durable_bytes: int
    flush_failure_flag: bool = False


def encode(pointer: SealedPointer) -> bytes:
    """Return the pointer's 40 bytes."""
    raw = _LAYOUT.pack(_MAGIC, VERSION, pointer.flush_failure_flag, 0, 0, *pointer[:3])
    return _FRAME.sign(raw)


def decode(raw: bytes, path: Path) -> SealedPointer:
    """Return the pointer in `raw`.

    Raises:
        CorruptError: it is not a sound pointer.
        UnsupportedVersion: a later program wrote it.
    """
    _FRAME.check(raw, path)
    _, _, failed, _, _, segment_id, watermark, durable_bytes = _LAYOUT.unpack_from(raw)
    return SealedPointer(segment_id, watermark, durable_bytes, bool(failed))
