"""Records: how much room they take, and their bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.format.record import ALIGNMENT, SIZE, payload_bytes_max, record_bytes
from latewood.kernel import Appender, scan

U64_MAX = 2**64 - 1


def packed(payload: bytes, ext_id: int, timestamp_ns: int) -> bytes:
    buffer = bytearray(SIZE + len(payload) + ALIGNMENT)
    appender = Appender(buffer, None, 0, 0, 0, 1024, 0, 0, 0, U64_MAX, 0)
    appender.allow(len(buffer), len(buffer), 1)
    appender.append(payload, ext_id, timestamp_ns)
    end = appender.offset
    appender.release()
    return bytes(buffer[:end])


@pytest.mark.parametrize(("payload_bytes", "expected"), [(0, 24), (1, 32), (8, 32), (9, 40), (100, 128)])
def test_a_record_takes_its_header_and_its_payload_padded_to_8(payload_bytes: int, expected: int) -> None:
    assert record_bytes(payload_bytes) == expected


@given(st.integers(SIZE, 2**33))
def test_the_largest_payload_fits_and_one_more_byte_does_not(room: int) -> None:
    largest = payload_bytes_max(room)
    assert record_bytes(largest) <= room
    assert record_bytes(largest + 1) > room


@given(st.binary(max_size=200))
def test_the_kernel_packs_exactly_as_many_bytes_as_the_format_says(payload: bytes) -> None:
    assert len(packed(payload, 0, 0)) == record_bytes(len(payload))


def test_the_bytes_of_a_record_are_those_of_version_1() -> None:
    golden = "05000000 ddd6c4c2 008025456e049918 0700000000000000 68656c6c6f 000000"
    assert packed(b"hello", 7, 1_772_452_800_000_000_000) == bytes.fromhex(golden)


def test_every_flip_of_one_bit_of_header_and_payload_is_detected() -> None:
    raw = packed(b"hello", 7, 1_772_452_800_000_000_000)
    padding = len(raw) - 3
    for bit in range(8 * padding):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        records, _, _ = scan(flipped, 0, len(flipped), 0, 10, 1 << 20)
        assert records == []
