"""Readers' files: two slots, and the forms of older programs."""

import pytest
from hypothesis import given

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.format.cursor import (
    FILE_BYTES_MAX,
    SIZE,
    SIZE_1,
    SLOT_OFFSETS,
    Cursor,
    decode_file,
    encode,
    slot_of,
)
from tests.format.codecs import IDENTITY, PATH, u64

OLDER = Cursor(6, 1, 64, 10, 1_000, IDENTITY.mark)
NEWER = Cursor(7, 2, 96, 20, 2_000, IDENTITY.mark)
VERSION_1 = Cursor(3, 42, 384, 17, 1_772_452_800_000_000_000, None)


def reader_file(*cursors: Cursor) -> bytearray:
    raw = bytearray(FILE_BYTES_MAX)
    for cursor in cursors:
        at = SLOT_OFFSETS[slot_of(cursor.generation)]
        slot = encode(cursor)
        raw[at : at + len(slot)] = slot
    return raw


def test_a_position_without_a_mark_is_a_slot_of_version_1() -> None:
    golden = (
        "4c57435552534f52 0100 0000 32e031c6 0300000000000000 2a00000000000000 8001000000000000 "
        "1100000000000000 008025456e049918"
    )
    assert encode(VERSION_1) == bytes.fromhex(golden)
    assert len(encode(VERSION_1)) == SIZE_1
    for length in range(SIZE_1, FILE_BYTES_MAX + 1):
        assert decode_file(bytes.fromhex(golden).ljust(length, b"\0"), PATH) == VERSION_1


@pytest.mark.parametrize("newer", [4, 2])
def test_a_file_may_hold_one_slot_of_each_version_and_the_higher_generation_counts(newer: int) -> None:
    other = NEWER._replace(generation=newer)
    counts = max(other, VERSION_1, key=lambda cursor: cursor.generation)
    assert decode_file(bytes(reader_file(VERSION_1, other)), PATH) == counts


def test_every_flip_of_one_bit_in_a_slot_of_version_1_is_detected() -> None:
    raw = encode(VERSION_1)
    for bit in range(8 * SIZE_1):
        flipped = bytearray(raw.ljust(FILE_BYTES_MAX, b"\0"))
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptError, UnsupportedVersion)):
            decode_file(bytes(flipped), PATH)


def test_neighbouring_generations_use_different_slots() -> None:
    assert [slot_of(generation) for generation in range(4)] == [0, 1, 0, 1]


def test_the_slots_lie_in_different_sectors_of_4096_bytes() -> None:
    assert SLOT_OFFSETS == (0, 4096)


def test_the_higher_generation_counts() -> None:
    assert decode_file(bytes(reader_file(OLDER, NEWER)), PATH) == NEWER


@pytest.mark.parametrize("only", [OLDER, NEWER])
def test_one_sound_slot_is_enough(only: Cursor) -> None:
    assert decode_file(bytes(reader_file(only)), PATH) == only


def test_a_damaged_newer_slot_leaves_the_position_before() -> None:
    raw = reader_file(OLDER, NEWER)
    at = SLOT_OFFSETS[slot_of(NEWER.generation)]
    for byte in range(at + 10, at + SIZE):
        damaged = bytearray(raw)
        damaged[byte] ^= 0x10
        assert decode_file(bytes(damaged), PATH) == OLDER


def test_two_damaged_slots_are_corrupt() -> None:
    raw = reader_file(OLDER, NEWER)
    for at in SLOT_OFFSETS:
        raw[at + 20] ^= 1
    with pytest.raises(CorruptError):
        decode_file(bytes(raw), PATH)


def test_an_empty_file_is_corrupt() -> None:
    with pytest.raises(CorruptError):
        decode_file(b"", PATH)


def test_a_later_version_in_either_slot_is_not_passed_over_for_the_other() -> None:
    for at in SLOT_OFFSETS:
        raw = reader_file(OLDER, NEWER)
        raw[at + 8] = 3
        with pytest.raises(UnsupportedVersion):
            decode_file(bytes(raw), PATH)


@given(u64, u64)
def test_16_bytes_are_segment_and_offset_of_an_older_program(segment_id: int, offset: int) -> None:
    raw = segment_id.to_bytes(8, "little") + offset.to_bytes(8, "little")
    assert decode_file(raw, PATH) == Cursor(0, segment_id, offset, None, 0, None)


@given(u64)
def test_8_bytes_are_an_offset_in_segment_0_of_the_oldest_program(offset: int) -> None:
    assert decode_file(offset.to_bytes(8, "little"), PATH) == Cursor(0, 0, offset, None, 0, None)


@pytest.mark.parametrize("length", [*range(8), *range(9, 16), *range(17, SIZE_1)])
def test_any_other_short_length_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptError):
        decode_file(bytes(length), PATH)
