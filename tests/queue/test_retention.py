"""Retention: what `cleanup` deletes, and what it must never delete."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood import CorruptError, DataLost, Queue, ReadOnlyError, RetentionPolicy, StorageError, UsageError
from latewood.queue.retention import ReaderState, SealedSegment, plan
from latewood.testing import CrashFS
from tests.log.desk import ROOT, Desk, payloads, sealed_ids

HOUR_MS = 3_600_000


def filled(desk: Desk, segments: int = 5, *, retention: RetentionPolicy | None = None) -> Queue:
    """A log of so many sealed segments of two records each, sealed an hour apart, and an empty open one."""
    log = desk.open(retention=retention)
    for number in range(segments):
        log.append_many([f"{number} first".encode(), f"{number} second".encode()])
        log.roll()
        desk.clock.advance(ms=HOUR_MS)
    return log


def file_ids(desk: Desk) -> list[int]:
    return [int(path.stem) for path in desk.segment_paths()]


# -- by readers ---------------------------------------------------------------------------------------


def test_without_readers_nothing_is_deleted(desk: Desk) -> None:
    log = filled(desk)
    assert log.cleanup() == []
    assert sealed_ids(log) == [0, 1, 2, 3, 4]


def test_a_segment_goes_once_every_reader_has_passed_it(desk: Desk) -> None:
    log = filled(desk)
    log.reader("fast", start="latest").close()
    log.reader("slow", start=5).close()
    assert log.cleanup() == [0, 1]
    assert sealed_ids(log) == [2, 3, 4]
    assert file_ids(desk) == [2, 3, 4, 5]
    assert log.first_sequence == 4
    assert payloads(log)[0] == b"2 first"
    assert log.cleanup() == []


@pytest.mark.parametrize(("sequence", "deleted"), [(0, []), (1, []), (2, [0]), (3, [0]), (10, [0, 1, 2, 3, 4])])
def test_a_segment_of_which_a_reader_needs_one_record_stays(desk: Desk, sequence: int, deleted: list[int]) -> None:
    log = filled(desk)
    log.reader("r", start=sequence).close()
    assert log.cleanup() == deleted


def test_the_open_segment_stays_whoever_has_read_it(desk: Desk) -> None:
    log = filled(desk)
    log.append(b"open")
    log.reader("r", start="latest").close()
    assert log.cleanup() == [0, 1, 2, 3, 4]
    assert payloads(log) == [b"open"]


def test_what_was_read_but_not_committed_stays(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r") as reader:
        assert len(list(reader)) == 10
        assert log.cleanup() == []
        reader.commit()
        assert log.cleanup() == [0, 1, 2, 3, 4]


def test_a_removed_reader_holds_nothing_back(desk: Desk) -> None:
    log = filled(desk)
    log.reader("slow").close()
    log.reader("fast", start=4).close()
    assert log.cleanup() == []
    log.remove_reader("slow")
    assert log.cleanup() == [0, 1]


def test_a_dry_run_says_what_would_go_and_deletes_nothing(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r", start=4).close()
    before = {path: desk.raw(path) for path in desk.fs.walk(ROOT) if path != desk.layout.wake}
    assert log.cleanup(dry_run=True) == desk.open_to_read().cleanup(dry_run=True) == [0, 1]
    assert {path: desk.raw(path) for path in desk.fs.walk(ROOT) if path != desk.layout.wake} == before


def test_only_a_writer_cleans_up(desk: Desk) -> None:
    filled(desk).reader("r", start=4).close()
    with pytest.raises(ReadOnlyError, match="mode='r'"):
        desk.open_to_read().cleanup()
    assert file_ids(desk) == [0, 1, 2, 3, 4, 5]


def test_the_plan_says_who_keeps_the_rest(desk: Desk) -> None:
    log = filled(desk)
    log.reader("b", start=5).close()
    log.reader("a", start=4).close()
    log.reader("c", start="latest").close()
    assert log.retention_plan() == ([0, 1], ["a", "b"])


def test_sequences_go_on_after_everything_was_deleted(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r", start="latest").close()
    log.cleanup()
    log.close()
    log = desk.open()
    assert (log.first_sequence, log.next_sequence) == (10, 10)
    assert log.append(b"x") == 10
    log.roll()
    assert sealed_ids(log) == [5]


# -- by policy ----------------------------------------------------------------------------------------


def test_without_readers_at_most_so_many_bytes_are_kept(desk: Desk) -> None:
    log = filled(desk)
    size = len(desk.raw(desk.segment_paths()[0]))
    for kept, deleted in [(5 * size, []), (5 * size - 1, [0]), (3 * size, [1]), (0, [2, 3, 4])]:
        log.retention = RetentionPolicy(max_bytes=kept)
        assert log.cleanup() == deleted


def test_without_readers_segments_are_kept_so_long_after_their_seal(desk: Desk) -> None:
    log = filled(desk)  # sealed 5, 4, 3, 2 and 1 hours ago
    for kept_ms, deleted in [(5 * HOUR_MS, []), (5 * HOUR_MS - 1, [0]), (3 * HOUR_MS, [1]), (0, [2, 3, 4])]:
        log.retention = RetentionPolicy(max_age_ms=kept_ms)
        assert log.cleanup() == deleted


def test_either_of_two_policies_deletes(desk: Desk) -> None:
    log = filled(desk)
    size = len(desk.raw(desk.segment_paths()[0]))
    log.retention = RetentionPolicy(max_bytes=4 * size, max_age_ms=3 * HOUR_MS)
    assert log.cleanup() == [0, 1]


def test_no_size_or_age_takes_what_a_reader_still_needs(desk: Desk) -> None:
    log = filled(desk, retention=RetentionPolicy(max_bytes=0, max_age_ms=0))
    log.reader("r", start=4).close()
    assert log.cleanup() == [0, 1]
    assert log.cleanup() == []


def test_a_reader_that_has_been_silent_for_too_long_holds_nothing_back(desk: Desk) -> None:
    policy = RetentionPolicy(ignore_readers_silent_ms=2 * HOUR_MS)
    log = filled(desk, retention=policy)
    log.reader("silent", start=0).close()
    log.reader("busy", start=6).close()
    desk.clock.advance(ms=2 * HOUR_MS)
    assert log.cleanup() == []
    with log.reader("busy") as reader:
        reader.commit()
        desk.clock.advance(ms=1)
        assert log.cleanup() == [0, 1, 2]


def test_a_reader_of_ours_is_never_called_silent(desk: Desk) -> None:
    """A store's own reader holds back what no chunk has yet, however long nothing was flushed."""
    log = filled(desk, retention=RetentionPolicy(ignore_readers_silent_ms=1, max_bytes=0))
    log.reader("latewood-flush", start=2).close()
    log.reader("mine", start=0).close()
    desk.clock.advance(ms=HOUR_MS)
    assert log.cleanup() == [0]


