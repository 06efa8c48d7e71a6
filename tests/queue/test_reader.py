"""A named reader: where it begins, what it hands out, what it remembers."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood import (
    BadName,
    ClosedError,
    CorruptError,
    DataLost,
    Locked,
    NotFoundError,
    Queue,
    Reader,
    ReaderInfo,
    StorageError,
    UsageError,
)
from latewood.limits import READ_RECORDS_MAX
from latewood.testing import CrashFS
from tests.format.codecs import BIRTH
from tests.log.desk import Desk

NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)


def filled(desk: Desk, count: int = 50) -> Queue:
    """A log of several segments whose payloads are their sequences; one record a second from noon on."""
    log = desk.open(segment_bytes_max=512, birth=BIRTH)
    start_ns = desk.clock.now_ns()
    log.append_many(
        [str(number).encode() for number in range(count)],
        timestamps_ns=[start_ns + number * 10**9 for number in range(count)],
    )
    return log


def sequences(reader: Reader) -> list[int]:
    return [record.sequence for record in reader]


# -- where it begins ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("resume", 0),
        ("earliest", 0),
        ("latest", 50),
        (0, 0),
        (17, 17),
        (50, 50),
        (NOON - dt.timedelta(days=1), 0),
        (NOON + dt.timedelta(seconds=20), 20),
        (NOON + dt.timedelta(seconds=20, microseconds=1), 21),
        ((NOON + dt.timedelta(seconds=20)).astimezone(dt.timezone(dt.timedelta(hours=5))), 20),
        (NOON + dt.timedelta(days=1), 50),
        (dt.datetime(1, 1, 2, tzinfo=dt.UTC), 0),
        (dt.datetime(9999, 1, 1, tzinfo=dt.UTC), 50),
    ],
    ids=str,
)
def test_a_reader_begins_where_it_is_told(desk: Desk, start: Any, first: int) -> None:
    log = filled(desk)
    with log.reader("r", start=start) as reader:
        assert reader.sequence == first
        assert sequences(reader) == list(range(first, 50))


@pytest.mark.parametrize("start", [-1, 51, 10**9])
def test_a_start_outside_the_log_is_refused_and_leaves_no_reader(desk: Desk, start: int) -> None:
    log = filled(desk)
    with pytest.raises(UsageError, match="ends at 50"):
        log.reader("r", start=start)
    assert log.readers() == []
    log.reader("r").close()


@pytest.mark.parametrize("start", ["first", None, 1.5, b"earliest"])
def test_a_start_of_another_kind_is_refused(desk: Desk, start: Any) -> None:
    log = filled(desk)
    with pytest.raises(UsageError, match="start must be"):
        log.reader("r", start=start)


def test_a_reader_resumes_where_it_committed(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r") as reader:
        for _ in range(20):
            reader.next()
        reader.commit()
        reader.next()
    log.close()
    with desk.open().reader("r") as reader:
        assert reader.committed_sequence == 20
        assert sequences(reader) == list(range(20, 50))


def test_another_start_moves_a_reader_for_good(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r", start=30).close()
    log.reader("r", start=10).close()
    with log.reader("r") as reader:
        assert reader.sequence == 10


def test_a_reader_that_was_only_opened_keeps_its_place(desk: Desk) -> None:
    log = filled(desk)
    log.reader("late", start="latest").close()
    log.append(b"50")
    with log.reader("late") as reader:
        assert sequences(reader) == [50]


def test_a_new_reader_of_a_log_without_its_beginning_begins_with_what_is_left(desk: Desk) -> None:
    log = filled(desk)
    log._writer.retire(0)
    with log.reader("r") as reader:
        assert reader.sequence == log.first_sequence > 0


@pytest.mark.parametrize("name", ["", "A", "a.b", "../x", "a" * 65])
def test_a_bad_name_is_refused(desk: Desk, name: str) -> None:
    log = desk.open()
    with pytest.raises(BadName):
        log.reader(name)
    with pytest.raises(BadName):
        log.remove_reader(name)


# -- what it hands out --------------------------------------------------------------------------------


def test_next_hands_out_one_record_after_the_other_and_then_none(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"a", b"b"])
    with log.reader("r") as reader:
        first, second = reader.next(), reader.next()
        assert first is not None
        assert second is not None
        assert (first.payload, second.payload) == (b"a", b"b")
        assert reader.next() is None
        log.append(b"c")
        third = reader.next()
        assert third is not None
        assert (third.sequence, third.payload) == (2, b"c")


def test_iterating_stops_at_the_end_and_goes_on_later(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r") as reader:
        assert sequences(reader) == list(range(50))
        assert sequences(reader) == []
        log.append_many([b"x"] * 30)
        assert sequences(reader) == list(range(50, 80))


def test_poll_hands_out_no_more_than_was_asked_for(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r") as reader:
        polled = [[record.sequence for record in reader.poll(max_records=7)] for _ in range(20)]
    assert [sequence for batch in polled for sequence in batch] == list(range(50))
    assert max(len(batch) for batch in polled) == 7


def test_poll_without_a_record_returns_none_of_them(desk: Desk) -> None:
    log = desk.open()
    with log.reader("r") as reader:
        assert reader.poll() == []
        assert reader.poll(timeout=0.01) == []
        log.append(b"a")
        assert [record.payload for record in reader.poll(timeout=60)] == [b"a"]


def test_a_full_poll_is_bounded(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=1 << 20)
    log.append_many([b"x"] * (READ_RECORDS_MAX + 1))
    with log.reader("r") as reader:
        assert len(reader.poll()) == READ_RECORDS_MAX
        assert len(reader.poll()) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one_is_refused(desk: Desk, count: int) -> None:
    with filled(desk).reader("r") as reader:
        with pytest.raises(UsageError, match="max_records"):
            reader.poll(max_records=count)
        with pytest.raises(UsageError, match="max_records"):
            reader.read_arrow(max_records=count)


def test_arrow_batches_hold_the_same_records(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r") as reader:
        rows: list[int] = []
        while (batch := reader.read_arrow(max_records=7)).num_rows:
            assert batch.num_rows <= 7
            rows += batch["sequence"].to_pylist()
        assert rows == list(range(50))
        assert batch.schema == log.to_arrow().schema
        reader.seek(sequence=40)
        batch = reader.read_arrow(2, columns=["length", "sequence"])
        lengths = [len(log.read(at).payload) for at in (40, 41)]
        assert batch.to_pydict() == {"length": lengths, "sequence": [40, 41]}
        with pytest.raises(UsageError, match="no column 'key'"):
            reader.read_arrow(columns=["key"])
        assert reader.sequence == 42


ways = st.lists(st.sampled_from(["next", "poll", "arrow", "iterate", "append", "commit", "seek"]), max_size=40)


@given(ways, st.data())
def test_every_way_to_read_goes_on_where_the_others_stopped(calls: list[str], data: st.DataObject) -> None:
    with Desk() as desk:
        log = filled(desk, count=20)
        with log.reader("r") as reader:
            expected = 0
            for call in calls:
                found: list[int] = []
                match call:
                    case "next":
                        record = reader.next()
                        found = [] if record is None else [record.sequence]
                    case "poll":
                        found = [record.sequence for record in reader.poll(max_records=3)]
                    case "arrow":
                        found = reader.read_arrow(max_records=4)["sequence"].to_pylist()
                    case "iterate":
                        found = sequences(reader)
                    case "append":
                        log.append_many([b"x"] * 5)
                    case "commit":
                        reader.commit()
                        assert reader.committed_sequence == expected
                    case _:
                        expected = data.draw(st.integers(0, log.next_sequence))
                        reader.seek(sequence=expected)
                assert found == list(range(expected, expected + len(found)))
                expected += len(found)
                assert reader.sequence == expected
                assert reader.lag() == log.next_sequence - expected


# -- seek and lag -------------------------------------------------------------------------------------


def test_seek_goes_to_a_sequence_or_a_time(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r") as reader:
        reader.next()
        reader.seek(sequence=40)
        assert sequences(reader) == list(range(40, 50))
        reader.seek(timestamp=NOON + dt.timedelta(seconds=45))
        assert reader.sequence == 45
        reader.seek(timestamp=desk.clock.now_ns() + 10 * 10**9)
        assert reader.sequence == 10
        reader.seek(sequence=50)
        assert reader.next() is None


def test_seek_is_not_remembered_until_commit(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r", start=5) as reader:
        reader.seek(sequence=40)
    with log.reader("r") as reader:
        assert reader.sequence == 5
        reader.seek(sequence=40)
        reader.commit()
        reader.seek(sequence=3)
        reader.commit()
    with log.reader("r") as reader:
        assert reader.sequence == 3


def test_seek_needs_one_place_and_one_inside_the_log(desk: Desk) -> None:
    with filled(desk).reader("r") as reader:
        with pytest.raises(UsageError, match="either"):
            reader.seek()
        with pytest.raises(UsageError, match="either"):
            reader.seek(sequence=1, timestamp=1)
        for sequence in (-1, 51):
            with pytest.raises(UsageError, match="ends at 50"):
                reader.seek(sequence=sequence)
        assert reader.sequence == 0


def test_seek_to_a_retired_record_is_data_lost(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r", start="latest") as reader:
        log.cleanup()
        with pytest.raises(DataLost) as caught:
            reader.seek(sequence=1)
        assert (caught.value.start, caught.value.stop) == (1, log.first_sequence)
        reader.seek(sequence=caught.value.stop)
        reader.commit()


def test_lag_counts_what_is_still_to_be_read(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r", start=20) as reader:
        assert reader.lag() == 30
        reader.next()
        assert reader.lag() == 29
        log.append(b"x")
        assert reader.lag() == 30
        list(reader)
        assert reader.lag() == 0


def test_readers_are_listed_with_what_they_committed(desk: Desk) -> None:
    log = filled(desk)
    assert log.readers() == []
    committed_at = desk.clock.now_ns()
    log.reader("b", start=20).close()
    desk.clock.advance(seconds=7)
    with log.reader("a", start="latest") as reader:
        reader.seek(sequence=0)
        expected = [ReaderInfo("a", 50, 0, committed_at + 7 * 10**9), ReaderInfo("b", 20, 30, committed_at)]
        assert log.readers() == desk.open_to_read().readers() == expected


# -- one reader of a name -----------------------------------------------------------------------------


def test_a_name_can_be_open_once(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r"):
        with pytest.raises(Locked):
            log.reader("r")
        with pytest.raises(Locked):
            desk.open_to_read().reader("r")
    log.reader("r").close()


def test_two_readers_read_each_at_their_own_pace(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("fast") as fast, log.reader("slow") as slow:
        assert len(list(fast)) == 50
        fast.commit()
        assert len(slow.poll(max_records=3)) == 3
        slow.commit()
    assert [(info.name, info.sequence) for info in log.readers()] == [("fast", 50), ("slow", 3)]


def test_a_reader_can_be_removed_unless_it_is_open(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r"), pytest.raises(Locked):
        log.remove_reader("r")
    log.remove_reader("r")
    assert log.readers() == []
    with pytest.raises(NotFoundError, match="no reader 'r'"):
        log.remove_reader("r")
    with log.reader("r") as reader:
        assert reader.sequence == 0


def test_a_closed_reader_refuses_to_be_used_and_closing_it_again_is_fine(desk: Desk) -> None:
    reader = filled(desk).reader("r")
    reader.close()
    for use in (reader.next, reader.poll, reader.read_arrow, reader.commit, reader.lag, lambda: list(reader)):
        with pytest.raises(ClosedError, match="reader 'r' is closed"):
            use()
    reader.close()


# -- commit -------------------------------------------------------------------------------------------


def test_a_commit_makes_the_records_before_it_durable_first() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append_many([b"a", b"b", b"c"])
        with log.reader("r") as reader:
            reader.next()
            reader.next()
            reader.commit()
            assert log.durable_sequence >= 2
        with Desk(fs.after_power_cut()) as after:
            again = after.open()
            assert again.next_sequence >= 2
            assert again.reader("r").sequence == 2


def test_a_commit_of_another_process_makes_the_records_durable_too() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append_many([b"a", b"b"])
        with desk.open_to_read().reader("r") as reader:
            assert len(list(reader)) == 2
            reader.commit()
        with Desk(fs.after_power_cut()) as after:
            again = after.open()
            assert again.next_sequence == 2
            assert again.reader("r").sequence == 2


def test_a_power_cut_at_any_step_of_a_commit_leaves_the_position_before_or_after() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append_many([b"x"] * 10, durable=True)
        reader = log.reader("r")
        reader.seek(sequence=4)
        reader.commit()
        reader.seek(sequence=7)
        for step, survivor in fs.cuts_during(lambda _: reader.commit(), limit=50):
            with Desk(survivor) as after:
                assert after.open().reader("r").sequence in {4, 7}, step
        with Desk(fs.after_power_cut()) as after:
            assert after.open().reader("r").sequence == 7
        reader.close()


def test_a_commit_that_fails_is_told_of_and_leaves_the_position_before(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r", start=10) as reader:
        reader.seek(sequence=20)
        desk.fs.fail("sync", "r.meta", StorageError("no"))
        with pytest.raises(StorageError):
            reader.commit()
        desk.fs.heal()
        assert [info.sequence for info in log.readers()] == [10]
        reader.commit()
        assert [info.sequence for info in log.readers()] == [20]


def test_a_commit_in_the_middle_of_what_was_fetched_counts_only_what_was_handed_out(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=512)
    log.append_many([b"x"] * 40)
    for handed_out in range(40):
        with log.reader("r", start="earliest") as reader:
            for _ in range(handed_out):
                reader.next()
            reader.commit()
        with log.reader("r") as reader:
            assert reader.sequence == handed_out


# -- damage -------------------------------------------------------------------------------------------


def damage(desk: Desk, name: str) -> None:
    path = desk.layout.readers / f"{name}.meta"
    for at in (20, 4096 + 20):
        desk.overwrite(path, b"XXXX", at)


def test_a_damaged_reader_is_told_of_and_can_be_set_anew(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r", start=10).close()
    damage(desk, "r")
    with pytest.raises(CorruptError) as caught:
        log.reader("r")
    assert caught.value.path == desk.layout.readers / "r.meta"
    with pytest.raises(CorruptError):
        log.readers()
    with log.reader("r", start=12) as reader:
        assert reader.sequence == 12
    assert [info.sequence for info in log.readers()] == [12]


def test_a_damaged_reader_can_be_removed(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r").close()
    damage(desk, "r")
    log.remove_reader("r")
    assert log.readers() == []


def test_a_reader_ahead_of_its_log_is_refused_and_can_be_set_anew(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r", start="latest").close()
    raw = desk.raw(desk.layout.readers / "r.meta")
    with Desk() as other:
        shorter = other.open(birth=BIRTH)
        shorter.append(b"only one")
        shorter.reader("r").close()
        other.overwrite(other.layout.readers / "r.meta", raw)
        with pytest.raises(CorruptError, match="stands at 50, and the log went back to 1"):
            shorter.reader("r")
        shorter.reader("r", start="latest").close()
        with shorter.reader("r") as reader:
            assert reader.sequence == 1
