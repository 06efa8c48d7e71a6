"""Appending one record: what is allowed, what is refused, and what is counted."""

import mmap
import struct
import time
from types import ModuleType
from typing import Any

import pytest

from tests.kernel.packing import EMPTY_STATE, SAMPLE, U64_MAX, Entry, appender, packed, scan_all


def test_nothing_is_allowed_at_first(kernel: ModuleType) -> None:
    buffer = bytearray(64)
    writer = kernel.Appender(buffer, None, 0, 0, 0, 1, *EMPTY_STATE)
    assert writer.append(b"x") == -1
    assert writer.append_many([b"x"], 0, 0, None) == 0
    assert not any(buffer)


def test_sequences_go_up_by_one(kernel: ModuleType) -> None:
    writer = appender(kernel, bytearray(256))
    assert [writer.append(b"x") for _ in range(3)] == [100, 101, 102]
    assert writer.sequence == 103


def test_a_single_append_may_end_at_the_limit_but_not_past_it(kernel: ModuleType) -> None:
    buffer = bytearray(256)
    writer = appender(kernel, buffer)
    writer.allow(31, 256, 10)
    assert writer.append(b"12345678") == -1
    assert not any(buffer)
    writer.allow(32, 256, 10)
    assert writer.append(b"12345678") == 100
    assert writer.append(b"") == -1
    assert writer.offset == 32


def test_the_segment_holds_no_more_records_than_allowed(kernel: ModuleType) -> None:
    buffer = bytearray(256)
    writer = kernel.Appender(buffer, None, 0, 0, 5, 1, 1, 1, 1, 0, 0)
    writer.allow(256, 256, 6)
    assert [writer.append(b""), writer.append(b"")] == [0, -1]
    assert writer.append_many([b""], 0, 0, None) == 0
    assert writer.count == 6


def test_a_limit_below_the_offset_allows_nothing(kernel: ModuleType) -> None:
    writer = appender(kernel, bytearray(256), offset=128)
    writer.allow(64, 64, 10)
    assert writer.append(b"") == -1
    assert writer.append_many([b""], 0, 0, None) == 0


def test_a_closed_appender_stays_closed(kernel: ModuleType) -> None:
    buffer = bytearray(256)
    writer = appender(kernel, buffer)
    writer.close()
    writer.allow(256, 256, 10)
    assert writer.append(b"") == -1
    assert writer.append_many([b""], 0, 0, None) == 0
    assert writer.append_columns(None, struct.pack("<2i", 0, 0), False, 0, 1, 0, None) == 0  # noqa: FBT003
    assert not any(buffer)


def test_release_lets_go_of_the_buffers_and_keeps_the_numbers(kernel: ModuleType) -> None:
    with mmap.mmap(-1, 4096) as buffer, mmap.mmap(-1, 4096) as wake:
        writer = appender(kernel, buffer, wake=wake)
        writer.append(b"x", 5, 6)
        with pytest.raises(BufferError):
            buffer.close()
        state, index = writer.state(), writer.index()
        writer.release()
        writer.release()
    assert writer.append(b"") == -1
    writer.allow(4096, 4096, 10)
    assert writer.append(b"") == -1
    assert (writer.state(), writer.index()) == (state, index)


def test_the_state_is_what_was_appended(kernel: ModuleType) -> None:
    buffer = bytearray(512)
    writer = appender(kernel, buffer)
    for entry in SAMPLE[:4]:
        writer.append(entry.payload, entry.ext_id, entry.timestamp_ns)
    expected = (24 + 32 + 32 + 40, 104, 4, 1000, 1003, 1003, 7, U64_MAX)
    assert writer.state() == expected
    names = ("offset", "sequence", "count", "first_timestamp_ns", "last_timestamp_ns", "max_timestamp_ns")
    assert tuple(getattr(writer, name) for name in (*names, "min_ext_id", "max_ext_id")) == expected


def test_an_appender_goes_on_from_the_numbers_it_is_given(kernel: ModuleType) -> None:
    writer = kernel.Appender(bytearray(256), None, 64, 50, 3, 2, 11, 12, 99, 5, 6)
    writer.allow(256, 256, 100)
    assert writer.state() == (64, 50, 3, 11, 12, 99, 5, 6)
    assert writer.append(b"", 1, 20) == 50
    assert writer.state() == (88, 51, 4, 11, 20, 99, 1, 6)


def test_attributes_are_only_to_be_read(kernel: ModuleType) -> None:
    writer = appender(kernel, bytearray(64))
    with pytest.raises(AttributeError):
        writer.offset = 8


def test_the_default_timestamp_is_the_system_clock(kernel: ModuleType) -> None:
    writer = appender(kernel, bytearray(256))
    before = time.time_ns()
    writer.append(b"")
    writer.append_many([b""], 0, 0, None)
    after = time.time_ns()
    assert before <= writer.first_timestamp_ns <= writer.last_timestamp_ns <= after


def test_arguments_may_be_named(kernel: ModuleType) -> None:
    buffer = bytearray(64)
    appender(kernel, buffer).append(payload=b"x", timestamp_ns=8, ext_id=9)
    assert scan_all(kernel, buffer)[0] == [Entry(8, 9, b"x")]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data)).cast("H")])
def test_any_contiguous_buffer_is_a_payload(kernel: ModuleType, wrap: Any) -> None:
    buffer = bytearray(256)
    writer = appender(kernel, buffer)
    writer.append(wrap(b"ab"), 0, 1)
    writer.append_many([wrap(b"cd"), b"ef"], 0, 0, 1)
    assert [entry.payload for entry in scan_all(kernel, buffer)[0]] == [b"ab", b"cd", b"ef"]