def test_a_log_whose_readers_are_all_silent_keeps_what_its_policy_says(desk: Desk) -> None:
    policy = RetentionPolicy(ignore_readers_silent_ms=HOUR_MS)
    log = filled(desk, retention=policy)
    log.reader("silent").close()
    desk.clock.advance(ms=2 * HOUR_MS)
    assert log.cleanup() == []
    log.retention = RetentionPolicy(ignore_readers_silent_ms=HOUR_MS, max_bytes=0)
    assert log.cleanup() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("field", ["max_bytes", "max_age_ms", "ignore_readers_silent_ms"])
def test_a_policy_below_zero_is_refused_by_name(field: str) -> None:
    with pytest.raises(UsageError, match=field):
        RetentionPolicy(**{field: -1})


# -- data lost ----------------------------------------------------------------------------------------


def with_a_reader_left_behind(desk: Desk) -> Queue:
    log = filled(desk, retention=RetentionPolicy(ignore_readers_silent_ms=HOUR_MS, max_bytes=2_000))
    log.reader("silent", start=1).close()
    desk.clock.advance(ms=2 * HOUR_MS)
    log.retention = RetentionPolicy(ignore_readers_silent_ms=HOUR_MS, max_bytes=0)
    log.append_many([b"open"] * 3)
    assert log.cleanup() == [0, 1, 2, 3, 4]
    return log


