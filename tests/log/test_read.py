"""Reading by sequence and by time, as records and as Arrow."""

import datetime as dt
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood import CorruptError, DataLost, ManifestCorrupted, NotFoundError, Queue, Record, UsageError, kernel
from latewood.format import keyed
from latewood.format.segment import HEADER_SIZE
from latewood.limits import ARROW_RECORDS_MAX, READ_RECORDS_MAX
from tests.log.desk import Desk, payloads


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def filled(desk: Desk, count: int = 100) -> Queue:
    """A log of several segments whose payloads are their sequences."""
    log = desk.open(segment_bytes_max=512)
    log.append_many(numbered(count), ext_ids=range(count), timestamps_ns=range(1_000, 1_000 + count))
    return log


def without_first_segment(desk: Desk) -> Queue:
    log = filled(desk)
    log.reader("all", start="latest").close()
    log._writer.retire(0)
    assert log.first_sequence > 0
    return log


# -- read ---------------------------------------------------------------------------------------------


def test_every_record_can_be_read_by_its_sequence(desk: Desk) -> None:
    log = filled(desk)
    for sequence in [*range(100), 50, 3]:
        expected = Record(sequence, 1_000 + sequence, sequence, str(sequence).encode())
        assert log.read(sequence) == expected


@pytest.mark.parametrize("beyond", [0, 1, 10**6])
def test_a_record_that_is_not_written_yet_is_not_found(desk: Desk, beyond: int) -> None:
    log = filled(desk)
    with pytest.raises(NotFoundError, match="the next will be 100"):
        log.read(100 + beyond)


def test_a_negative_sequence_is_refused(desk: Desk) -> None:
    log = filled(desk)
    with pytest.raises(UsageError, match="0 or more"):
        log.read(-1)
    with pytest.raises(UsageError, match="0 or more"):
        list(log.scan(-5))


def test_a_retired_record_is_data_lost_with_its_range(desk: Desk) -> None:
    log = without_first_segment(desk)
    first = log.first_sequence
    with pytest.raises(DataLost) as caught:
        log.read(2)
    assert (caught.value.start, caught.value.stop) == (2, first)
    assert log.read(first).sequence == first


# -- scan ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, range(100)),
        (None, 5, range(5)),
        (95, None, range(95, 100)),
        (13, 57, range(13, 57)),
        (0, 100, range(100)),
        (90, 1_000, range(90, 100)),
        (50, 50, range(0)),
        (60, 50, range(0)),
        (100, None, range(0)),
        (101, None, range(0)),
        (10**9, None, range(0)),
    ],
)
def test_a_scan_goes_from_start_to_stop(desk: Desk, start: int | None, stop: int | None, expected: range) -> None:
    log = filled(desk)
    for each in (log, desk.open_to_read()):
        assert [record.sequence for record in each.scan(start, stop)] == list(expected)
        assert each.to_arrow(start, stop)["sequence"].to_pylist() == list(expected)


def test_a_scan_sees_what_is_appended_while_it_runs(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=512)
    log.append(b"0")
    found = []
    for record in log.scan():
        found.append(record.payload)
        if record.sequence < 60:
            log.append(str(record.sequence + 1).encode())
    assert found == numbered(61)


def test_a_scan_begins_where_the_log_does(desk: Desk) -> None:
    log = without_first_segment(desk)
    assert next(log.scan()).sequence == log.first_sequence
    with pytest.raises(DataLost):
        list(log.scan(0))


def test_more_records_than_one_read_hands_out_are_scanned(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=1 << 20)
    count = 2 * READ_RECORDS_MAX + 5
    log.append_many(numbered(count))
    assert payloads(log) == numbered(count)


def test_records_larger_than_one_read_hands_out_are_scanned(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=16 << 20)
    large = [bytes([number]) * (3 << 20) for number in range(4)]
    log.append_many(large)
    assert payloads(log) == large
    assert log.to_arrow()["payload"].to_pylist() == large


def test_an_empty_log_has_nothing_to_scan(desk: Desk) -> None:
    log = desk.open()
    assert payloads(log) == []
    assert log.to_arrow().num_rows == 0
    assert list(log.arrow_batches()) == []


# -- Arrow --------------------------------------------------------------------------------------------


