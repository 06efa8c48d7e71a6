"""Appending many records as one."""

import struct
from array import array
from itertools import cycle
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tests.kernel.packing import EMPTY_STATE, I64_MAX, U64_MAX, Entry, appender, record_bytes, scan_all

MIB = 1 << 20


def columns_of(payloads: list[bytes], *, wide: bool = False) -> tuple[bytes, bytes]:
    """Return the data and the offsets of an Arrow array."""
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + len(payload))
    return b"".join(payloads), struct.pack(f"<{len(ends)}{'q' if wide else 'i'}", *ends)


def test_a_batch_reads_back_as_its_payloads(kernel: ModuleType) -> None:
    buffer = bytearray(1024)
    writer = appender(kernel, buffer)
    payloads = [b"", b"a", b"12345678", b"x" * 50]
    assert writer.append_many(payloads, 0, 3, 4) == 4
    assert scan_all(kernel, buffer)[0] == [Entry(4, 3, payload) for payload in payloads]
    assert writer.state()[1:] == (104, 4, 4, 4, 4, 3, 3)


def test_a_batch_may_be_a_tuple_and_start_anywhere(kernel: ModuleType) -> None:
    buffer = bytearray(1024)
    writer = appender(kernel, buffer)
    assert writer.append_many((b"a", b"b", b"c"), 1, 0, 1) == 2
    assert writer.append_many([b"d"], 1, 0, 1) == 0
    assert writer.append_many([b"d"], 99, 0, 1) == 0
    assert writer.append_many([], 0, 0, 1) == 0
    assert [entry.payload for entry in scan_all(kernel, buffer)[0]] == [b"b", b"c"]


@pytest.mark.parametrize("payloads", [{b"a"}, iter([b"a"]), b"bytes", "text", 5, None])
def test_only_a_list_or_a_tuple_is_a_batch(kernel: ModuleType, payloads: Any) -> None:
    with pytest.raises(TypeError):
        appender(kernel, bytearray(1024)).append_many(payloads, 0, 0, None)


def test_a_negative_start_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="outside"):
        appender(kernel, bytearray(1024)).append_many([b"a"], -1, 0, None)


@pytest.mark.parametrize("wrap", [lambda numbers: numbers, bytes, memoryview])
def test_each_record_may_have_its_own_numbers(kernel: ModuleType, wrap: Any) -> None:
    buffer = bytearray(1024)
    ids, times = wrap(array("Q", [1, 2, U64_MAX])), wrap(array("Q", [30, I64_MAX, 10]))
    writer = appender(kernel, buffer)
    assert writer.append_many([b"a", b"b", b"c"], 1, ids, times) == 2
    assert scan_all(kernel, buffer)[0] == [Entry(I64_MAX, 2, b"b"), Entry(10, U64_MAX, b"c")]
    assert writer.state()[3:] == (I64_MAX, 10, I64_MAX, 2, U64_MAX)


def test_numbers_may_come_from_unaligned_memory(kernel: ModuleType) -> None:
    buffer = bytearray(1024)
    ids = memoryview(b"?" + struct.pack("<2Q", 5, 6))[1:]
    assert appender(kernel, buffer).append_many([b"a", b"b"], 0, ids, 1) == 2
    assert [entry.ext_id for entry in scan_all(kernel, buffer)[0]] == [5, 6]


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        (array("Q", [1]), ValueError),
        (b"1234567", ValueError),
        (array("d", [1, 2]), TypeError),
        (array("q", [1, 2]), TypeError),
        (array("I", [1, 2, 3, 4]), TypeError),
        (memoryview(array("Q", range(4)))[::2], TypeError),
        ([1, 2], TypeError),
        ("12", TypeError),
        (-1, OverflowError),
        (2**64, OverflowError),
    ],
)
def test_numbers_are_checked_and_nothing_is_written(kernel: ModuleType, numbers: Any, error: type[Exception]) -> None:
    buffer = bytearray(1024)
    writer = appender(kernel, buffer)
    data, offsets = columns_of([b"a", b"b"])
    with pytest.raises(error):
        writer.append_many([b"a", b"b"], 0, numbers, 1)
    with pytest.raises(error):
        writer.append_many([b"a", b"b"], 0, 1, numbers)
    with pytest.raises(error):
        writer.append_columns(data, offsets, False, 0, 2, numbers, 1)  # noqa: FBT003
    assert not any(buffer)
    assert writer.state() == (0, 100, 0, *EMPTY_STATE)


