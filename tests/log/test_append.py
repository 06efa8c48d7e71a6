"""Appending: one record, a batch, an Arrow array."""

from array import array
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latewood
from latewood import Queue, RecordTooLarge, UsageError
from latewood.format.record import payload_bytes_max
from latewood.format.segment import HEADER_SIZE
from latewood.testing import MemFS
from tests.log.desk import ROOT, SEGMENT_BYTES, Desk, payloads, sealed_ids

LARGEST = payload_bytes_max(SEGMENT_BYTES - HEADER_SIZE)


def written(log: Queue) -> list[tuple[int, int, bytes]]:
    return [(record.timestamp_ns, record.ext_id, record.payload) for record in log.scan()]


# -- one record ---------------------------------------------------------------------------------------


def test_sequences_count_from_0(desk: Desk) -> None:
    log = desk.open()
    assert [log.append(payload) for payload in (b"a", b"b", b"c")] == [0, 1, 2]
    assert log.next_sequence == 3
    assert payloads(log) == [b"a", b"b", b"c"]


def test_sequences_survive_reopening(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"x"] * 200)
    with desk.open() as log:
        assert log.append(b"y") == 200
        log.roll()
    with desk.open() as log:
        assert log.append(b"z") == 201
        assert payloads(log) == [b"x"] * 200 + [b"y", b"z"]


def test_a_record_carries_the_time_of_the_clock_and_no_ext_id(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    desk.clock.advance(5)
    log.append_many([b"b", b"c"])
    now = desk.clock.now_ns()
    assert written(log) == [(now - 5, 0, b"a"), (now, 0, b"b"), (now, 0, b"c")]


def test_a_record_carries_the_time_and_ext_id_that_the_caller_gives(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a", ext_id=2**64 - 1, timestamp_ns=0)
    log.append(b"b", ext_id=1, timestamp_ns=2**63 - 1)
    assert written(log) == [(0, 2**64 - 1, b"a"), (2**63 - 1, 1, b"b")]


@pytest.mark.parametrize("payload", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], array("B", b"abc")])
def test_any_bytes_like_is_a_payload(desk: Desk, payload: Any) -> None:
    log = desk.open()
    log.append(payload)
    log.append_many([payload])
    assert payloads(log) == [b"abc", b"abc"]


def test_a_payload_may_be_empty(desk: Desk) -> None:
    with desk.open() as log:
        log.append(b"")
        log.append_many([b"", b"x", b""])
    assert payloads(desk.open()) == [b"", b"", b"x", b""]


@pytest.mark.parametrize("payload", ["text", None, 7, [b"x"]])
def test_what_is_not_bytes_like_is_refused_and_nothing_is_written(desk: Desk, payload: Any) -> None:
    log = desk.open()
    with pytest.raises(TypeError):
        log.append(payload)
    with pytest.raises(TypeError):
        log.append_many([b"before", payload])
    assert payloads(log) == []
    assert log.append(b"after") == 0


@pytest.mark.parametrize("timestamp_ns", [-1, 2**63, 2**64])
def test_a_time_that_the_formats_cannot_hold_is_refused_and_nothing_is_written(desk: Desk, timestamp_ns: int) -> None:
    log = desk.open()
    with pytest.raises((UsageError, OverflowError)):
        log.append(b"x", timestamp_ns=timestamp_ns)
    with pytest.raises(UsageError, match="timestamps_ns"):
        log.append_many([b"x"], timestamps_ns=timestamp_ns)
    assert payloads(log) == []
    log.append(b"y")
    assert log.roll() == 0


def test_the_times_of_a_batch_are_checked_one_by_one_before_anything_is_written(desk: Desk) -> None:
    log = desk.open()
    with pytest.raises(UsageError, match="timestamps_ns"):
        log.append_many([b"x", b"y"], timestamps_ns=[1, 2**63])
    with pytest.raises(OverflowError):
        log.append_many([b"x", b"y"], timestamps_ns=[1, -1])
    assert payloads(log) == []


