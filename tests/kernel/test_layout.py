"""The bytes of a record, to the bit."""

import struct
from collections.abc import Callable
from types import ModuleType

import google_crc32c
import pytest

from tests.kernel.packing import SAMPLE, Entry, appender, packed, record_bytes, scan_all

GOLDEN = bytes.fromhex(
    "05000000"  # length
    "ed489241"  # checksum, computed bit by bit
    "0807060504030201"  # timestamp_ns
    "1817161514131211"  # ext_id
    "68656c6c6f"  # payload
    "000000"  # padding
)


def test_a_record_has_its_golden_bytes(kernel: ModuleType) -> None:
    buffer = bytearray(64)
    appender(kernel, buffer, offset=8).append(b"hello", 0x1112131415161718, 0x0102030405060708)
    assert buffer == bytes(8) + GOLDEN + bytes(24)


def test_the_golden_bytes_read_back(kernel: ModuleType) -> None:
    entries, end, state = scan_all(kernel, GOLDEN)
    assert entries == [Entry(0x0102030405060708, 0x1112131415161718, b"hello")]
    assert (end, state) == (len(GOLDEN), kernel.END)


@pytest.mark.parametrize("length", range(18))
def test_a_record_is_padded_with_zeros_to_a_multiple_of_eight(kernel: ModuleType, length: int) -> None:
    buffer = bytearray(b"\xff" * 128)  # even if there was something before
    writer = appender(kernel, buffer)
    writer.append(b"x" * length, 0, 1)
    end = record_bytes(length)
    assert writer.offset == end
    assert buffer[24:end] == (b"x" * length).ljust(end - 24, b"\0")
    assert buffer[end:] == b"\xff" * (128 - end)


@pytest.mark.parametrize("length", range(18))
def test_a_batch_is_padded_alike(kernel: ModuleType, length: int) -> None:
    one_by_one, at_once = bytearray(256), bytearray(b"\xff" * 256)
    payloads = [b"x" * length, b"yy", b"z" * length]
    writer = appender(kernel, one_by_one)
    for payload in payloads:
        writer.append(payload, 5, 6)
    batch = appender(kernel, at_once)
    assert batch.append_many(payloads, 0, 5, 6) == 3
    assert batch.state() == writer.state()
    assert at_once[: batch.offset] == one_by_one[: batch.offset]


def test_the_checksum_covers_the_length_by_its_seed(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    offset = 0
    for entry in SAMPLE:
        length, mark = struct.unpack_from("<II", buffer, offset)
        assert length == len(entry.payload)
        assert mark == google_crc32c.extend(length, bytes(buffer[offset + 8 : offset + 24 + length]))
        offset += record_bytes(length)


def timestamp_with_zero_sum(payload: bytes) -> int:
    """Solve for the timestamp that makes a record's CRC 0: the CRC is linear in its bits."""

    def crc(timestamp_ns: int) -> int:
        return int(google_crc32c.extend(len(payload), struct.pack("<QQ", timestamp_ns, 0) + payload))

    base = crc(0)
    pivots: dict[int, tuple[int, int]] = {}
    for bit in range(64):
        _insert(pivots, crc(1 << bit) ^ base, 1 << bit)
    timestamp_ns = 0
    for high in sorted(pivots, reverse=True):
        value, bits = pivots[high]
        if base >> high & 1:
            base ^= value
            timestamp_ns ^= bits
    return timestamp_ns


def _insert(pivots: dict[int, tuple[int, int]], value: int, bits: int) -> None:
    while value:
        high = value.bit_length() - 1
        if high not in pivots:
            pivots[high] = (value, bits)
            return
        value, bits = value ^ pivots[high][0], bits ^ pivots[high][1]


Store = Callable[[ModuleType, bytearray, bytes, int], None]


def store_one(kernel: ModuleType, buffer: bytearray, payload: bytes, timestamp_ns: int) -> None:
    appender(kernel, buffer).append(payload, 0, timestamp_ns)


def store_two(kernel: ModuleType, buffer: bytearray, payload: bytes, timestamp_ns: int) -> None:
    appender(kernel, buffer).append_many([payload, payload], 0, 0, timestamp_ns)


@pytest.mark.parametrize("store", [store_one, store_two])
def test_a_sum_of_zero_is_stored_as_all_ones(kernel: ModuleType, store: Store) -> None:
    timestamp_ns = timestamp_with_zero_sum(b"zero")
    buffer = bytearray(128)
    store(kernel, buffer, b"zero", timestamp_ns)
    assert struct.unpack_from("<II", buffer) == (4, 0xFFFFFFFF)
    entries, _, state = scan_all(kernel, buffer)
    assert entries[0] == Entry(timestamp_ns, 0, b"zero")
    assert state == kernel.EMPTY
    assert kernel.verify(buffer, 0, len(buffer))[0] == len(entries)
    assert kernel.find_record(buffer, 0, len(buffer)) == 0


def test_crc32c_is_castagnoli(kernel: ModuleType) -> None:
    assert kernel.crc32c(b"123456789") == 0xE3069283
    assert kernel.crc32c(b"") == 0
    assert kernel.crc32c(b"", 17) == 17
    assert kernel.crc32c(b"6789", kernel.crc32c(b"12345")) == 0xE3069283
    assert kernel.crc32c(data=memoryview(b"123456789"), seed=0) == 0xE3069283
    for length in range(0, 3000, 7):
        assert kernel.crc32c(b"\xa5" * length, length) == google_crc32c.extend(length, b"\xa5" * length)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_is_a_u32(kernel: ModuleType, seed: int) -> None:
    with pytest.raises(OverflowError):
        kernel.crc32c(b"", seed)


def test_long_payloads_have_the_same_checksum_as_short_ones(kernel: ModuleType) -> None:
    for length in (700, 767, 768, 769, 1000, 4096, 70_001):
        payload = bytes(index * 31 & 0xFF for index in range(length))
        buffer = packed(kernel, (Entry(3, 4, payload),))
        mark = google_crc32c.extend(length, struct.pack("<QQ", 3, 4) + payload)
        assert struct.unpack_from("<II", buffer) == (length, mark)
        assert scan_all(kernel, buffer)[0] == [Entry(3, 4, payload)]
