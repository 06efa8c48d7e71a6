"""Damaged bytes: whatever is torn or flipped, no record comes back that was not written."""

from itertools import pairwise
from types import ModuleType

from tests.kernel.packing import Entry, packed, record_bytes, scan_all

ENTRIES = (Entry(1, 2, b""), Entry(3, 4, b"hello"), Entry(5, 6, b"12345678"), Entry(7, 8, b"\0\0\0"))
BOUNDS = [0, 24, 56, 88, 120]


def assert_prefix(kernel: ModuleType, buffer: bytes | bytearray) -> int:
    """Assert that a scan yields the first of the entries and nothing else; return how many."""
    entries, end, state = scan_all(kernel, buffer)
    assert tuple(entries) == ENTRIES[: len(entries)]
    assert end == BOUNDS[len(entries)]
    assert state in {kernel.EMPTY, kernel.BAD, kernel.SEALED, kernel.END}
    count, *rest = kernel.verify(buffer, 0, len(buffer))
    assert (count, rest[0], rest[1]) == (len(entries), end, state)
    assert kernel.columns(buffer, 0, len(buffer), 0, 99, 999)[:3] == (count, end, state)
    return len(entries)


def padding() -> set[int]:
    """Return the offsets of every byte that pads."""
    ends = [start + 24 + len(entry.payload) for start, entry in zip(BOUNDS, ENTRIES, strict=False)]
    return {place for end, stop in zip(ends, BOUNDS[1:], strict=True) for place in range(end, stop)}


def test_the_bounds_are_right() -> None:
    assert [stop - start for start, stop in pairwise(BOUNDS)] == [record_bytes(len(e.payload)) for e in ENTRIES]


def test_a_file_cut_short_anywhere_keeps_its_whole_records(kernel: ModuleType) -> None:
    buffer = bytes(packed(kernel, ENTRIES))
    for cut in range(len(buffer) + 1):
        whole = sum(bound <= cut for bound in BOUNDS[1:])
        assert assert_prefix(kernel, buffer[:cut]) == whole


def test_a_tail_that_never_reached_the_disk_is_no_record(kernel: ModuleType) -> None:
    buffer = bytes(packed(kernel, ENTRIES))
    for cut in range(len(buffer) + 1):
        torn = buffer[:cut].ljust(len(buffer), b"\0")
        whole = sum(bound <= cut for bound in BOUNDS[1:])
        # Of the record that was cut, the rest may have been zeros, and then nothing is lost.
        same = sum(torn[:bound] == buffer[:bound] for bound in BOUNDS[1:])
        assert whole <= assert_prefix(kernel, torn) == same


def test_a_record_whose_front_never_reached_the_disk_is_no_record(kernel: ModuleType) -> None:
    buffer = bytes(packed(kernel, ENTRIES))
    for start, stop in pairwise(BOUNDS):
        for cut in range(start + 1, stop):
            torn = buffer[:start] + bytes(cut - start) + buffer[cut:]
            if torn != buffer:
                assert assert_prefix(kernel, torn) == BOUNDS.index(start)


def test_every_flipped_bit_is_caught_or_in_the_padding(kernel: ModuleType) -> None:
    buffer = packed(kernel, ENTRIES)
    pads = padding()
    for place in range(BOUNDS[-1]):
        for bit in range(8):
            buffer[place] ^= 1 << bit
            hit = sum(bound <= place for bound in BOUNDS[1:])
            assert assert_prefix(kernel, buffer) == (len(ENTRIES) if place in pads else hit)
            buffer[place] ^= 1 << bit


def test_after_every_flipped_bit_the_next_sound_record_is_found(kernel: ModuleType) -> None:
    buffer = packed(kernel, ENTRIES)
    pads = padding()
    for place in set(range(BOUNDS[-1])) - pads:
        hit = sum(bound <= place for bound in BOUNDS[1:])
        buffer[place] ^= 0x10
        following = BOUNDS[hit + 1] if hit + 1 < len(ENTRIES) else -1
        assert kernel.find_record(buffer, BOUNDS[hit] + 8, len(buffer)) == following
        buffer[place] ^= 0x10


def test_any_bytes_at_all_can_be_read_without_harm(kernel: ModuleType) -> None:
    for seed in range(300):
        noise = b"".join(kernel.crc32c(bytes([seed & 0xFF, seed >> 8, at])).to_bytes(4, "little") for at in range(32))
        sparse = bytes(byte if byte & 3 else 0 for byte in noise)
        for buffer in (noise, sparse, sparse[:8] + bytes(24) + sparse[32:]):
            entries, end, state = scan_all(kernel, buffer)
            assert (entries, end) == ([], 0)
            assert state in {kernel.BAD, kernel.EMPTY}
            kernel.skip(buffer, 0, 128, 99)
            kernel.find_timestamp(buffer, 0, 128, 2**64 - 1)
            kernel.index_records(buffer, 0, 128, 99, 1, 0)
            assert kernel.find_record(buffer, 0, 128) == -1
