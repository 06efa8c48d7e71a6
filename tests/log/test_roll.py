"""Rolling: when a segment ends, what it leaves behind, and what the next one begins with."""

import threading
from pathlib import Path
from typing import Any

import pytest

from latewood import ClosedError, DiskFull, Poisoned, Queue, StorageError, UsageError
from latewood.format.pointer import SealedPointer
from latewood.format.record import record_bytes
from latewood.format.segment import HEADER_SIZE
from latewood.limits import SEGMENT_ID_MAX
from latewood.log.pointer import load_pointer
from latewood.testing import CrashFS, MemFS
from tests.log.desk import SEGMENT_BYTES, Desk, payloads, sealed_ids

MINUTE_MS = 60_000


def pointer(desk: Desk) -> SealedPointer | None:
    return load_pointer(desk.fs, desk.layout)


# -- by hand ------------------------------------------------------------------------------------------


def test_a_roll_seals_the_open_segment_and_says_which(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    assert log.roll() == 0
    log.append(b"b")
    assert log.seal() == 1
    assert sealed_ids(log) == [0, 1]
    assert payloads(log) == [b"a", b"b"]


def test_a_segment_without_records_is_not_sealed(desk: Desk) -> None:
    log = desk.open()
    assert log.roll() is None
    log.append(b"a")
    log.roll()
    assert log.seal() is None
    assert sealed_ids(log) == [0]


def test_the_next_segment_goes_on_where_the_last_one_ended(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"a", b"b", b"c"])
    desk.clock.advance(seconds=5)
    log.roll()
    header = desk.header(1)
    assert (header.segment_index, header.base_record_count) == (1, 3)
    assert header.base_offset == 3 * record_bytes(1)
    assert header.created_at == desk.clock.now_ns() == desk.footer(0).sealed_at
    log.append(b"d")
    log.roll()
    assert desk.header(2).base_offset == 4 * record_bytes(1)


