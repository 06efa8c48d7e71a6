"""Identity: which log this is, who may write it, and its lives.

The block, `BLOCK_SIZE` bytes and its lives, is part of every manifest, and of the file `identity`:

| offset | size | field      | type  | meaning                                                        |
| -----: | ---: | ---------- | ----- | -------------------------------------------------------------- |
|      0 |   16 | identity   | [u8]  | random, from the log's birth; a partition's is derived         |
|     16 |    1 | owner      | u8    | 0: anybody, 1: a store, 2: a node of a cluster                 |
|     17 |    1 | life_count | u8    | lives that follow, at least 1; of more than 255 the oldest fall off |
|     18 |    6 | reserved   | zeros | 0                                                              |

Life, `LIFE_SIZE` bytes, oldest first:

| offset | size | field          | type | meaning                                                     |
| -----: | ---: | -------------- | ---- | ----------------------------------------------------------- |
|      0 |    8 | life           | u64  | random, never 0; the first is derived from the identity     |
|      8 |    8 | start_sequence | u64  | where the log ended when this life began                    |

The file `identity` is a second copy, so that a log whose manifest is lost keeps its name.  Header, `HEADER_SIZE` bytes,
and the block:

| offset | size | field    | type | meaning                                             |
| -----: | ---: | -------- | ---- | --------------------------------------------------- |
|      0 |    8 | magic    | [u8] | "LWLOGIDT"                                          |
|      8 |    2 | version  | u16  | 1                                                   |
|     10 |    2 | reserved | u16  | 0                                                   |
|     12 |    4 | checksum | u32  | CRC-32C of the whole file, this field as zero       |

Little-endian.  The manifest is the truth: a missing or stale file is warned of and written again.
Format: docs/format/identity.md
"""

import re
import struct
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CorruptError, UsageError
from latewood.format.checked import Frame

IDENTITY_BYTES: Final = 16
BLOCK_SIZE: Final = 24
LIFE_SIZE: Final = 16
HEADER_SIZE: Final = 16
VERSION: Final = 1
LIVES_MAX: Final = 255
"""What `life_count` holds.  Each rebuild begins one; positions of lives that fell off are refused."""
FILE_BYTES_MAX: Final = HEADER_SIZE + BLOCK_SIZE + LIVES_MAX * LIFE_SIZE
_MAGIC: Final = b"LWLOGIDT"
_TEXT: Final = re.compile("[0-9a-f]{32}-[0-9a-f]{16}")
_BLOCK: Final = struct.Struct(
    "<"
    "16s"  # identity
    "B"  # owner
    "B"  # life_count
    "6s"  # reserved
)
assert _BLOCK.size == BLOCK_SIZE
_LIFE: Final = struct.Struct(
    "<"
    "Q"  # life
    "Q"  # start_sequence
)
assert _LIFE.size == LIFE_SIZE
_HEADER: Final = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "H"  # reserved
    "I"  # checksum
)
assert _HEADER.size == HEADER_SIZE
_FRAME: Final = Frame("identity", _MAGIC, VERSION, 8, 2, 12, HEADER_SIZE + BLOCK_SIZE + LIFE_SIZE)


class Owner(IntEnum):
    """Who may append to a log.  Anybody may read it."""

    ANYBODY = 0
    """Any program."""
    STORE = 1
    """The store whose shard it is."""
    NODE = 2
    """The node of a cluster that keeps it."""


class Life(NamedTuple):
    """A time in which a log lost no record."""

    life: int
    """Its name: a random number, never 0."""
    start_sequence: int
    """Where the log ended when it began: an earlier life's positions beyond this are of records that are gone."""


class LogIdentity(NamedTuple):
    """Which log it is, who may append to it, and its lives, oldest first."""

    identity: bytes
    """16 bytes from the log's birth: they never change, and a copy has the same."""
    owner: Owner
    """Who may append."""
    lives: tuple[Life, ...]
    """A new one begins when records may have been lost."""

    @property
    def life(self) -> int:
        """The life that it is in."""
        return self.lives[-1].life

    @property
    def mark(self) -> "Mark":
        """What a position that is taken now carries."""
        return Mark(self.identity, self.life)


class Mark(NamedTuple):
    """What a position that is stored outside of its log carries, so that another log is not taken for this one."""

    identity: bytes
    """The log's."""
    life: int
    """That the log was in when the position was taken."""

    @property
    def text(self) -> str:
        """The mark in 49 characters, for whatever a program keeps positions in."""
        return f"{self.identity.hex()}-{self.life:016x}"

    @classmethod
    def from_text(cls, text: object) -> "Mark":
        """Return the mark that `text` says.

        Raises:
            UsageError: it is not what `text` returns.
        """
        if not isinstance(text, str) or not _TEXT.fullmatch(text):
            message = f"{text!r} is not the text of a mark: 32 hexadecimal digits, a hyphen, and 16 more"
            raise UsageError(message)
        identity, _, life = text.partition("-")
        return cls(bytes.fromhex(identity), int(life, 16))


def encode_block(identity: LogIdentity) -> bytes:
    """Return the block with its lives."""
    lives = identity.lives[-LIVES_MAX:]
    return _BLOCK.pack(identity.identity, identity.owner, len(lives), bytes(6)) + b"".join(
        _LIFE.pack(*life) for life in lives
    )


def block_bytes(raw: bytes, offset: int) -> int:
    """Return how long the block at `offset` is, by its count of lives."""
    count_at = offset + IDENTITY_BYTES + 1
    return BLOCK_SIZE + LIFE_SIZE * (raw[count_at] if count_at < len(raw) else 0)


def decode_block(raw: bytes, offset: int, path: Path) -> LogIdentity:
    """Return the identity at `offset` of bytes whose checksum was found right, in the file `path`.

    Raises:
        CorruptError: it has no life, or an owner that there is not.
    """
    identity, owner, life_count, _ = _BLOCK.unpack_from(raw, offset)
    if not life_count or owner not in Owner._value2member_map_:
        raise CorruptError(f"an identity with {life_count} lives and owner {owner}", path, offset)
    lives = _LIFE.iter_unpack(raw[offset + BLOCK_SIZE : offset + BLOCK_SIZE + life_count * LIFE_SIZE])
    return LogIdentity(identity, Owner(owner), tuple(Life(*life) for life in lives))


def encode(identity: LogIdentity) -> bytes:
    """Return the bytes of the file `identity`."""
    raw = _HEADER.pack(_MAGIC, VERSION, 0, 0) + encode_block(identity)
    return _FRAME._replace(size=len(raw)).sign(raw)


def decode(raw: bytes, path: Path) -> LogIdentity:
    """Return what the whole file `identity` says.

    Raises:
        CorruptError: it is not sound.
        UnsupportedVersion: a later program wrote it.
    """
    _FRAME._replace(size=max(_FRAME.size, len(raw))).check(raw, path)
    if len(raw) != HEADER_SIZE + block_bytes(raw, HEADER_SIZE):
        raise CorruptError("the identity has another length than its lives take", path, len(raw))
    return decode_block(raw, HEADER_SIZE, path)
