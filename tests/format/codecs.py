"""Every structure of a fixed size: how it is made, read and drawn at random, and its bytes, written out once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from latewood.format import checkpoint, cursor, pointer, segment
from latewood.format.identity import Life, LogIdentity, Mark, Owner

PATH: Final = Path("events/file")

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)


BIRTH: Final = b"identity of oaks"
IDENTITY: Final = LogIdentity(BIRTH, Owner.STORE, (Life(int.from_bytes(BIRTH[:8], "little"), 0), Life(0xACE, 60)))
marks = st.builds(Mark, st.binary(min_size=16, max_size=16), u64)
identities = st.builds(
    LogIdentity,
    st.binary(min_size=16, max_size=16),
    st.sampled_from(Owner),
    st.lists(st.builds(Life, u64, u64), min_size=1, max_size=5).map(tuple),
)


@dataclass(frozen=True)
class Codec:
    """One structure."""

    name: str
    size: int
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    values: st.SearchStrategy[Any]
    example: Any
    golden: str
    version: int = 1
    version_offset: int = 8

    def __str__(self) -> str:
        return self.name


def _decode_slot(raw: bytes) -> cursor.Cursor:
    """Decode one slot of a reader's file, as if the other had never been written."""
    # One byte more, so that a torn slot does not have the length of a legacy file.
    return cursor.decode_file(raw + b"\0" * (len(raw) in (8, 16)), PATH)


HEADER: Final = Codec(
    "segment header",
    segment.HEADER_SIZE,
    segment.encode_header,
    lambda raw: segment.decode_header(raw, PATH),
    st.builds(segment.SegmentHeader, u32, u64, u64, u32, u32, i64, u64, u32),
    segment.SegmentHeader(42, 1_000, 7, 65_536, 1, 1_772_452_800_000_000_000, 9, 1024),
    "4c575345474d4e54 0100 0000 2a000000 e803000000000000 0700000000000000 00000100 01000000 "
    "008025456e049918 0900000000000000 00040000 146706ca",
)

FOOTER: Final = Codec(
    "segment footer",
    segment.FOOTER_SIZE,
    segment.encode_footer,
    lambda raw: segment.decode_footer(raw, PATH, 0),
    st.builds(
        segment.SegmentFooter, st.booleans(), u32, *[u64] * 3, *[i64] * 3, *[u64] * 4, u32, u32, u64, i64
    ),  # the order of the fields on disk
    segment.SegmentFooter(
        flush_failure_flag=True,
        segment_index=42,
        ext_id=9,
        durable_bytes=320,
        record_count=10,
        first_record_timestamp=1_772_452_800_000_000_001,
        last_record_timestamp=1_772_452_800_000_000_002,
        max_timestamp=1_772_452_800_000_000_003,
        coordinator_watermark=77,
        min_ext_id=3,
        max_ext_id=5,
        index_offset=384,
        index_count=2,
        index_interval=8,
        base_record_count=7,
        sealed_at=1_772_452_800_000_000_004,
    ),
    "4c575345414c4544 0100 01 00 2a000000 0900000000000000 4001000000000000 0a00000000000000 "
    "018025456e049918 028025456e049918 038025456e049918 4d00000000000000 0300000000000000 "
    "0500000000000000 8001000000000000 02000000 08000000 0700000000000000 048025456e049918 00000000 "
    "59ecd6d4",
)

POINTER: Final = Codec(
    "sealed pointer",
    pointer.SIZE,
    pointer.encode,
    lambda raw: pointer.decode(raw, PATH),
    st.builds(pointer.SealedPointer, u64, u64, u64, st.booleans()),
    pointer.SealedPointer(42, 77, 320, flush_failure_flag=True),
    "4c57435552534c44 0100 01 00 4928b5d1 2a00000000000000 4d00000000000000 4001000000000000",
)

CHECKPOINT: Final = Codec(
    "checkpoint",
    checkpoint.SIZE,
    checkpoint.encode,
    lambda raw: checkpoint.decode(raw, PATH),
    st.builds(checkpoint.Checkpoint, *[u64] * 10, st.booleans()),
    checkpoint.Checkpoint(42, 384, 8192, 10, 101, 102, 103, 3, 5, 17, flush_failure_flag=True),
    "4c57494e44455831 0100 01 00 47640382 2a00000000000000 8001000000000000 0020000000000000 "
    "0a00000000000000 6500000000000000 6600000000000000 6700000000000000 0300000000000000 "
    "0500000000000000 1100000000000000",
)

CURSOR: Final = Codec(
    "cursor",
    cursor.SIZE,
    cursor.encode,
    _decode_slot,
    st.builds(cursor.Cursor, u64, u64, u64, u64, u64, marks),
    cursor.Cursor(3, 42, 384, 17, 1_772_452_800_000_000_000, IDENTITY.mark),
    "4c57435552534f52 0200 0000 389bede4 0300000000000000 2a00000000000000 8001000000000000 "
    "1100000000000000 008025456e049918 6964656e74697479206f66206f616b73 ce0a000000000000",
    version=cursor.VERSION,
)

CODECS: Final = [HEADER, FOOTER, POINTER, CHECKPOINT, CURSOR]