def test_only_the_timestamps_that_will_be_packed_are_looked_at(kernel: ModuleType) -> None:
    buffer = bytearray(1024)
    writer = appender(kernel, buffer)
    times = array("Q", [1, 2, I64_MAX + 1])
    data, offsets = columns_of([b"a", b"b", b"c"])
    with pytest.raises(OverflowError):
        writer.append_many([b"a", b"b", b"c"], 0, 0, times)
    with pytest.raises(OverflowError):
        writer.append_many([b"a", bytearray(b"b"), b"c"], 0, 0, times)
    with pytest.raises(OverflowError):
        writer.append_columns(data, offsets, False, 0, 3, 0, times)  # noqa: FBT003
    assert not any(buffer)
    writer.allow(0, 64, 10)
    assert writer.append_many([b"a", b"b", b"c"], 0, 0, times) == 2


def test_a_batch_takes_what_ends_at_or_below_hard(kernel: ModuleType) -> None:
    for hard in range(0, 104, 8):
        buffer = bytearray(1024)
        writer = appender(kernel, buffer)
        writer.allow(0, hard, 10)
        taken = writer.append_many([b"1234", b"5678", b"9"], 0, 0, 1)
        assert taken == hard // 32
        assert len(scan_all(kernel, buffer)[0]) == taken
        assert not any(buffer[writer.offset :])


def test_a_batch_stops_at_the_records_allowed(kernel: ModuleType) -> None:
    for records in range(5):
        writer = appender(kernel, bytearray(1024))
        writer.allow(1024, 1024, records)
        assert writer.append_many([b"a", b"b", b"c"], 0, 0, 1) == min(records, 3)


def test_what_comes_after_the_room_is_full_is_not_looked_at(kernel: ModuleType) -> None:
    broken: Any = [b"1234", b"5678", None]
    writer = appender(kernel, bytearray(1024))
    writer.allow(0, 64, 10)
    assert writer.append_many(broken, 0, 0, 1) == 2
    writer = appender(kernel, bytearray(1024))
    writer.allow(0, 1024, 2)
    assert writer.append_many(broken, 0, 0, 1) == 2
    writer = appender(kernel, bytearray(1024))
    writer.allow(0, 80, 10)
    assert writer.append_many([b"1234", b"5678", b"9"], 0, 0, 1) == 2
    with pytest.raises(TypeError):
        appender(kernel, bytearray(1024)).append_many(broken, 0, 0, 1)


def test_one_call_packs_at_most_four_mebibytes(kernel: ModuleType) -> None:
    buffer = bytearray(9 * MIB)
    writer = appender(kernel, buffer)
    payloads = [b"x" * 1000] * 8200
    assert [writer.append_many(payloads, start, 0, 1) for start in (0, 4096, 8192)] == [4096, 4096, 8]
    assert 4096 * record_bytes(1000) == 4 * MIB
    assert kernel.verify(buffer, 0, len(buffer))[0] == 8200


def test_exactly_four_mebibytes_fit_one_call(kernel: ModuleType) -> None:
    writer = appender(kernel, bytearray(9 * MIB))
    half = b"x" * (2 * MIB - 24)
    assert writer.append_many([half, half, b""], 0, 0, 1) == 2
    assert writer.append_many([half, half + b"y"], 0, 0, 1) == 1


def test_the_first_payload_may_pass_four_mebibytes(kernel: ModuleType) -> None:
    writer = appender(kernel, bytearray(11 * MIB))
    huge = b"x" * (5 * MIB)
    assert writer.append_many([huge, b"", b""], 0, 0, 1) == 1
    assert writer.append_many([b"", huge], 0, 0, 1) == 1
    assert writer.append_many([huge], 0, 0, 1) == 1
    assert writer.append_many([huge], 0, 0, 1) == 0


