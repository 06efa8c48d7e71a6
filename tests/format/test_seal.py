"""The seal block: the mark that ends a segment, and the sparse index behind it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError
from latewood.format import seal
from latewood.format.record import SIZE as RECORD_SIZE
from latewood.format.segment import FOOTER_SIZE, HEADER_SIZE
from latewood.kernel import SEALED, scan
from tests.format.codecs import PATH, u32, u64

ENTRIES = struct.pack("<QQQQ", 64, 1_001, 320, 1_009)
BLOCK = seal.encode(ENTRIES, 8, 10)

entries = st.lists(st.tuples(u64, u64), max_size=20).map(
    lambda pairs: b"".join(struct.pack("<QQ", *pair) for pair in pairs)
)


def decode(block: bytes) -> seal.SealHead:
    head = seal.decode_head(block, PATH, 0)
    seal.check(block, PATH, 0)
    return head


@given(entries, u32, u64)
def test_a_seal_survives_the_round_trip(entries: bytes, interval: int, record_count: int) -> None:
    block = seal.encode(entries, interval, record_count)
    assert decode(block)[1:] == (len(entries) // seal.ENTRY_SIZE, interval, record_count)
    assert block[seal.HEAD_SIZE :] == entries


def test_the_bytes_of_a_seal_are_those_of_version_1() -> None:
    head = "ffffffff 350e207c 02000000 08000000 0a00000000000000"
    entries = "4000000000000000 e903000000000000 4001000000000000 f103000000000000"
    assert bytes.fromhex(head + entries) == BLOCK


def test_a_torn_seal_is_corrupt_at_each_length() -> None:
    for length in range(seal.HEAD_SIZE):
        with pytest.raises(CorruptError):
            seal.decode_head(BLOCK[:length], PATH, 128)
    for length in range(seal.HEAD_SIZE, len(BLOCK)):
        with pytest.raises(CorruptError) as caught:
            seal.check(BLOCK[:length], PATH, 128)
        assert caught.value.offset == 128


def test_every_flip_of_one_bit_is_detected() -> None:
    for bit in range(8 * len(BLOCK)):
        flipped = bytearray(BLOCK)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptError):
            decode(bytes(flipped))


def test_a_scan_of_records_stops_at_the_seal() -> None:
    assert scan(BLOCK, 0, len(BLOCK), 0, 10, 1 << 20) == ([], 0, SEALED)


@given(st.integers(512, 1 << 20), st.integers(1, 5_000))
def test_the_room_kept_for_a_seal_is_enough_for_a_segment_full_of_empty_records(size: int, interval: int) -> None:
    records = (size - HEADER_SIZE) // RECORD_SIZE
    count = len(range(0, records, interval))
    needed = len(seal.encode(bytes(count * seal.ENTRY_SIZE), interval, records)) + FOOTER_SIZE
    assert needed <= seal.tail_bytes_max(size, interval)