def test_the_table_has_the_columns_of_the_records(desk: Desk) -> None:
    log = filled(desk)
    table = log.to_arrow(10, 20)
    assert table.schema == pa.schema(
        [
            pa.field("sequence", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ns", tz="UTC"), nullable=False),
            pa.field("ext_id", pa.uint64(), nullable=False),
            pa.field("payload", pa.binary(), nullable=False),
        ]
    )
    table.validate(full=True)
    rows = zip(*(table[name].to_pylist() for name in ("sequence", "ext_id", "payload")), strict=True)
    assert list(rows) == [(record.sequence, record.ext_id, record.payload) for record in log.scan(10, 20)]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == list(range(1_010, 1_020))


def test_an_empty_table_has_the_same_columns(desk: Desk) -> None:
    log = filled(desk)
    assert log.to_arrow(5, 5).schema == log.to_arrow().schema


def test_no_batch_has_more_rows_than_the_limit(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=8 << 20)
    log.append_many([b""] * (ARROW_RECORDS_MAX + 10))
    assert [batch.num_rows for batch in log.arrow_batches()] == [ARROW_RECORDS_MAX, 10]


def test_a_batch_without_payloads_is_not_cut_by_their_bytes(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=8 << 20)
    log.append_many([bytes(1000)] * 4000)
    counts = {names: [batch.num_rows for batch in log.arrow_batches(columns=names)] for names in (("length",), None)}
    assert counts[("length",)] == [4000]
    assert len(counts[None]) > 1
    assert sum(counts[None]) == 4000


COLUMNS = ("sequence", "timestamp", "ext_id", "payload", "length")


@pytest.mark.parametrize("count", range(1, len(COLUMNS) + 1))
def test_any_columns_can_be_asked_for_in_any_order(desk: Desk, count: int) -> None:
    log = filled(desk)
    whole = log.to_arrow(3, 97)
    whole = whole.append_column("length", pa.array([len(value.as_py()) for value in whole["payload"]], pa.int32()))
    for names in permutations(COLUMNS, count):
        table = log.to_arrow(3, 97, columns=names)
        table.validate(full=True)
        assert table.schema.names == list(names)
        assert table.to_pydict() == whole.select(names).to_pydict()


@pytest.mark.parametrize(
    ("asked", "made"),
    [("sequence", ()), ("timestamp", (3,)), ("ext_id", (4,)), ("length", (5,)), ("payload", (5, 6))],
)
def test_what_is_not_asked_for_is_not_made(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, asked: str, made: tuple[int, ...]
) -> None:
    log, seen = filled(desk), list[tuple[object, ...]]()

    def spied(*arguments: Any) -> Any:
        seen.append(kernel.columns(*arguments))
        return seen[-1]

    monkeypatch.setattr("latewood.segment.reader.columns", spied)
    assert log.to_arrow(columns=[asked]).num_rows == 100
    assert {tuple(at for at in range(3, 10) if found[at] is not None) for found in seen} == {made}


def test_a_column_that_is_not_there_is_told_with_those_that_are(desk: Desk) -> None:
    log = filled(desk)
    for columns in (["sequence", "colour"], ["key"], []):
        with pytest.raises(UsageError, match="the columns are sequence, timestamp, ext_id, payload, length"):
            log.to_arrow(columns=columns)


def test_the_keys_of_a_keyed_log_are_a_column_when_asked_for(desk: Desk) -> None:
    pairs = [(b"k", b"value"), (None, b"no key"), (b"", b""), (b"only a key", b"")] * 20
    log = desk.open(keyed=True, segment_bytes_max=512)
    log.append_many([keyed.encode(*pair) for pair in pairs])
    table = log.to_arrow(keys=True)
    table.validate(full=True)
    assert table.schema.names == ["sequence", "timestamp", "ext_id", "key", "payload"]
    assert list(zip(table["key"].to_pylist(), table["payload"].to_pylist(), strict=True)) == pairs
    lengths = log.to_arrow(columns=["length", "key"], keys=True)
    assert lengths.to_pydict() == {"length": [len(v) for _, v in pairs], "key": [k for k, _ in pairs]}
    assert log.to_arrow(columns=["length"])["length"].to_pylist() == [len(keyed.encode(*pair)) for pair in pairs]


@given(st.lists(st.binary(max_size=100), max_size=60))
def test_arrow_holds_the_same_as_the_records(values: list[bytes]) -> None:
    with Desk() as desk:
        log = desk.open(segment_bytes_max=512)
        log.append_many(values)
        table = log.to_arrow()
        table.validate(full=True)
        assert table["payload"].to_pylist() == values


# -- by time ------------------------------------------------------------------------------------------


def first_at_or_after(timestamps: list[int], wanted: int) -> int:
    return next((index for index, timestamp in enumerate(timestamps) if timestamp >= wanted), len(timestamps))


@given(st.lists(st.integers(0, 50), max_size=80), st.integers(-1, 51), st.integers(1, 10))
def test_a_time_is_found_where_it_is_first_reached_however_the_clock_ran(
    timestamps: list[int], wanted: int, interval: int
) -> None:
    with Desk() as desk:
        log = desk.open(segment_bytes_max=512, index_interval=interval)
        log.append_many([b"x"] * len(timestamps), timestamps_ns=timestamps)
        expected = first_at_or_after(timestamps, wanted)
        assert log.find_timestamp(wanted) == expected
        assert desk.open_to_read().find_timestamp(wanted) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=80), st.integers(0, 51), st.integers(1, 4))
