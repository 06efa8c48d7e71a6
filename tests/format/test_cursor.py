"""Readers' files: two slots, and the forms of older programs."""

import pytest
from hypothesis import given

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.format.cursor import (
    FILE_BYTES_MAX,
    SIZE,
    SLOT_OFFSETS,
    Cursor,
    decode_file,
    encode,
    slot_of,
)
from tests.format.codecs import PATH, u64

OLDER = Cursor(6, 1, 64, 10, 1_000)
NEWER = Cursor(7, 2, 96, 20, 2_000)


def reader_file(*cursors: Cursor) -> bytearray:
    raw = bytearray(FILE_BYTES_MAX)
    for cursor in cursors:
        at = SLOT_OFFSETS[slot_of(cursor.generation)]
        raw[at : at + SIZE] = encode(cursor)
    return raw


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
        raw[at + 8] = 2
        with pytest.raises(UnsupportedVersion):
            decode_file(bytes(raw), PATH)


@given(u64, u64)
def test_16_bytes_are_segment_and_offset_of_an_older_program(segment_id: int, offset: int) -> None:
    raw = segment_id.to_bytes(8, "little") + offset.to_bytes(8, "little")
    assert decode_file(raw, PATH) == Cursor(0, segment_id, offset, None, 0)


@given(u64)
def test_8_bytes_are_an_offset_in_segment_0_of_the_oldest_program(offset: int) -> None:
    assert decode_file(offset.to_bytes(8, "little"), PATH) == Cursor(0, 0, offset, None, 0)


@pytest.mark.parametrize("length", [*range(8), *range(9, 16), *range(17, SIZE)])
def test_any_other_short_length_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptError):
        decode_file(bytes(length), PATH)