def test_the_index_of_a_batch_is_that_of_single_appends(kernel: ModuleType) -> None:
    times = array("Q", [index * 7919 % 1013 for index in range(500)])
    payloads = [b"x" * (index % 40) for index in range(500)]
    for interval in (1, 3, 64, 499, 500, 501):
        single = appender(kernel, bytearray(1 << 16), interval=interval)
        for payload, timestamp_ns in zip(payloads, times, strict=True):
            single.append(payload, 0, timestamp_ns)
        batched = appender(kernel, bytearray(1 << 16), interval=interval)
        assert batched.append_many(payloads[:123], 0, 0, times[:123]) == 123
        assert batched.append_many(payloads, 123, 0, times) == 377
        assert batched.index() == single.index()
        assert batched.state() == single.state()


@pytest.mark.parametrize("wide", [False, True])
def test_columns_pack_the_same_bytes_as_a_list(kernel: ModuleType, wide: bool) -> None:  # noqa: FBT001
    payloads = [b"", b"a", b"12345678", b"x" * 50, b"last"]
    data, offsets = columns_of(payloads, wide=wide)
    ids, times = array("Q", range(5)), array("Q", range(50, 55))
    listed, packed = bytearray(1024), bytearray(1024)
    assert appender(kernel, listed).append_many(payloads, 1, ids, times) == 4
    assert appender(kernel, packed).append_columns(data, offsets, wide, 1, 5, ids, times) == 4
    assert packed == listed


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_the_buffers_of_an_arrow_array_are_columns(kernel: ModuleType, kind: Any) -> None:
    payloads = [b"zero", b"one", b"", b"three", b"four"]
    values = pa.array(payloads, type=kind).slice(1, 3)
    _, offsets, data = values.buffers()
    buffer = bytearray(1024)
    first = values.offset
    taken = appender(kernel, buffer).append_columns(
        data, offsets, kind == pa.large_binary(), first, first + len(values), 0, 1
    )
    assert taken == 3
    assert [entry.payload for entry in scan_all(kernel, buffer)[0]] == payloads[1:4]


@pytest.mark.parametrize("data", [None, b"", pa.py_buffer(b"")])
def test_empty_payloads_need_no_data(kernel: ModuleType, data: Any) -> None:
    buffer = bytearray(1024)
    assert appender(kernel, buffer).append_columns(data, bytes(12), False, 0, 2, 0, 1) == 2  # noqa: FBT003
    assert scan_all(kernel, buffer)[0] == [Entry(1, 0, b"")] * 2


def test_columns_stop_where_a_list_would(kernel: ModuleType) -> None:
    data, offsets = columns_of([b"1234", b"5678", b"9"])
    for hard in range(0, 104, 8):
        writer = appender(kernel, bytearray(1024))
        writer.allow(0, hard, 10)
        assert writer.append_columns(data, offsets, False, 0, 3, 0, 1) == hard // 32  # noqa: FBT003
    data, offsets = columns_of([b"x" * 3 * MIB, b"y" * 2 * MIB])
    writer = appender(kernel, bytearray(6 * MIB))
    assert writer.append_columns(data, offsets, False, 0, 2, 0, 1) == 1  # noqa: FBT003
    assert writer.append_columns(data, offsets, False, 1, 2, 0, 1) == 1  # noqa: FBT003


@pytest.mark.parametrize(
    ("ends", "wide"),
    [
        ([0, 5], False),
        ([2, 1], False),
        ([-1, 1], False),
        ([0, -1], False),
        ([0, 2**31 - 1], False),
        ([0, 2**40], True),
        ([-(2**63), 2], True),
        ([2, 1], True),
    ],
)
def test_offsets_outside_the_data_are_refused(kernel: ModuleType, ends: list[int], wide: bool) -> None:  # noqa: FBT001
    buffer = bytearray(1024)
    offsets = struct.pack(f"<3{'q' if wide else 'i'}", 0, *ends)
    with pytest.raises(ValueError, match="offsets"):
        appender(kernel, buffer).append_columns(b"abcd", offsets, wide, 0, 2, 0, 1)
    assert not any(buffer)


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (3, 3), (-1, 1), (0, -1), (0, 2**70)])
def test_columns_have_as_many_offsets_as_they_say(kernel: ModuleType, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match=r"offset|outside"):
        appender(kernel, bytearray(1024)).append_columns(b"ab", bytes(12), False, start, stop, 0, 1)  # noqa: FBT003