def test_a_time_that_only_retired_records_had_reached_is_found_further_on(
    timestamps: list[int], wanted: int, retired: int
) -> None:
    with Desk() as desk:
        log = desk.open(segment_bytes_max=512)
        log.append_many([b"x"] * len(timestamps), timestamps_ns=timestamps)
        log._writer.retire(retired - 1)
        first = log.first_sequence
        assert log.find_timestamp(wanted) == first + first_at_or_after(timestamps[first:], wanted)


@pytest.mark.parametrize(("timestamp_ns", "expected"), [(-(10**20), 0), (0, 0), (2**63, 3), (2**64, 3), (10**30, 3)])
def test_a_time_that_no_record_can_have_is_before_or_after_all(desk: Desk, timestamp_ns: int, expected: int) -> None:
    log = desk.open()
    log.append_many([b"x"] * 3)
    assert log.find_timestamp(timestamp_ns) == expected


def test_the_day_of_a_datetime_is_found(desk: Desk) -> None:
    log = desk.open()
    log.append(b"yesterday", timestamp_ns=int(dt.datetime(2026, 3, 1, tzinfo=dt.UTC).timestamp()) * 10**9)
    log.append(b"today")
    midnight = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
    assert log.find_timestamp(int(midnight.timestamp()) * 10**9) == 1


def test_a_search_goes_on_though_segments_are_retired_under_it(desk: Desk) -> None:
    log = filled(desk)
    view = desk.open_to_read().view()
    log._writer.retire(3)
    first = log.first_sequence
    assert view.find_timestamp(0) == first


def test_a_search_goes_on_though_the_open_segment_is_replaced_under_it(desk: Desk) -> None:
    desk.open(segment_bytes_max=512).close()
    view = desk.open_to_read().view()
    log = desk.open(segment_bytes_max=4096)
    log.append(bytes(1000))  # more than the empty segment could hold: another takes its place
    assert view.end().sequence == 1
    assert view.find_timestamp(0) == 0


# -- damage -------------------------------------------------------------------------------------------


def damaged_in_the_open_segment(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"a", b"b", b"c"])
    desk.overwrite(desk.segment_paths()[0], b"X", HEADER_SIZE + 32 + 24)


def damaged_in_a_sealed_segment(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"a", b"b", b"c"])
        log.roll()
    desk.overwrite(desk.segment_paths()[0], b"X", HEADER_SIZE + 32 + 24)


@pytest.mark.parametrize("damage", [damaged_in_the_open_segment, damaged_in_a_sealed_segment])
def test_a_damaged_record_is_told_of_with_its_path_and_byte(desk: Desk, damage: Callable[[Desk], None]) -> None:
    damage(desk)
    log = desk.open_to_read()
    assert payloads(log, 0, 1) == [b"a"]
    for read in (lambda: payloads(log), lambda: log.read(1), log.to_arrow):
        with pytest.raises(CorruptError) as caught:
            read()
        assert caught.value.path == desk.segment_paths()[0]
        assert caught.value.offset == HEADER_SIZE + 32


def test_a_damaged_payload_is_met_though_nobody_asks_for_it(desk: Desk) -> None:
    damaged_in_a_sealed_segment(desk)
    for columns in (["sequence"], ["length", "timestamp"]):
        with pytest.raises(CorruptError):
            desk.open().to_arrow(columns=columns)
        desk.kill()


def test_a_damaged_record_is_told_of_though_the_checkpoint_is_gone(desk: Desk) -> None:
    damaged_in_the_open_segment(desk)
    desk.fs.remove(desk.layout.checkpoint)
    with pytest.raises(CorruptError):
        payloads(desk.open_to_read())


def test_a_missing_segment_is_told_of_with_its_path(desk: Desk) -> None:
    log = filled(desk)
    path = desk.segment_paths()[1]
    desk.fs.remove(path)
    with pytest.raises(ManifestCorrupted, match="missing") as caught:
        payloads(log)
    assert caught.value.path == path


def test_a_torn_tail_ends_what_can_be_read_and_is_not_corruption(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"a", b"b"], durable=True)
    log.append_many([b"c", b"d"])
    desk.kill()
    desk.overwrite(desk.segment_paths()[0], b"X", HEADER_SIZE + 2 * 32 + 24)
    reader = desk.open_to_read()
    assert payloads(reader) == [b"a", b"b"]
    assert reader.next_sequence == 2
