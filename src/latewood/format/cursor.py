"""`readers/<name>.meta`: a reader's durable position, in two slots that take turns.

Slot, `SIZE` bytes; slot 0 is at byte 0 and slot 1 at byte 4096, so that no disk tears both:

| offset | size | field        | type | meaning                                       |
| -----: | ---: | ------------ | ---- | --------------------------------------------- |
|      0 |    8 | magic        | [u8] | "LWCURSOR"                                    |
|      8 |    2 | version      | u16  | 2                                             |
|     10 |    2 | reserved     | u16  | 0                                             |
|     12 |    4 | checksum     | u32  | CRC-32C of these 80 bytes, this field as zero |
|     16 |    8 | generation   | u64  | the higher of two sound slots counts          |
|     24 |    8 | segment_id   | u64  | segment of the next record to read            |
|     32 |    8 | offset       | u64  | where that record begins in its file          |
|     40 |    8 | sequence     | u64  | its sequence; this decides, the two above help |
|     48 |    8 | committed_at | u64  | nanoseconds since 1970                        |
|     56 |   16 | identity     | [u8] | of the log that the position is of            |
|     72 |    8 | life         | u64  | that the log was in then                      |

Little-endian.  A slot of version 1 is the first `SIZE_1` bytes, with a checksum of its own; it is still written where
the log has no identity yet.  A file may hold one slot of each version.

Older programs wrote 16 bytes, {segment_id u64, offset u64}, or 8, {offset u64} in segment 0: a file of exactly that
length, without the magic, is read as such, and its sequence is looked up.
Format: docs/format/cursor.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CorruptError
from latewood.format.checked import Frame
from latewood.format.identity import Mark

SIZE: Final = 80
SIZE_1: Final = 56
SLOT_OFFSETS: Final = (0, 4096)
FILE_BYTES_MAX: Final = SLOT_OFFSETS[1] + SIZE
VERSION: Final = 2
VERSION_1: Final = 1
_MAGIC: Final = b"LWCURSOR"
_LAYOUT: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "H"  # reserved
    "I"  # checksum
    "Q"  # generation
    "Q"  # segment_id
    "Q"  # offset
    "Q"  # sequence
    "Q"  # committed_at
    "16s"  # identity
    "Q"  # life
)
assert _LAYOUT.size == SIZE
_FRAME: Final = Frame("cursor", _MAGIC, VERSION, 8, 2, 12, SIZE)
_FRAME_1: Final = Frame("cursor", _MAGIC, VERSION_1, 8, 2, 12, SIZE_1)
_LEGACY: Final = {8: struct.Struct("<Q"), 16: struct.Struct("<QQ")}


class Cursor(NamedTuple):
    """One decoded slot."""

    generation: int
    segment_id: int
    offset: int
    sequence: int | None
    """None in files of older programs, which stored none."""
    committed_at: int
    mark: Mark | None
    """Which log it is of; None in slots of version 1."""


def encode(cursor: Cursor) -> bytes:
    """Return one slot's 80 bytes, or the 56 of version 1 if it has no mark; the sequence must be known."""
    version, mark = (VERSION, cursor.mark) if cursor.mark else (VERSION_1, Mark(b"", 0))
    raw = _LAYOUT.pack(_MAGIC, version, 0, 0, *cursor[:5], *mark)
    return _FRAME.sign(raw) if cursor.mark else _FRAME_1.sign(raw[:SIZE_1])


def slot_of(generation: int) -> int:
    """Return the slot, 0 or 1, in which a generation is written."""
    return generation % len(SLOT_OFFSETS)


def decode_file(raw: bytes, path: Path) -> Cursor:
    """Return the position that a whole reader file holds.

    Raises:
        CorruptError: neither slot is sound.
        UnsupportedVersion: a later program wrote one of them.
    """
    if len(raw) in _LEGACY and not raw.startswith(_MAGIC):
        *segment, offset = _LEGACY[len(raw)].unpack(raw)
        return Cursor(0, segment[0] if segment else 0, offset, None, 0, None)
    sound = []
    for at in SLOT_OFFSETS:
        try:
            sound.append(_decode_slot(raw[at : at + SIZE], path, at))
        except CorruptError as error:
            damage = error
    if not sound:
        raise damage
    return max(sound, key=lambda cursor: cursor.generation)


def _decode_slot(slot: bytes, path: Path, offset: int) -> Cursor:
    is_version_1 = slot[8:10] == VERSION_1.to_bytes(2, "little")
    (_FRAME_1 if is_version_1 else _FRAME).check(slot, path, offset)
    fields = _LAYOUT.unpack(slot.ljust(SIZE, b"\0"))
    return Cursor._make((*fields[4:9], None if is_version_1 else Mark(*fields[9:])))