def test_a_reader_whose_records_a_policy_removed_is_told_which_and_can_go_on(desk: Desk) -> None:
    log = with_a_reader_left_behind(desk)
    with log.reader("silent") as reader:
        for read in (reader.next, lambda: reader.poll(timeout=1), reader.read_arrow, lambda: next(reader.follow())):
            with pytest.raises(DataLost) as caught:
                read()
            assert (caught.value.start, caught.value.stop) == (1, 10)
            assert "seek" in str(caught.value)
        assert reader.lag() == 12
        reader.seek(sequence=caught.value.stop)
        assert [record.payload for record in reader] == [b"open"] * 3
        reader.commit()
    with log.reader("silent") as reader:
        assert reader.sequence == 13


def test_a_reader_that_is_told_to_begin_with_lost_records_is_refused(desk: Desk) -> None:
    log = with_a_reader_left_behind(desk)
    with pytest.raises(DataLost):
        log.reader("silent", start=5)
    with log.reader("silent", start="earliest") as reader:
        assert reader.sequence == 10


def test_a_reader_that_is_in_a_segment_when_it_is_deleted_reads_to_its_end_and_is_then_told(desk: Desk) -> None:
    log = filled(desk, retention=RetentionPolicy(ignore_readers_silent_ms=0, max_bytes=0))
    with log.reader("r") as reader:
        assert reader.poll(max_records=1)[0].payload == b"0 first"
        desk.clock.advance(ms=1)
        assert log.cleanup() == [0, 1, 2, 3, 4]
        assert [record.payload for record in reader.poll(max_records=1)] == [b"0 second"]
        log.append(b"open")
        with pytest.raises(DataLost) as caught:
            reader.poll(timeout=60)
        assert (caught.value.start, caught.value.stop) == (2, 10)


def test_a_reader_of_another_process_meets_the_same(desk: Desk) -> None:
    log = filled(desk)
    other = desk.open_to_read()
    with other.reader("other") as reader:
        assert reader.poll(max_records=1)[0].payload == b"0 first"
        log._writer.retire(3)
        assert [record.payload for record in reader.poll(max_records=1)] == [b"0 second"]
        with pytest.raises(DataLost) as caught:
            reader.next()
        assert (caught.value.start, caught.value.stop) == (2, 8)


# -- damage and crashes -------------------------------------------------------------------------------


def test_a_damaged_reader_stops_deletion_until_it_is_mended_or_removed(desk: Desk) -> None:
    log = filled(desk)
    log.reader("good", start="latest").close()
    log.reader("bad", start="latest").close()
    path = desk.layout.readers / "bad.meta"
    for at in (20, 4096 + 20):
        desk.overwrite(path, b"XXXX", at)
    for _ in range(2):
        with pytest.raises(CorruptError) as caught:
            log.cleanup()
        assert caught.value.path == path
    assert sealed_ids(log) == [0, 1, 2, 3, 4]
    log.remove_reader("bad")
    assert log.cleanup() == [0, 1, 2, 3, 4]


def test_one_damaged_slot_of_a_reader_keeps_what_its_older_position_needs(desk: Desk) -> None:
    log = filled(desk)
    with log.reader("r", start=2) as reader:
        reader.seek(sequence=8)
        reader.commit()
    path = desk.layout.readers / "r.meta"
    generations = [int.from_bytes(desk.raw(path)[at + 16 : at + 24], "little") for at in (0, 4096)]
    desk.overwrite(path, b"XXXX", 20 if generations[0] > generations[1] else 4096 + 20)
    assert log.cleanup() == [0]