def test_a_segment_is_filed_under_its_day_and_id(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    desk.clock.advance(seconds=86_400)
    log.roll()
    assert desk.segment_paths() == [
        Path("q/segments/2026/03/02/000000000.q"),
        Path("q/segments/2026/03/03/000000001.q"),
    ]


def test_a_clock_that_runs_backwards_over_midnight_does_no_harm(desk: Desk) -> None:
    with desk.open() as log:
        log.append(b"a")
        desk.clock.advance(seconds=-86_400)
        log.roll()
        log.append(b"b")
    assert desk.segment_paths()[1] == Path("q/segments/2026/03/01/000000001.q")
    assert payloads(desk.open()) == [b"a", b"b"]


# -- by size, count and age ---------------------------------------------------------------------------


def test_a_segment_takes_a_record_that_fits_exactly_and_rolls_before_one_that_does_not(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=512)
    log.append_many([bytes(8)] * 14)
    assert log.stats().active_bytes == HEADER_SIZE + 14 * 32 == 512
    assert sealed_ids(log) == []
    log.append(b"")
    assert sealed_ids(log) == [0]
    assert log.stats().active_bytes == HEADER_SIZE + 24


def test_a_size_that_no_record_could_end_at_is_rounded_down(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=519)
    log.append_many([bytes(8)] * 15)
    assert desk.footer(0).index_offset == 512


def test_a_segment_rolls_before_it_holds_too_many_records(desk: Desk) -> None:
    log = desk.open(segment_records_max=3)
    for number in range(4):
        log.append(str(number).encode())
    log.append_many([b"x"] * 6)
    assert [desk.footer(index).record_count for index in range(3)] == [3, 3, 3]
    assert log.stats().next_sequence == 10


def test_a_segment_with_records_rolls_at_its_age_though_nothing_is_appended(desk: Desk) -> None:
    log = desk.open(segment_age_max_ms=MINUTE_MS)
    log.append(b"a")
    desk.clock.advance(ms=MINUTE_MS - 1)
    assert log._writer.housekeep() == pytest.approx(0.001)
    assert sealed_ids(log) == []
    desk.clock.advance(ms=1)
    log._writer.housekeep()
    assert sealed_ids(log) == [0]


def test_a_segment_rolls_at_its_age_before_the_next_append(desk: Desk) -> None:
    log = desk.open(segment_age_max_ms=MINUTE_MS)
    log.append(b"a")
    desk.clock.advance(ms=MINUTE_MS)
    log.append(b"b")
    desk.clock.advance(ms=MINUTE_MS)
    log.append_many([b"c", b"d"])
    assert [desk.footer(index).record_count for index in range(2)] == [1, 1]


def test_an_empty_segment_does_not_age(desk: Desk) -> None:
    log = desk.open(segment_age_max_ms=MINUTE_MS)
    desk.clock.advance(ms=10 * MINUTE_MS)
    assert log._writer.housekeep() is None
    log.append(b"a")
    desk.clock.advance(ms=MINUTE_MS - 1)
    log.append(b"b")
    assert sealed_ids(log) == []


def test_a_segment_keeps_its_age_over_a_reopening(desk: Desk) -> None:
    with desk.open(segment_age_max_ms=MINUTE_MS) as log:
        log.append(b"a")
    desk.clock.advance(ms=MINUTE_MS)
    log = desk.open(segment_age_max_ms=MINUTE_MS)
    log._writer.housekeep()
    assert sealed_ids(log) == [0]


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        (lambda log, _: log.append_many([bytes(1000)] * 4), "size"),
        (lambda log, _: log.append_many([b""] * 11), "count"),
        (lambda log, desk: (log.append(b""), desk.clock.advance(ms=MINUTE_MS), log.append(b"")), "age"),
    ],
    ids=["size", "count", "age"],
)
def test_the_first_of_several_rules_to_be_met_rolls(desk: Desk, fill: Any, reason: str) -> None:
    log = desk.open(segment_records_max=10, segment_age_max_ms=MINUTE_MS)
    fill(log, desk)
    assert sealed_ids(log) == [0], reason


# -- cohorts and watermarks ---------------------------------------------------------------------------