@pytest.mark.parametrize("ext_id", [-1, 2**64])
def test_an_ext_id_that_the_format_cannot_hold_is_refused_and_nothing_is_written(desk: Desk, ext_id: int) -> None:
    log = desk.open()
    for attempt in (
        lambda: log.append(b"x", ext_id=ext_id),
        lambda: log.append_many([b"x"], ext_id=ext_id),
        lambda: log.append_many([b"x"], ext_ids=[ext_id]),
    ):
        with pytest.raises((OverflowError, UsageError)):
            attempt()
    assert payloads(log) == []


# -- too large ----------------------------------------------------------------------------------------


def test_the_largest_payload_fits_a_segment_exactly(desk: Desk) -> None:
    log = desk.open()
    for _ in range(3):
        log.append(bytes(LARGEST))
    assert sealed_ids(log) == [0, 1]
    assert desk.footer(0).index_offset == SEGMENT_BYTES


def test_a_record_that_no_segment_could_hold_is_refused_and_nothing_is_written(desk: Desk) -> None:
    log = desk.open()
    log.append(b"before")
    before = desk.raw(desk.segment_paths()[0])
    with pytest.raises(RecordTooLarge) as caught:
        log.append(bytes(LARGEST + 1))
    assert (caught.value.payload_bytes, caught.value.payload_bytes_max) == (LARGEST + 1, LARGEST)
    assert desk.raw(desk.segment_paths()[0]) == before
    assert len(desk.segment_paths()) == 1
    assert log.append(b"after") == 1


def test_one_record_too_large_refuses_its_whole_batch(desk: Desk) -> None:
    log = desk.open()
    before = desk.raw(desk.segment_paths()[0])
    for kind in (list, pa.array):
        with pytest.raises(RecordTooLarge):
            log.append_many(kind([b"x", bytes(LARGEST + 1), b"y"]))
    assert desk.raw(desk.segment_paths()[0]) == before
    assert log.next_sequence == 0


# -- batches ------------------------------------------------------------------------------------------


def test_a_batch_gets_neighbouring_sequences(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    assert log.append_many([b"b", b"c"]) == range(1, 3)
    assert log.append_many([]) == range(3, 3)
    assert payloads(log) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("make", [list, tuple, iter, lambda payloads: (payload for payload in payloads)])
def test_a_batch_may_be_any_iterable(desk: Desk, make: Callable[[list[bytes]], Any]) -> None:
    log = desk.open()
    assert log.append_many(make([b"a", b"b"])) == range(2)
    assert payloads(log) == [b"a", b"b"]


def test_a_batch_goes_on_over_as_many_segments_as_it_needs(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=512)
    batch = [str(number).encode() * 10 for number in range(100)]
    assert log.append_many(batch) == range(100)
    assert payloads(log) == batch
    assert log.stats().segment_count > 5


def test_a_batch_has_one_ext_id_and_time_for_all_or_one_for_each(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=512)
    log.append_many([b"a", b"b"], ext_id=3, timestamps_ns=7)
    log.append_many([b"x"] * 30, ext_ids=range(30), timestamps_ns=iter(range(100, 130)))
    expected = [(7, 3, b"a"), (7, 3, b"b")] + [(100 + number, number, b"x") for number in range(30)]
    assert written(log) == expected


@pytest.mark.parametrize("column", ["ext_ids", "timestamps_ns"])
def test_a_column_of_another_length_is_refused_and_nothing_is_written(desk: Desk, column: str) -> None:
    log = desk.open()
    for payloads_of_batch in ([b"a", b"b"], pa.array([b"a", b"b"])):
        columns: dict[str, Any] = {column: [1, 2, 3]}
        with pytest.raises(UsageError, match=f"{column} has 3 values for 2 payloads"):
            log.append_many(payloads_of_batch, **columns)
    assert payloads(log) == []


def test_the_order_of_a_caller_s_times_is_kept_as_it_is(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"a", b"b", b"c"], timestamps_ns=[30, 10, 20])
    assert [timestamp_ns for timestamp_ns, _, _ in written(log)] == [30, 10, 20]


# -- Arrow --------------------------------------------------------------------------------------------