@pytest.mark.parametrize("payload", ["text", 5, None, [1], memoryview(b"abcd")[::2]])
def test_what_is_not_bytes_like_is_refused_and_nothing_written(kernel: ModuleType, payload: Any) -> None:
    buffer = bytearray(256)
    writer = appender(kernel, buffer)
    with pytest.raises(TypeError):
        writer.append(payload)
    with pytest.raises(TypeError):
        writer.append_many([b"a", payload], 0, 0, None)
    assert not any(buffer)
    assert writer.state() == (0, 100, 0, *EMPTY_STATE)


@pytest.mark.parametrize(("ext_id", "timestamp_ns"), [(-1, 1), (2**64, 1), (0, -1), (0, 2**63), (0, 2**64)])
def test_numbers_out_of_range_overflow_and_nothing_is_written(
    kernel: ModuleType, ext_id: int, timestamp_ns: int
) -> None:
    buffer = bytearray(256)
    writer = appender(kernel, buffer)
    with pytest.raises(OverflowError):
        writer.append(b"x", ext_id, timestamp_ns)
    with pytest.raises(OverflowError):
        writer.append_many([b"x"], 0, ext_id, timestamp_ns)
    assert not any(buffer)


@pytest.mark.parametrize(("ext_id", "timestamp_ns"), [("1", 1), (1.0, 1), (0, 1.0)])
def test_numbers_that_are_none_are_refused(kernel: ModuleType, ext_id: Any, timestamp_ns: Any) -> None:
    writer = appender(kernel, bytearray(256))
    with pytest.raises(TypeError):
        writer.append(b"x", ext_id, timestamp_ns)


def test_a_payload_may_come_from_the_same_buffer(kernel: ModuleType) -> None:
    buffer = packed(kernel, spare=256)
    writer = appender(kernel, buffer, offset=len(buffer) - 256)
    writer.append(memoryview(buffer)[24 + 24 : 24 + 24 + 5], 1, 2)
    assert scan_all(kernel, buffer)[0] == [*SAMPLE, Entry(2, 1, b"hello")]


@pytest.mark.parametrize(
    ("offset", "sequence", "interval", "error"),
    [
        (-8, 0, 1, ValueError),
        (72, 0, 1, ValueError),
        (4, 0, 1, ValueError),
        (2**70, 0, 1, ValueError),
        (0, 0, 0, ValueError),
        (0, 2**63, 1, OverflowError),
        (0, -1, 1, OverflowError),
        (0, 0, -1, OverflowError),
    ],
)
def test_an_appender_checks_where_it_starts(
    kernel: ModuleType, offset: int, sequence: int, interval: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        kernel.Appender(bytearray(64), None, offset, sequence, 0, interval, *EMPTY_STATE)


@pytest.mark.parametrize("buffer", [b"only to be read", "text", memoryview(bytearray(64))[::2]])
def test_an_appender_needs_a_writable_contiguous_buffer(kernel: ModuleType, buffer: Any) -> None:
    with pytest.raises(TypeError):
        kernel.Appender(buffer, None, 0, 0, 0, 1, *EMPTY_STATE)
    with pytest.raises(TypeError):
        kernel.Appender(bytearray(64), buffer, 0, 0, 0, 1, *EMPTY_STATE)


def test_a_wake_buffer_has_eight_bytes(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        kernel.Appender(bytearray(64), bytearray(7), 0, 0, 0, 1, *EMPTY_STATE)


@pytest.mark.parametrize(("limit", "hard"), [(65, 64), (64, 65), (-1, 0), (0, -1), (2**70, 0)])
def test_limits_lie_inside_the_buffer(kernel: ModuleType, limit: int, hard: int) -> None:
    writer = appender(kernel, bytearray(64))
    with pytest.raises(ValueError, match="outside"):
        writer.allow(limit, hard, 1)


def test_an_appender_on_no_memory_takes_nothing(kernel: ModuleType) -> None:
    writer = appender(kernel, bytearray())
    assert writer.append(b"") == -1
    assert writer.append_many([b""], 0, 0, None) == 0


@pytest.mark.parametrize("interval", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("before", [0, 1, 2, 6])
def test_the_index_has_every_so_manieth_record(kernel: ModuleType, interval: int, before: int) -> None:
    buffer = bytearray(4096)
    writer = kernel.Appender(buffer, None, 8, 0, before, interval, 0, 0, 15, 0, 0)
    writer.allow(4096, 4096, 1000)
    times = [10, 20, 15, 30, 5, 40, 35, 36, 50, 3]
    expected, newest = [], 15
    for ordinal, timestamp_ns in enumerate(times, before):
        offset = writer.offset
        newest = max(newest, timestamp_ns)
        if ordinal % interval == 0:
            expected.append((offset, newest))
        writer.append(b"x" * ordinal, 0, timestamp_ns)
    assert list(struct.iter_unpack("<QQ", writer.index())) == expected


def test_the_index_read_back_is_the_index_written(kernel: ModuleType) -> None:
    buffer = bytearray(4096)
    writer = appender(kernel, buffer, interval=3)
    for ordinal in range(20):
        writer.append(b"x" * ordinal, 0, 1000 + ordinal * 7 % 11)
    assert kernel.index_records(buffer, 0, 4096, 100, 3, 0) == writer.index()