def test_a_file_that_only_looks_like_a_reader_s_does_not_count(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r", start="latest").close()
    desk.fs.open(desk.layout.readers / "r.meta.tmp", create=True).close()
    desk.fs.open(desk.layout.readers / "notes.txt", create=True).close()
    assert log.cleanup() == [0, 1, 2, 3, 4]


def test_what_an_interrupted_cleanup_left_on_the_disk_is_swept_by_the_next(desk: Desk) -> None:
    log = filled(desk)
    log.reader("r", start=6).close()
    desk.fs.fail("remove", "000000001.q", StorageError("no"))
    with pytest.raises(StorageError):
        log.cleanup()
    assert sealed_ids(log) == [3, 4]
    desk.fs.heal()
    desk.kill()
    assert file_ids(desk) == [1, 2, 3, 4, 5]
    log = desk.open()
    assert payloads(log, 6)[0] == b"3 first"
    assert log.cleanup() == []
    assert file_ids(desk) == [3, 4, 5]


def test_a_sweep_takes_no_file_that_is_not_an_old_segment(desk: Desk) -> None:
    filled(desk).close()
    day = desk.segment_paths()[0].parent
    strange = [day / "000000007.q", day / "notes.txt", day / "1.q", desk.layout.segments / "000000009.q"]
    for path in strange:
        desk.fs.open(path, create=True).close()
    log = desk.open()
    log.cleanup()
    assert all(desk.fs.exists(path) for path in strange)
    assert [path for path in desk.segment_paths() if path not in strange] == [
        Path(f"q/segments/2026/03/02/{number:09}.q") for number in range(6)
    ]


def test_a_power_cut_at_any_step_of_a_cleanup_loses_no_record_that_is_needed() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = filled(desk, segments=3)
        log.append(b"open", durable=True)
        log.reader("r", start=4).close()
        needed = payloads(log, 4)
        for step, survivor in fs.cuts_during(lambda _: log.cleanup(), limit=60):
            with Desk(survivor) as after:
                again = after.open()
                assert again.first_sequence in {0, 4}, step
                assert payloads(again, 4) == needed, step
                again.cleanup()
                assert file_ids(after) == [2, 3], step
                assert payloads(again) == needed, step


# -- the rule itself ----------------------------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[SealedSegment], list[ReaderState], RetentionPolicy, int]:
    counts = draw(st.lists(st.integers(1, 5), max_size=8))
    ends = [total - 1 for total in itertools.accumulate(counts)]
    segments = [
        SealedSegment(number, end, draw(st.integers(1, 100)), draw(st.integers(0, 10)) * 1_000_000)
        for number, end in enumerate(ends)
    ]
    readers = draw(
        st.lists(st.builds(ReaderState, st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 10**7)), max_size=3)
    )
    limits = st.none() | st.integers(0, 300)
    policy = RetentionPolicy(
        max_bytes=draw(limits), max_age_ms=draw(st.none() | st.integers(0, 10)), ignore_readers_silent_ms=draw(limits)
    )
    return segments, readers, policy, draw(st.integers(0, 10**7))


@given(situations())
def test_no_segment_that_a_reader_needs_is_ever_retired_unless_that_reader_is_ignored(
    situation: tuple[list[SealedSegment], list[ReaderState], RetentionPolicy, int],
) -> None:
    segments, readers, policy, now_ns = situation
    result = plan(segments, sum(segment.size for segment in segments), readers, policy, now_ns)
    assert result.retire == list(range(len(result.retire)))
    silent_ms = policy.ignore_readers_silent_ms
    for reader in readers:
        if silent_ms is None or now_ns - reader.committed_at_ns <= silent_ms * 1_000_000:
            needed = [segment.segment_id for segment in segments if segment.end_sequence >= reader.sequence]
            assert not set(needed) & set(result.retire)


@given(situations())
def test_without_a_policy_and_without_readers_nothing_is_retired(
    situation: tuple[list[SealedSegment], list[ReaderState], RetentionPolicy, int],
) -> None:
    segments, _, _, now_ns = situation
    assert plan(segments, 10**6, [], RetentionPolicy(), now_ns).retire == []