VALUES = [b"first", b"", b"third value", b"4"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(VALUES, pa.binary()),
        pa.array(VALUES, pa.large_binary()),
        pa.array([value.decode() for value in VALUES], pa.string()),
        pa.array([value.decode() for value in VALUES], pa.large_string()),
        pa.array([b"before", *VALUES, b"after"], pa.binary())[1:5],
        pa.array([b"before", *VALUES, b"after"], pa.large_binary()).slice(1, 4),
        pa.chunked_array([VALUES[:1], [], VALUES[1:]], pa.binary()),
        pa.chunked_array([[b"before", *VALUES, b"after"]], pa.binary())[1:5],
    ],
    ids=["binary", "large", "string", "large string", "slice", "large slice", "chunked", "sliced chunked"],
)
def test_an_arrow_array_is_a_batch(desk: Desk, values: Any) -> None:
    log = desk.open()
    log.append(b"x")
    assert log.append_many(values, ext_ids=[5, 6, 7, 8], timestamps_ns=[1, 2, 3, 4]) == range(1, 5)
    assert written(log)[1:] == [(1, 5, b"first"), (2, 6, b""), (3, 7, b"third value"), (4, 8, b"4")]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([], pa.binary()),
        pa.array([b"a"], pa.binary())[:0],
        pa.chunked_array([], pa.large_binary()),
        pa.Array.from_buffers(pa.binary(), 0, [None, None, pa.py_buffer(b"")]),
    ],
    ids=["empty", "empty slice", "no chunk", "no buffers"],
)
def test_an_empty_arrow_array_appends_nothing(desk: Desk, values: Any) -> None:
    log = desk.open()
    assert log.append_many(values) == range(0)


def test_nulls_are_refused_and_nothing_is_written(desk: Desk) -> None:
    log = desk.open()
    with pytest.raises(UsageError, match="1 of the payloads are null"):
        log.append_many(pa.array([b"a", None, b"b"]))
    assert payloads(log) == []


def test_nulls_outside_a_slice_do_not_matter(desk: Desk) -> None:
    log = desk.open()
    assert log.append_many(pa.array([None, b"a", b"b", None])[1:3]) == range(2)
    assert payloads(log) == [b"a", b"b"]


@pytest.mark.parametrize(
    "values",
    [pa.array([1, 2]), pa.array([b"a"]).dictionary_encode(), pa.table({"a": [b"x"]}), pa.scalar(b"x")],
    ids=["numbers", "dictionary", "table", "scalar"],
)
def test_an_arrow_object_of_another_kind_is_refused(desk: Desk, values: Any) -> None:
    log = desk.open()
    with pytest.raises(UsageError, match="payloads must be"):
        log.append_many(values)


@given(st.lists(st.binary(max_size=60), max_size=60), st.data())
def test_an_arrow_batch_writes_the_bytes_that_a_list_does(values: list[bytes], data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, 9), min_size=len(values), max_size=len(values)))
    cut = data.draw(st.integers(0, len(values)))
    kind = data.draw(st.sampled_from([pa.binary(), pa.large_binary()]))
    written = []
    for batch in (values[cut:], pa.array(values, kind)[cut:]):
        with Desk() as desk, desk.open(segment_bytes_max=512) as log:
            log.append_many(batch, ext_ids=ids[cut:])
            written.append([desk.raw(path) for path in desk.segment_paths()])
    assert written[0] == written[1]


# -- every way to append ------------------------------------------------------------------------------


def test_the_system_clock_is_used_where_no_other_is_given() -> None:
    with latewood.open(ROOT, fs=MemFS(), segment_bytes_max=SEGMENT_BYTES, background=False) as log:
        log.append(b"a")
        log.append_many([b"b"])
        first, second = log.scan()
    assert 1_700_000_000_000_000_000 < first.timestamp_ns <= second.timestamp_ns


@given(st.lists(st.lists(st.binary(max_size=200), max_size=8), max_size=12), st.integers(512, 1200))
def test_whatever_is_appended_is_read_back_in_order(batches: list[list[bytes]], segment_bytes_max: int) -> None:
    with Desk() as desk:
        log = desk.open(segment_bytes_max=segment_bytes_max)
        for batch in batches:
            if len(batch) == 1:
                log.append(batch[0])
            else:
                log.append_many(batch)
        expected = [payload for batch in batches for payload in batch]
        assert payloads(log) == expected
        log.close()
        assert payloads(desk.open(segment_bytes_max=segment_bytes_max)) == expected
