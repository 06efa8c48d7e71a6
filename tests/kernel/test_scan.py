"""Reading records back: where it starts, where it stops, and why."""

import struct
from array import array
from itertools import pairwise
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tests.kernel.packing import I64_MAX, SAMPLE, U64_MAX, Entry, appender, packed, record_bytes, scan_all

END = sum(record_bytes(len(entry.payload)) for entry in SAMPLE)
OFFSETS = [0, 24, 56, 88, 128, END]


def seal(buffer: bytearray, offset: int) -> None:
    struct.pack_into("<II", buffer, offset, 0xFFFFFFFF, 1)


def test_every_record_reads_back(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    assert scan_all(kernel, buffer) == (list(SAMPLE), END, kernel.EMPTY)


@pytest.mark.parametrize("start", range(len(SAMPLE) + 1))
def test_a_scan_may_start_at_any_record(kernel: ModuleType, start: int) -> None:
    buffer = packed(kernel)
    assert scan_all(kernel, buffer, OFFSETS[start]) == (list(SAMPLE[start:]), END, kernel.EMPTY)


def test_a_scan_stops_at_the_most_records(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    for most in range(len(SAMPLE) + 1):
        records, end, state = kernel.scan(buffer, 0, len(buffer), 0, most, 2**60)
        assert (len(records), end, state) == (most, OFFSETS[most], kernel.MORE)
        assert kernel.columns(buffer, 0, len(buffer), 0, most, 2**60)[:3] == (most, end, state)


@pytest.mark.parametrize(
    ("most", "count"), [(0, 0), (1, 2), (5, 2), (6, 3), (13, 3), (14, 4), (22, 4), (23, 5), (122, 5)]
)
def test_a_scan_stops_once_it_has_the_bytes(kernel: ModuleType, most: int, count: int) -> None:
    buffer = packed(kernel)
    records, end, state = kernel.scan(buffer, 0, len(buffer), 0, 2**60, most)
    assert (len(records), end, state) == (count, OFFSETS[count], kernel.MORE)
    assert kernel.columns(buffer, 0, len(buffer), 0, 2**60, most)[:3] == (count, end, state)


def test_a_scan_never_passes_the_limit(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    for limit in range(END + 1):
        entries, end, state = kernel.scan(buffer, 0, limit, 100, 2**60, 2**60)
        whole = sum(offset <= limit for offset in OFFSETS[1:])
        assert (len(entries), end) == (whole, OFFSETS[whole])
        assert state == (kernel.END if end + 24 > limit else kernel.BAD)


def test_a_seal_ends_the_records(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    seal(buffer, END)
    assert scan_all(kernel, buffer) == (list(SAMPLE), END, kernel.SEALED)
    assert kernel.verify(buffer, 0, len(buffer))[:3] == (5, END, kernel.SEALED)
    assert kernel.columns(buffer, 0, len(buffer), 0, 99, 999)[:3] == (5, END, kernel.SEALED)
    assert kernel.skip(buffer, 0, len(buffer), 99) == (END, 5)
    assert kernel.find_timestamp(buffer, END, len(buffer), 0) == (0, END, kernel.SEALED)
    assert kernel.find_record(buffer, END, len(buffer)) == -1


def test_a_seal_without_a_mark_is_nothing(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    struct.pack_into("<I", buffer, END, 0xFFFFFFFF)
    assert scan_all(kernel, buffer) == (list(SAMPLE), END, kernel.EMPTY)


def test_a_mark_with_a_length_past_the_limit_is_bad(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    for length in (41, 1 << 20, 0xFFFFFFFE):
        struct.pack_into("<II", buffer, END, length, 1)
        assert scan_all(kernel, buffer) == (list(SAMPLE), END, kernel.BAD)
        assert kernel.skip(buffer, 0, len(buffer), 99) == (END, 5)
        assert kernel.find_timestamp(buffer, END, len(buffer), 0)[2] == kernel.BAD


def test_a_wrong_checksum_is_bad_but_can_be_hopped_over(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    buffer[OFFSETS[3] + 24] ^= 1
    assert scan_all(kernel, buffer) == (list(SAMPLE[:3]), OFFSETS[3], kernel.BAD)
    assert kernel.verify(buffer, 0, len(buffer)) == (3, OFFSETS[3], kernel.BAD, 1000, 1001, 1002, 7, 9)
    assert kernel.skip(buffer, 0, len(buffer), 99) == (END, 5)


def test_columns_are_the_records(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    count, end, state, times, ids, ends, payloads, *keys = kernel.columns(buffer, 0, len(buffer), 0, 99, 999)
    assert (count, end, state, keys) == (5, END, kernel.EMPTY, [None, None, None])
    assert array("Q", times).tolist() == [entry.timestamp_ns for entry in SAMPLE]
    assert array("Q", ids).tolist() == [entry.ext_id for entry in SAMPLE]
    places = array("i", ends).tolist()
    assert [payloads[a:b] for a, b in pairwise(places)] == [e.payload for e in SAMPLE]


def test_columns_of_nothing_are_empty(kernel: ModuleType) -> None:
    none = (0, 0, kernel.EMPTY, b"", b"", bytes(4), b"")
    assert kernel.columns(bytes(64), 0, 64, 0, 9, 9) == (*none, None, None, None)
    assert kernel.columns(bytes(64), 0, 64, 0, 9, 9, keyed=True) == (*none, b"", bytes(4), b"")


def test_columns_shrink_to_what_is_sound(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    buffer[OFFSETS[2] + 8] ^= 1
    found = kernel.columns(buffer, 0, len(buffer), 0, 99, 999)
    assert found[:3] == (2, OFFSETS[2], kernel.BAD)
    assert found[3:] == (
        struct.pack("<2Q", 1000, 1002),
        struct.pack("<2Q", 7, 8),
        struct.pack("<3i", 0, 0, 5),
        b"hello",
        None,
        None,
        None,
    )


def test_columns_make_an_arrow_array_without_a_copy(kernel: ModuleType) -> None:
    count, _, _, times, ids, ends, payloads, *_ = kernel.columns(packed(kernel), 0, END, 0, 99, 999)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(payloads)])
    values.validate(full=True)
    assert values.to_pylist() == [entry.payload for entry in SAMPLE]
    assert pa.Array.from_buffers(pa.uint64(), count, [None, pa.py_buffer(ids)]).to_pylist()[3] == U64_MAX
    assert pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(times)]).to_pylist()[4] == I64_MAX


def test_verify_sums_up_the_records(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    assert kernel.verify(buffer, 0, len(buffer)) == (5, END, kernel.EMPTY, 1000, I64_MAX, I64_MAX, 0, U64_MAX)
    assert kernel.verify(buffer, 24, 88) == (2, 88, kernel.END, 1002, 1001, 1002, 8, 9)
    assert kernel.verify(buffer, END, len(buffer)) == (0, END, kernel.EMPTY, 0, 0, 0, U64_MAX, 0)


def test_skip_hops_by_lengths(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    for count in range(8):
        hopped = min(count, 5)
        assert kernel.skip(buffer, 0, len(buffer), count) == (OFFSETS[hopped], hopped)


def test_index_records_counts_from_the_start(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    entries = [(0, 1001), (56, 1002), (128, I64_MAX)]
    assert list(struct.iter_unpack("<QQ", kernel.index_records(buffer, 0, len(buffer), 99, 2, 1001))) == entries
    assert kernel.index_records(buffer, 0, len(buffer), 0, 2, 0) == b""
    assert len(kernel.index_records(buffer, 0, len(buffer), 3, 1, 0)) == 48
    with pytest.raises(ValueError, match="interval"):
        kernel.index_records(buffer, 0, len(buffer), 1, 0, 0)


@pytest.mark.parametrize(
    ("timestamp_ns", "hopped"), [(0, 0), (1000, 0), (1001, 1), (1002, 1), (1003, 3), (1004, 4), (I64_MAX, 4)]
)
def test_find_timestamp_hops_to_the_first_that_is_not_older(kernel: ModuleType, timestamp_ns: int, hopped: int) -> None:
    buffer = packed(kernel)
    assert kernel.find_timestamp(buffer, 0, len(buffer), timestamp_ns) == (hopped, OFFSETS[hopped], kernel.MORE)


def test_find_timestamp_says_why_there_is_none(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    assert kernel.find_timestamp(buffer, 0, len(buffer), U64_MAX) == (5, END, kernel.EMPTY)
    assert kernel.find_timestamp(buffer, 0, END, U64_MAX) == (5, END, kernel.END)


def test_find_record_takes_steps_of_eight(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    expected = [next((at for at in OFFSETS[:-1] if at >= start), -1) for start in range(len(buffer) + 1)]
    assert [kernel.find_record(buffer, start, len(buffer)) for start in range(len(buffer) + 1)] == expected


def test_find_record_wants_a_whole_valid_record(kernel: ModuleType) -> None:
    buffer = packed(kernel)
    buffer[24 + 24] ^= 1
    assert kernel.find_record(buffer, 8, len(buffer)) == 56
    assert kernel.find_record(buffer, 8, 56 + 31) == -1
    assert kernel.find_record(buffer, 8, 56 + 32) == 56


@pytest.mark.parametrize("length", [0, 100, 16_000, 16_384, 20_000, 70_000])
@pytest.mark.parametrize("before", [8, 4096, 70_000, 200_000])
def test_find_record_finds_long_ones_after_noise_and_zeros(kernel: ModuleType, length: int, before: int) -> None:
    payload = bytes(index * 151 >> 3 & 0xFF for index in range(length))
    noise = struct.pack("<II", length // 2, 12345) * (before // 16) + bytes(before)
    noise = noise[: len(noise) & ~7]
    buffer = noise + packed(kernel, (Entry(5, 6, payload),), spare=4096)
    assert kernel.find_record(buffer, 0, len(buffer)) == len(noise)
    assert kernel.find_record(buffer, 1, len(buffer)) == len(noise)
    assert kernel.find_record(buffer, 0, len(noise)) == -1


def test_find_record_is_not_quadratic_in_noise(kernel: ModuleType) -> None:
    # Every word is a plausible length of nearly all that follows: 16 GiB to sum, were each summed by itself.
    words = 1 << 14
    noise = b"".join(struct.pack("<II", (words - index) * 8 - 64, 77) for index in range(words - 8))
    buffer = noise + packed(kernel, SAMPLE[:1])
    assert kernel.find_record(buffer, 0, len(buffer)) == len(noise)


def test_nonzero_end_is_just_past_the_last_byte_set(kernel: ModuleType) -> None:
    for size in (0, 1, 255, 256, 257, 70_000, 140_000):
        buffer = bytearray(size)
        assert kernel.nonzero_end(buffer, 0, size) == 0
        assert kernel.nonzero_end(buffer, size // 2, size) == size // 2
        for place in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
            buffer[place] = 0x80
            assert kernel.nonzero_end(buffer, 0, size) == place + 1
            assert kernel.nonzero_end(buffer, place, size) == place + 1
            assert kernel.nonzero_end(buffer, min(place + 1, size), size) == place + 1
            assert kernel.nonzero_end(buffer, 0, place) == 0
            buffer[place] = 0


READERS: list[tuple[str, tuple[int, ...]]] = [
    ("scan", (0, 9, 9)),
    ("columns", (0, 9, 9)),
    ("verify", ()),
    ("skip", (9,)),
    ("index_records", (9, 2, 0)),
    ("find_timestamp", (0,)),
    ("find_record", ()),
    ("nonzero_end", ()),
]


@pytest.mark.parametrize(("name", "rest"), READERS)
def test_places_outside_the_buffer_are_refused(kernel: ModuleType, name: str, rest: tuple[int, ...]) -> None:
    buffer = packed(kernel)
    size = len(buffer)
    for offset, limit in [(size + 8, size), (0, size + 1), (-8, size), (0, -1), (2**70, size), (0, 2**70)]:
        with pytest.raises(ValueError, match="outside"):
            getattr(kernel, name)(buffer, offset, limit, *rest)
    wrong: list[tuple[Any, Any]] = [("0", size), (0, None), (0.0, size)]
    for pair in wrong:
        with pytest.raises(TypeError):
            getattr(kernel, name)(buffer, *pair, *rest)


@pytest.mark.parametrize(("name", "rest"), READERS[:6])
def test_records_begin_at_multiples_of_eight(kernel: ModuleType, name: str, rest: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        getattr(kernel, name)(packed(kernel), 4, 64, *rest)


@pytest.mark.parametrize(("name", "rest"), READERS)
def test_an_offset_past_the_limit_finds_nothing(kernel: ModuleType, name: str, rest: tuple[int, ...]) -> None:
    found = getattr(kernel, name)(packed(kernel), 56, 24, *rest)
    expected: dict[str, Any] = {
        "scan": ([], 56, kernel.END),
        "columns": (0, 56, kernel.END, b"", b"", bytes(4), b"", None, None, None),
        "verify": (0, 56, kernel.END, 0, 0, 0, U64_MAX, 0),
        "skip": (56, 0),
        "index_records": b"",
        "find_timestamp": (0, 56, kernel.END),
        "find_record": -1,
        "nonzero_end": 56,
    }
    assert found == expected[name]


@pytest.mark.parametrize(("name", "rest"), READERS)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(b"?" + data)[1:]])
def test_any_contiguous_buffer_can_be_read(kernel: ModuleType, name: str, rest: tuple[int, ...], wrap: Any) -> None:
    buffer = packed(kernel)
    assert getattr(kernel, name)(wrap(buffer), 0, END, *rest) == getattr(kernel, name)(buffer, 0, END, *rest)


@pytest.mark.parametrize(("name", "rest"), READERS)
@pytest.mark.parametrize("buffer", ["text", None, 5, memoryview(bytes(128))[::2]])
def test_what_is_not_bytes_like_cannot_be_read(
    kernel: ModuleType, name: str, rest: tuple[int, ...], buffer: Any
) -> None:
    with pytest.raises(TypeError):
        getattr(kernel, name)(buffer, 0, 0, *rest)


@pytest.mark.parametrize(("name", "rest"), READERS[:6])
def test_counts_outside_u64_overflow(kernel: ModuleType, name: str, rest: tuple[int, ...]) -> None:
    for index in range(len(rest)):
        for wrong in (-1, 2**64):
            with pytest.raises(OverflowError):
                getattr(kernel, name)(packed(kernel), 0, 64, *rest[:index], wrong, *rest[index + 1 :])


def test_a_live_reader_sees_each_record_as_it_is_appended(kernel: ModuleType) -> None:
    buffer = bytearray(1024)
    writer = appender(kernel, buffer)
    for count in range(10):
        assert len(scan_all(kernel, buffer)[0]) == count
        writer.append(b"x" * count, 0, 1)
