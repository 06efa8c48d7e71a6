"""Queue manifest: which segments make up the log.

Header, `HEADER_SIZE` bytes:

| offset | size | field      | type | meaning                                     |
| -----: | ---: | ---------- | ---- | ------------------------------------------- |
|      0 |    4 | magic      | [u8] | "QMFT"                                      |
|      4 |    4 | version    | u32  | 2                                           |
|      8 |    8 | next_seq   | u64  | next global sequence number                 |
|     16 |    4 | file_count | u32  | number of entries                           |
|     20 |    4 | checksum   | u32  | CRC-32C of the whole file, see below        |
|     24 |    8 | generation | u64  | counts manifests of this log                |

State of the log, `STATE_SIZE` bytes, and its identity: see `identity.py`:

| offset | size | field                 | type | meaning                                       |
| -----: | ---: | --------------------- | ---- | --------------------------------------------- |
|      0 |    8 | coordinator_watermark | u64  | that of the latest seal ever; 0: none         |

Active segment, `ACTIVE_SIZE` bytes and its path:

| offset | size | field     | type | meaning                                      |
| -----: | ---: | --------- | ---- | -------------------------------------------- |
|      0 |    4 | file_seq  | u32  | the active segment's id                      |
|      4 |    8 | write_pos | u64  | write offset when this manifest was made     |
|     12 |    8 | msg_count | u64  | its records then                             |
|     20 |    2 | path_len  | u16  | bytes of path                                |
|     22 |    N | path      | [u8] | UTF-8, relative to the log                   |

The entries of sealed segments follow: see `entries.py`.

Little-endian.  The checksum covers every byte: first the entries, then all that stands before them with the
checksum's own field as zero.  In that order a roll extends the entries' checksum by one entry and need not read
the others again.

Version 1 has neither state nor identity, and shorter entries.  It is read, and written again as version 2 when the log
is opened to append.  Format: docs/format/manifest.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CorruptError, ManifestCorrupted, UnsupportedVersion
from latewood.format.entries import EntryTable, decode_path
from latewood.format.identity import LogIdentity, block_bytes, decode_block, encode_block
from latewood.kernel import crc32c

HEADER_SIZE: Final = 32
STATE_SIZE: Final = 8
ACTIVE_SIZE: Final = 22
VERSION: Final = 2
VERSION_1: Final = 1
_MAGIC: Final = b"QMFT"
VERSION_END: Final = 8
"""So many bytes tell the version."""
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
_STATE: Final = struct.Struct(
    "<Q"  # coordinator_watermark
)
assert _STATE.size == STATE_SIZE
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
    coordinator_watermark: int
    """That of the latest seal ever, also if its segment is retired.  Version 1 does not say: 0."""
    identity: LogIdentity | None
    """None: it is of version 1."""

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
    """Return all that stands before the entries."""
    assert manifest.identity is not None
    path = manifest.active.path.encode()
    head = _HEADER.pack(_MAGIC, VERSION, manifest.next_sequence, len(manifest.entries), 0, manifest.generation)
    state = _STATE.pack(manifest.coordinator_watermark) + encode_block(manifest.identity)
    front = head + state + _ACTIVE.pack(*manifest.active[:3], len(path)) + path
    checksum = crc32c(front, manifest.entries.checksum)
    return front[:_CHECKSUM_OFFSET] + checksum.to_bytes(4, "little") + front[_CHECKSUM_OFFSET + 4 :]


def encode(manifest: Manifest) -> bytes:
    """Return the whole manifest."""
    return encode_front(manifest) + manifest.entries.raw()


def check_version(raw: bytes, path: Path) -> None:
    """Do nothing unless these bytes, damaged or not, begin a manifest of a later version.

    Raises:
        UnsupportedVersion: a later program wrote it.
    """
    version = int.from_bytes(raw[4:VERSION_END], "little")
    if raw[:4] == _MAGIC and len(raw) >= VERSION_END and version not in (VERSION_1, VERSION):
        raise UnsupportedVersion("manifest", version, path)


def decode(raw: bytes, path: Path) -> Manifest:
    """Return the manifest in `raw`, its entries still undecoded.

    Raises:
        ManifestCorrupted: it is not a sound manifest.
        UnsupportedVersion: a later program wrote it.
    """
    if raw[:4] != _MAGIC:
        raise ManifestCorrupted("no manifest here", path, 0)
    check_version(raw, path)
    version = int.from_bytes(raw[4:8], "little")
    active_offset = HEADER_SIZE
    if version == VERSION:
        active_offset += STATE_SIZE + block_bytes(raw, HEADER_SIZE + STATE_SIZE)
    if len(raw) < active_offset + ACTIVE_SIZE:
        raise ManifestCorrupted(f"the manifest is cut short at {len(raw)} bytes", path, len(raw))
    return _decode_body(raw, path, active_offset, is_version_1=version == VERSION_1)


def _decode_body(raw: bytes, path: Path, active_offset: int, *, is_version_1: bool) -> Manifest:
    _, _, next_sequence, count, stored, generation = _HEADER.unpack_from(raw)
    segment_id, write_offset, record_count, path_bytes = _ACTIVE.unpack_from(raw, active_offset)
    front_bytes = active_offset + ACTIVE_SIZE + path_bytes
    front = raw[:_CHECKSUM_OFFSET] + b"\0\0\0\0" + raw[_CHECKSUM_OFFSET + 4 : front_bytes]
    entries_checksum = crc32c(memoryview(raw)[front_bytes:])
    if len(front) != front_bytes or crc32c(front, entries_checksum) != stored:
        raise ManifestCorrupted("the manifest's checksum does not match", path, _CHECKSUM_OFFSET)
    watermark, identity = (0, None) if is_version_1 else _decode_state(raw, path)
    path_offset = active_offset + ACTIVE_SIZE
    active_path = decode_path(raw[path_offset:front_bytes], path, path_offset)
    active = ActiveSegment(segment_id, write_offset, record_count, active_path)
    raw_entries = bytearray(memoryview(raw)[front_bytes:])
    entries = EntryTable(raw_entries, count, entries_checksum, path, is_version_1=is_version_1)
    return Manifest(generation, next_sequence, active, entries, watermark, identity)


def _decode_state(raw: bytes, path: Path) -> tuple[int, LogIdentity]:
    (watermark,) = _STATE.unpack_from(raw, HEADER_SIZE)
    try:
        return watermark, decode_block(raw, HEADER_SIZE + STATE_SIZE, path)
    except CorruptError as error:
        raise ManifestCorrupted(error.reason, error.path, error.offset) from error