def test_a_staged_batch_is_not_there_before_it_is_written(kernel: ModuleType) -> None:
    buffer, scratch, direct = bytearray(1024), bytearray(256), bytearray(1024)
    writer, other = appender(kernel, buffer, offset=8), appender(kernel, direct, offset=8)
    payloads = [b"one", b"two", b"three"]
    before = writer.state()
    assert writer.append_many(payloads, 0, 5, 6, scratch) == 3
    assert (writer.state(), writer.index()) == (before, b"")
    assert writer.staged_bytes == 96
    assert not any(buffer)
    buffer[8 : 8 + 96] = scratch[:96]
    writer.count_staged()
    other.append_many(payloads, 0, 5, 6)
    assert buffer == direct
    assert (writer.state(), writer.index(), writer.staged_bytes) == (other.state(), other.index(), 0)
    assert writer.append(b"after", 0, 7) == 103


def test_a_single_append_drops_a_batch_that_was_staged_and_never_written(kernel: ModuleType) -> None:
    buffer, scratch = bytearray(1024), bytearray(256)
    writer = appender(kernel, buffer, offset=8)
    assert writer.append_many([b"one", b"two"], 0, 0, 1, scratch) == 2
    sequence = writer.append(b"instead", 0, 2)
    writer.count_staged()
    assert writer.staged_bytes == 0
    assert [record.payload for record in scan_all(kernel, buffer, 8)[0]] == [b"instead"]
    assert writer.sequence == sequence + 1


def test_a_scratch_buffer_bounds_what_is_staged(kernel: ModuleType) -> None:
    data, offsets = columns_of([b"1234"] * 9)
    for size in range(0, 104, 8):
        writer = appender(kernel, bytearray(1024))
        scratch = bytearray(b"\xff" * size)
        assert writer.append_many([b"1234"] * 9, 0, 0, 1, scratch) == size // 32
        assert writer.staged_bytes == size // 32 * 32
        assert writer.append_columns(data, offsets, False, 0, 9, 0, 1, scratch) == size // 32  # noqa: FBT003
        assert writer.staged_bytes == size // 32 * 32
        assert scratch[size // 32 * 32 :] == b"\xff" * (size % 32)


@pytest.mark.parametrize("lengths", [[100], [1001], [1024], [70_000], [0], [100, 101]])
def test_a_long_staged_batch_is_the_same_bytes_as_single_appends(kernel: ModuleType, lengths: list[int]) -> None:
    count = min(2500, 300_000 // (max(lengths) + 1))
    payloads = [bytes([number % 251]) * length for number, length in zip(range(count), cycle(lengths), strict=False)]
    size = sum(record_bytes(len(payload)) for payload in payloads)
    scratch, singly = bytearray(b"\xff" * (size + 8)), bytearray(size)
    assert appender(kernel, bytearray(size)).append_many(payloads, 0, 7, 9, scratch) == count
    writer = appender(kernel, singly)
    for payload in payloads:
        assert writer.append(payload, 7, 9) >= 0
    assert scratch[:size] == singly
    assert scratch[size:] == b"\xff" * 8


def test_a_staged_batch_is_dropped_by_the_next_one_and_by_close(kernel: ModuleType) -> None:
    buffer, scratch = bytearray(1024), bytearray(256)
    writer = appender(kernel, buffer)
    writer.count_staged()
    assert writer.append_many([b"dropped", b"too"], 0, 0, 1, scratch) == 2
    assert writer.append_many([b"kept"], 0, 0, 1) == 1
    writer.count_staged()
    assert scan_all(kernel, buffer)[0] == [Entry(1, 0, b"kept")]
    assert writer.append_many([b"dropped"], 0, 0, 1, scratch) == 1
    writer.close()
    writer.count_staged()
    assert (writer.count, writer.staged_bytes) == (1, 0)


def test_a_scratch_buffer_is_writable(kernel: ModuleType) -> None:
    with pytest.raises(TypeError):
        appender(kernel, bytearray(64)).append_many([b"x"], 0, 0, 1, bytes(64))
