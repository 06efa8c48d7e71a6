"""Queue manifest: which segments make up the log.

Header, `HEADER_SIZE` bytes:

| offset | size | field      | type | meaning                                     |
| -----: | ---: | ---------- | ---- | ------------------------------------------- |
|      0 |    4 | magic      | [u8] | "QMFT"                                      |
|      4 |    4 | version    | u32  | 1                                           |
|      8 |    8 | next_seq   | u64  | next global sequence number                 |
|     16 |    4 | file_count | u32  | number of entries                           |
|     20 |    4 | checksum   | u32  | CRC-32C of the whole file, see below        |
|     24 |    8 | generation | u64  | counts manifests of this log                |

Active segment, `ACTIVE_SIZE` bytes and its path:

| offset | size | field     | type | meaning                                      |
| -----: | ---: | --------- | ---- | -------------------------------------------- |
|      0 |    4 | file_seq  | u32  | the active segment's id                      |
|      4 |    8 | write_pos | u64  | write offset when this manifest was made     |
|     12 |    8 | msg_count | u64  | its records then                             |
|     20 |    2 | path_len  | u16  | bytes of path                                |
|     22 |    N | path      | [u8] | UTF-8, relative to the log                   |

The entries of sealed segments follow: see `entries.py`.

Little-endian.  The checksum covers every byte: first the entries, then header and active segment with the
checksum's own field as zero.  In that order a roll extends the entries' checksum by one entry and need not read
the others again.  Format: docs/format/manifest.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import ManifestCorrupted, UnsupportedVersion
from latewood.format.entries import EntryTable
from latewood.kernel import crc32c

HEADER_SIZE: Final = 32
ACTIVE_SIZE: Final = 22
VERSION: Final = 1
_MAGIC: Final = b"QMFT"
_CHECKSUM_OFFSET: Final = 20
_HEADER: Final = struct.Struct(
    "<"
    "4s"  # magic
    "I"  # version
    "Q"  # next_seq
    "I"  # file_count
    "I"  # checksum
    "Q"  # generation
)
assert _HEADER.size == HEADER_SIZE
_ACTIVE: Final = struct.Struct(
    "<"
    "I"  # file_seq
    "Q"  # write_pos
    "Q"  # msg_count
    "H"  # path_len
)
assert _ACTIVE.size == ACTIVE_SIZE


class ActiveSegment(NamedTuple):
    """The open segment, as it was when the manifest was made."""

    segment_id: int
    write_offset: int
    record_count: int
    path: str


class Manifest(NamedTuple):
    """One decoded manifest: an immutable value."""

    generation: int
    next_sequence: int
    active: ActiveSegment
    entries: EntryTable

    @property
    def active_base(self) -> int:
        """The active segment's first sequence."""
        return self.next_sequence - self.active.record_count

    @property
    def is_first(self) -> bool:
        """Whether it is one that a log begins with: nothing was ever appended, as far as it knows."""
        return self.generation == 1 and not self.active.record_count and not len(self.entries)

    @property
    def first_sequence(self) -> int:
        """The oldest sequence that the log still holds."""
        return self.entries[0].start_sequence if len(self.entries) else self.active_base


def encode_front(manifest: Manifest) -> bytes:
    """Return header and active segment: all that stands before the entries."""
    path = manifest.active.path.encode()
    head = _HEADER.pack(_MAGIC, VERSION, manifest.next_sequence, len(manifest.entries), 0, manifest.generation)
    active = _ACTIVE.pack(*manifest.active[:3], len(path)) + path
    checksum = crc32c(head + active, manifest.entries.checksum)
    return head[:_CHECKSUM_OFFSET] + checksum.to_bytes(4, "little") + head[_CHECKSUM_OFFSET + 4 :] + active


def encode(manifest: Manifest) -> bytes:
    """Return the whole manifest."""
    return encode_front(manifest) + manifest.entries.raw()


def decode(raw: bytes, path: Path) -> Manifest:
    """Return the manifest in `raw`, its entries still undecoded.

    Raises:
        ManifestCorrupted: it is not a sound manifest.
        UnsupportedVersion: a later program wrote it.
    """
    if raw[:4] != _MAGIC:
        raise ManifestCorrupted("no manifest here", path, 0)
    version = int.from_bytes(raw[4:8], "little")
    if len(raw) >= 8 and version != VERSION:  # noqa: PLR2004 - magic and version
        raise UnsupportedVersion("manifest", version, path)
    if len(raw) < HEADER_SIZE + ACTIVE_SIZE:
        raise ManifestCorrupted(f"the manifest is cut short at {len(raw)} bytes", path, len(raw))
    return _decode_body(raw, path)


def _decode_body(raw: bytes, path: Path) -> Manifest:
    _, _, next_sequence, count, stored, generation = _HEADER.unpack_from(raw)
    segment_id, write_offset, record_count, path_bytes = _ACTIVE.unpack_from(raw, HEADER_SIZE)
    front_bytes = HEADER_SIZE + ACTIVE_SIZE + path_bytes
    front = raw[:_CHECKSUM_OFFSET] + b"\0\0\0\0" + raw[_CHECKSUM_OFFSET + 4 : front_bytes]
    entries_checksum = crc32c(memoryview(raw)[front_bytes:])
    if len(front) != front_bytes or crc32c(front, entries_checksum) != stored:
        raise ManifestCorrupted("the manifest's checksum does not match", path, _CHECKSUM_OFFSET)
    active_path = raw[HEADER_SIZE + ACTIVE_SIZE : front_bytes].decode()
    active = ActiveSegment(segment_id, write_offset, record_count, active_path)
    entries = EntryTable(bytearray(memoryview(raw)[front_bytes:]), count, entries_checksum, path)
    return Manifest(generation, next_sequence, active, entries)