def test_a_cohort_begins_with_the_next_record_and_reaches_header_and_footer(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    log.set_ext_id(7)
    assert sealed_ids(log) == [0]
    log.append(b"b")
    log.roll()
    assert [desk.header(index).ext_id for index in range(3)] == [0, 7, 7]
    assert [desk.footer(index).ext_id for index in range(2)] == [0, 7]


def test_a_cohort_of_an_empty_segment_changes_in_place(desk: Desk) -> None:
    log = desk.open()
    log.set_ext_id(7)
    log.set_ext_id(8)
    log.append(b"a")
    log.set_ext_id(8)
    assert sealed_ids(log) == []
    assert desk.header(0).ext_id == 8


def test_a_cohort_survives_reopening(desk: Desk) -> None:
    with desk.open() as log:
        log.set_ext_id(7)
    with desk.open() as log:
        log.append(b"a")
        log.roll()
        log.append(b"b")
    assert [desk.header(index).ext_id for index in range(2)] == [7, 7]


def test_the_cohort_is_not_the_ext_id_of_records(desk: Desk) -> None:
    log = desk.open()
    log.set_ext_id(7)
    log.append(b"a", ext_id=3)
    log.append(b"b", ext_id=5)
    log.roll()
    footer = desk.footer(0)
    assert (footer.ext_id, footer.min_ext_id, footer.max_ext_id) == (7, 3, 5)


def test_the_watermark_reaches_footer_and_pointer_and_survives_reopening(desk: Desk) -> None:
    with desk.open() as log:
        assert log.coordinator_watermark == 0
        log.coordinator_watermark = 41
        log.append(b"a")
        log.roll()
    assert desk.footer(0).coordinator_watermark == 41
    assert pointer(desk) == SealedPointer(0, 41, record_bytes(1))
    with desk.open() as log:
        assert log.coordinator_watermark == 41
        log.append(b"b")
        log.roll()
    assert pointer(desk) == SealedPointer(1, 41, record_bytes(1))


def test_the_watermark_survives_the_segment_that_carried_it(desk: Desk) -> None:
    with desk.open() as log:
        log.coordinator_watermark = 41
        log.append(b"a")
        log.roll()
        log._writer.retire(0)
    assert desk.open().coordinator_watermark == 41


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_cohort_or_watermark_that_the_format_cannot_hold_is_refused(desk: Desk, number: int) -> None:
    log = desk.open()
    with pytest.raises(UsageError, match="ext_id"):
        log.set_ext_id(number)
    with pytest.raises(UsageError, match="coordinator_watermark"):
        log.coordinator_watermark = number
    log.append(b"a")
    assert log.roll() == 0


# -- the prepared segment -----------------------------------------------------------------------------


def test_the_next_segment_is_prepared_once_the_open_one_is_half_full(desk: Desk) -> None:
    log = desk.open()
    log.append(bytes(SEGMENT_BYTES // 2 - 200))
    log._writer.housekeep()
    assert not desk.fs.exists(desk.layout.next_segment)
    log.append(bytes(200))
    log._writer.housekeep()
    assert desk.fs.exists(desk.layout.next_segment)
    before = desk.fs.counts.allocations
    log.roll()
    assert desk.fs.counts.allocations == before
    assert not desk.fs.exists(desk.layout.next_segment)


@pytest.mark.parametrize(("seconds", "is_filled"), [(0, False), (1, True)])
def test_the_next_segment_is_filled_unless_the_log_grows_too_fast_for_that(
    desk: Desk, seconds: int, *, is_filled: bool
) -> None:
    log = desk.open(fill=True)
    log.append(bytes(SEGMENT_BYTES // 2))
    desk.clock.advance(seconds=seconds)
    before = desk.fs.counts.bytes_written
    log._writer.housekeep()
    assert desk.fs.exists(desk.layout.next_segment)
    assert (desk.fs.counts.bytes_written - before >= SEGMENT_BYTES) == is_filled


def test_a_roll_waits_for_no_fill(desk: Desk) -> None:
    log = desk.open(fill=True)
    log.append(b"a")
    desk.clock.advance(seconds=1)
    before = desk.fs.counts.bytes_written
    log.roll()
    assert desk.fs.counts.bytes_written - before < SEGMENT_BYTES


def test_a_prepared_segment_is_not_left_behind(desk: Desk) -> None:
    log = desk.open()
    log.append(bytes(SEGMENT_BYTES - 200))
    log._writer.housekeep()
    log.close()
    assert not desk.fs.exists(desk.layout.next_segment)


def test_a_prepared_segment_that_a_crash_left_is_not_used(desk: Desk) -> None:
    log = desk.open()
    log.append(bytes(SEGMENT_BYTES - 200))
    log._writer.housekeep()
    desk.kill()
    desk.overwrite(desk.layout.next_segment, b"rubbish", 100)
    log = desk.open()
    log.roll()
    log.append(b"a")
    assert payloads(log, 1) == [b"a"]
    assert desk.raw(desk.segment_paths()[1])[HEADER_SIZE + 32 :].strip(b"\0") == b""


class PreparingMeanwhile(MemFS):
    """A disk on which another thread prepares a segment just when a prepared one is about to get its name."""

    log: Queue | None = None
    thread: threading.Thread | None = None

    def rename_new(self, source: Path, target: Path) -> None:
        if self.log is not None and source.name == "next.q":
            self.thread = threading.Thread(target=self.log._writer._prepare)
            self.thread.start()
            self.thread.join(0.2)  # Done by then, or waiting for us.
        super().rename_new(source, target)


def test_preparing_another_segment_never_takes_the_one_that_is_being_begun() -> None:
    fs = PreparingMeanwhile()
    with Desk(fs) as desk:
        log = fs.log = desk.open()
        log.append(b"a")
        log.roll()
        assert fs.thread is not None
        fs.thread.join()
        fs.log = None
        log.append(b"b")
        log.close()
        assert payloads(desk.open()) == [b"a", b"b"]


# -- trouble ------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_log_as_it_was_until_there_is_room(desk: Desk) -> None:
    log = desk.open()
    log.append(bytes(3000))
    desk.fs.capacity_bytes = desk.fs.used_bytes() + 1000
    with pytest.raises(DiskFull):
        log.append(bytes(2000))
    with pytest.raises(DiskFull) as caught:
        log.append_many([b"fits", bytes(2000)])
    assert caught.value.__notes__ == ["1 of 2 records were appended, from sequence 1 on"]
    assert log.append(b"fits too") == 2
    desk.fs.capacity_bytes = None
    assert log.append(bytes(2000)) == 3
    log.close()
    assert payloads(desk.open()) == [bytes(3000), b"fits", b"fits too", bytes(2000)]


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("pwrite", "000000000.q"),
        ("truncate", "000000000.q"),
        ("sync", "000000000.q"),
        ("pwrite", "current.sealed.tmp"),
        ("rename", "current.sealed"),
        ("pwrite", "next.q"),
        ("link", "000000001.q"),
        ("remove", "next.q"),
        ("sync_directory", "02"),
        ("pwrite", "manifest.2"),
        ("sync", "manifest.2"),
        ("pwrite", "manifest.current"),
        ("pwrite", "index.meta"),
        ("sync", "index.meta"),
    ],
)
def test_a_roll_that_fails_halfway_stops_the_writer_and_reopening_loses_nothing(operation: str, suffix: str) -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        log = desk.open()
        log.append(b"a", durable=True)
        fs.fail(operation, suffix, StorageError("the disk says no"))
        with pytest.raises(Poisoned, match="the disk says no"):
            log.roll()
        for attempt in (log.roll, log.flush, lambda: log.append(b"late"), lambda: log.append_many([b"late"])):
            with pytest.raises(Poisoned, match="the disk says no"):
                attempt()
        fs.heal()
        desk.kill()
        for disk in (fs, fs.after_power_cut()):
            with Desk(disk) as after:
                log = after.open()
                assert payloads(log) == [b"a"]
                assert log.append(b"b") == 1
                log.close()
                assert payloads(after.open()) == [b"a", b"b"]


def test_an_interrupt_in_the_middle_of_a_roll_stops_the_writer_too(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    desk.fs.fail("truncate", "000000000.q", RuntimeError("interrupted"))
    with pytest.raises(RuntimeError, match="interrupted"):
        log.roll()
    desk.fs.heal()
    with pytest.raises(Poisoned, match="interrupted"):
        log.append(b"b")
    log.close()
    log = desk.open()
    assert payloads(log) == [b"a"]
    assert log.append(b"b") == 1


def test_a_log_without_segment_ids_left_says_so_and_can_still_be_read(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    log._writer.segment.header = log._writer.segment.header._replace(segment_index=SEGMENT_ID_MAX)
    with pytest.raises(ClosedError, match="used up all segment ids"):
        log.roll()
    assert payloads(log) == [b"a"]
    log._writer.segment.header = log._writer.segment.header._replace(segment_index=0)


def test_the_watermark_stays_though_all_sealed_segments_are_retired_and_the_sealed_pointer_is_lost(desk: Desk) -> None:
    with desk.open() as log:
        log.append(b"x")
        log.coordinator_watermark = 41
        log.roll()
        log.reader("r", "latest").close()
        assert log.cleanup() == [0]
    desk.fs.remove(desk.layout.sealed_pointer)
    assert desk.open().coordinator_watermark == 41
