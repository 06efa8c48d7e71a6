"""Opening after a crash, or after damage: what is mended, and what is refused."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latewood import CorruptError, ManifestCorrupted, Queue, UnsupportedVersion
from latewood.format.checkpoint import encode as encode_checkpoint
from latewood.format.record import record_bytes
from latewood.format.segment import HEADER_SIZE, encode_header
from latewood.log.identity import Claim, born
from latewood.log.manifest import ManifestStore, first_manifest
from latewood.testing import CrashFS, MemFS
from tests.format.codecs import BIRTH
from tests.log.desk import ROOT, Desk, payloads, sealed_ids

ONE = record_bytes(1)

IDENTITY = born(Claim(birth=BIRTH), 0)


def start_of(ordinal: int) -> int:
    """Where a record begins in a segment of one-byte payloads."""
    return HEADER_SIZE + ordinal * ONE


def open_segment(desk: Desk) -> Path:
    return desk.segment_paths()[-1]


def killed(desk: Desk, *, flushed: int, unflushed: int = 0) -> None:
    """A log whose writer died, with so many durable records and so many that are only in the cache."""
    log = desk.open()
    log.append_many([str(number).encode() for number in range(flushed)], durable=True)
    log.append_many([str(number).encode() for number in range(flushed, flushed + unflushed)])
    desk.kill()


def numbers(log: Queue) -> list[int]:
    return [int(payload) for payload in payloads(log)]


# -- the tail -----------------------------------------------------------------------------------------


def test_a_killed_writer_loses_nothing(desk: Desk) -> None:
    killed(desk, flushed=3, unflushed=4)
    log = desk.open()
    assert numbers(log) == list(range(7))
    assert log.durable_sequence == 7
    assert log.append(b"7") == 7


def test_a_torn_tail_is_cut_and_the_log_goes_on(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    killed(desk, flushed=3, unflushed=2)
    desk.overwrite(open_segment(desk), b"X", start_of(4) + 24)
    log = desk.open()
    assert numbers(log) == [0, 1, 2, 3]
    assert f"a torn tail were cut at byte {start_of(4)}" in caplog.text
    assert log.append(b"4") == 4
    assert numbers(log) == [0, 1, 2, 3, 4]
    assert log.append(b"5") == 5


@pytest.mark.parametrize("torn", range(1, 33))
def test_a_record_of_which_any_part_is_missing_is_cut(desk: Desk, torn: int) -> None:
    killed(desk, flushed=1, unflushed=1)
    path = open_segment(desk)
    desk.overwrite(path, bytes(torn), start_of(2) - torn)
    log = desk.open()
    # The seven bytes of padding are zeros, written or not.
    assert numbers(log) == ([0, 1] if torn <= 7 else [0])
    log.append(b"9")
    assert numbers(log)[-1] == 9


def test_what_was_not_durable_ends_at_its_first_bad_record_though_good_ones_follow(desk: Desk) -> None:
    killed(desk, flushed=2, unflushed=5)
    desk.overwrite(open_segment(desk), bytes(ONE), start_of(3))
    log = desk.open()
    assert numbers(log) == [0, 1, 2]
    assert [log.append(str(number).encode()) for number in (3, 4)] == [3, 4]
    log.close()
    assert numbers(desk.open()) == [0, 1, 2, 3, 4]


def test_nothing_but_zeros_follows_the_records_after_a_cut(desk: Desk) -> None:
    killed(desk, flushed=2, unflushed=5)
    desk.overwrite(open_segment(desk), b"X", start_of(3) + 24)
    desk.open()
    assert desk.raw(open_segment(desk))[start_of(3) :].strip(b"\0") == b""


def test_a_batch_whose_first_mark_is_missing_never_was(desk: Desk) -> None:
    killed(desk, flushed=2, unflushed=3)
    desk.overwrite(open_segment(desk), bytes(4), start_of(2) + 4)
    assert numbers(desk.open()) == [0, 1]


def test_a_segment_that_a_crash_left_too_short_is_made_whole(desk: Desk) -> None:
    killed(desk, flushed=2)
    full = len(desk.raw(open_segment(desk)))
    desk.truncate(open_segment(desk), start_of(2))
    log = desk.open()
    assert len(desk.raw(open_segment(desk))) == full
    assert log.append(b"2") == 2
    assert numbers(log) == [0, 1, 2]


def test_recovery_that_is_interrupted_can_be_done_again() -> None:
    fs = CrashFS()
    with Desk(fs) as desk:
        killed(desk, flushed=2, unflushed=3)
        desk.overwrite(open_segment(desk), b"X", start_of(3) + 24)
    for survivor in fs.survivors(limit=60):
        for _, again in survivor.cuts_during(lambda disk: Desk(disk).open(), limit=10):
            with Desk(again) as after:
                found = numbers(after.open())
                assert found == list(range(len(found)))
                assert len(found) >= 2


# -- damage to what was durable -----------------------------------------------------------------------


def test_damage_to_what_was_durable_is_refused_with_its_path_and_byte(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"0", b"1", b"2"])
    desk.fs.remove(desk.layout.checkpoint)
    desk.overwrite(open_segment(desk), b"X", start_of(1) + 24)
    with pytest.raises(CorruptError, match="a durable record is damaged") as caught:
        desk.open()
    assert (caught.value.path, caught.value.offset) == (open_segment(desk), start_of(1))


def test_a_durable_record_that_became_zeros_is_refused(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"0", b"1", b"2"])
    desk.fs.remove(desk.layout.checkpoint)
    desk.overwrite(open_segment(desk), bytes(2 * ONE), start_of(1))
    with pytest.raises(CorruptError, match="a durable record is damaged"):
        desk.open()


def test_an_open_segment_that_lost_durable_bytes_is_refused(desk: Desk) -> None:
    killed(desk, flushed=3)
    desk.truncate(open_segment(desk), start_of(2))
    with pytest.raises(CorruptError, match="cut short") as caught:
        desk.open()
    assert caught.value.offset == start_of(2)


def test_damage_with_sound_records_after_it_is_no_torn_tail(desk: Desk) -> None:
    killed(desk, flushed=0, unflushed=5)
    desk.fs.remove(desk.layout.checkpoint)
    desk.overwrite(open_segment(desk), b"X", start_of(2) + 24)
    with pytest.raises(CorruptError, match="sound ones follow it") as caught:
        desk.open()
    assert caught.value.offset == start_of(2)


def test_a_refused_log_is_left_as_it_was(desk: Desk) -> None:
    killed(desk, flushed=0, unflushed=5)
    desk.fs.remove(desk.layout.checkpoint)
    desk.overwrite(open_segment(desk), b"X", start_of(2) + 24)
    before = {path: desk.raw(path) for path in desk.fs.walk(desk.layout.segments)}
    with pytest.raises(CorruptError):
        desk.open()
    assert {path: desk.raw(path) for path in desk.fs.walk(desk.layout.segments)} == before


def test_a_header_of_a_later_version_is_refused_as_such(desk: Desk) -> None:
    desk.open().close()
    desk.overwrite(open_segment(desk), b"\x02", 8)
    with pytest.raises(UnsupportedVersion, match="segment header version 2"):
        desk.open()


# -- index.meta ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"rubbish" * 20, b"L"], ids=["rubbish", "torn"])
def test_a_checkpoint_that_cannot_be_used_is_warned_of_and_done_without(
    desk: Desk, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    killed(desk, flushed=2, unflushed=3)
    desk.truncate(desk.layout.checkpoint, 0)
    desk.overwrite(desk.layout.checkpoint, damage)
    log = desk.open()
    assert numbers(log) == [0, 1, 2, 3, 4]
    assert "the whole open segment is scanned instead" in caplog.text
    log.append(b"5", durable=True)
    assert desk.checkpoint().durable_sequence == 6


@pytest.mark.parametrize("spoil", [MemFS.remove, lambda fs, path: fs.open(path, write=True).truncate(0)])
def test_a_missing_or_empty_checkpoint_is_done_without(desk: Desk, spoil: Callable[[MemFS, Path], None]) -> None:
    killed(desk, flushed=2, unflushed=3)
    spoil(desk.fs, desk.layout.checkpoint)
    log = desk.open()
    assert numbers(log) == [0, 1, 2, 3, 4]
    log.append(b"5", durable=True)
    assert desk.checkpoint().durable_sequence == 6


def test_a_checkpoint_of_another_segment_is_not_used(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"0", b"1"], durable=True)
    stale = desk.raw(desk.layout.checkpoint)
    log.roll()
    log.append_many([b"2", b"3"], durable=True)
    desk.kill()
    desk.overwrite(desk.layout.checkpoint, stale)
    assert numbers(desk.open()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "fields",
    [
        {"write_offset": 8},
        {"write_offset": 1 << 40},
        {"reserved_end": 64},
        {"durable_sequence": 77},
        {"record_count": 9},
    ],
    ids=str,
)
def test_a_checkpoint_that_contradicts_the_rest_is_not_used(desk: Desk, fields: dict[str, Any]) -> None:
    killed(desk, flushed=2, unflushed=3)
    desk.overwrite(desk.layout.checkpoint, encode_checkpoint(desk.checkpoint()._replace(**fields)))
    log = desk.open()
    assert log.append(b"5") == 5
    assert numbers(log) == [0, 1, 2, 3, 4, 5]


def test_a_checkpoint_of_more_bytes_than_there_are_does_not_keep_a_log_from_being_read(desk: Desk) -> None:
    killed(desk, flushed=2, unflushed=3)
    desk.overwrite(desk.layout.checkpoint, encode_checkpoint(desk.checkpoint()._replace(write_offset=1 << 40)))
    assert desk.open_to_read().next_sequence == 5


def test_what_the_records_say_of_time_and_ids_survives_with_and_without_a_checkpoint(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a", timestamp_ns=500, ext_id=9)
    log.roll()
    log.append_many([b"b", b"c"], timestamps_ns=[30, 20], ext_ids=[4, 6], durable=True)
    log.append(b"d", timestamp_ns=25, ext_id=5)
    expected = log._writer.segment.tail()
    desk.kill()
    with_checkpoint = desk.open()
    assert with_checkpoint._writer.segment.tail() == expected
    desk.kill()
    desk.fs.remove(desk.layout.checkpoint)
    assert desk.open()._writer.segment.tail() == expected


# -- current.sealed -----------------------------------------------------------------------------------


def remove_pointer(desk: Desk) -> None:
    desk.fs.remove(desk.layout.sealed_pointer)


def damage_pointer(desk: Desk) -> None:
    desk.overwrite(desk.layout.sealed_pointer, b"X", 20)


@pytest.mark.parametrize("spoil", [remove_pointer, damage_pointer])
def test_a_missing_or_damaged_pointer_is_warned_of_and_written_again(
    desk: Desk, spoil: Callable[[Desk], None], caplog: pytest.LogCaptureFixture
) -> None:
    with desk.open() as log:
        log.coordinator_watermark = 5
        log.append(b"0")
        log.roll()
    right = desk.raw(desk.layout.sealed_pointer)
    spoil(desk)
    assert desk.open().coordinator_watermark == 5
    assert "was missing or stale; it is written again" in caplog.text
    assert desk.raw(desk.layout.sealed_pointer) == right


def test_a_stale_pointer_is_warned_of_and_written_again(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with desk.open() as log:
        log.append(b"0")
        log.roll()
        stale = desk.raw(desk.layout.sealed_pointer)
        log.append(b"1")
        log.roll()
    right = desk.raw(desk.layout.sealed_pointer)
    desk.overwrite(desk.layout.sealed_pointer, stale)
    desk.open()
    assert "missing or stale" in caplog.text
    assert desk.raw(desk.layout.sealed_pointer) == right


def test_a_right_pointer_is_left_alone(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with desk.open() as log:
        log.append(b"0")
        log.roll()
    with caplog.at_level(logging.WARNING):
        desk.open()
    assert caplog.text == ""


# -- the manifest -------------------------------------------------------------------------------------


def three_segments(desk: Desk) -> None:
    with desk.open() as log:
        for number in range(3):
            log.append(str(number).encode())
            log.roll()


def test_a_corrupt_manifest_is_refused_and_the_other_slot_is_not_used(desk: Desk) -> None:
    three_segments(desk)
    current = desk.raw(ROOT / "manifest.current")[0]
    path = ROOT / f"manifest.{current}"
    desk.overwrite(path, b"X", 40)
    for attempt in (desk.open, desk.open_to_read):
        with pytest.raises(ManifestCorrupted, match="latewood rebuild") as caught:
            attempt()
        assert caught.value.path == path


@pytest.mark.parametrize("byte", [0, 3, 255])
def test_a_pointer_to_no_slot_is_refused(desk: Desk, byte: int) -> None:
    three_segments(desk)
    desk.overwrite(ROOT / "manifest.current", bytes([byte]))
    for attempt in (desk.open, desk.open_to_read):
        with pytest.raises(ManifestCorrupted, match=f"says {byte}, not 1 or 2") as caught:
            attempt()
        assert caught.value.path == ROOT / "manifest.current"


@pytest.mark.parametrize("spoil", [MemFS.remove, lambda fs, path: fs.open(path, write=True).truncate(0)])
def test_a_missing_pointer_is_not_taken_for_a_fresh_log(desk: Desk, spoil: Callable[[MemFS, Path], None]) -> None:
    three_segments(desk)
    spoil(desk.fs, ROOT / "manifest.current")
    for attempt in (desk.open, desk.open_to_read):
        with pytest.raises(ManifestCorrupted, match=r"the pointer is missing.*latewood rebuild"):
            attempt()


def test_a_missing_slot_is_refused(desk: Desk) -> None:
    three_segments(desk)
    current = desk.raw(ROOT / "manifest.current")[0]
    desk.fs.remove(ROOT / f"manifest.{current}")
    with pytest.raises(ManifestCorrupted, match="the current slot is missing"):
        desk.open()


def test_a_manifest_of_a_later_version_is_refused_as_such(desk: Desk) -> None:
    three_segments(desk)
    current = desk.raw(ROOT / "manifest.current")[0]
    desk.overwrite(ROOT / f"manifest.{current}", b"\x03", 4)
    for attempt in (desk.open, desk.open_to_read):
        with pytest.raises(UnsupportedVersion, match="manifest version 3"):
            attempt()


def test_a_manifest_that_is_older_than_its_segments_is_refused(desk: Desk) -> None:
    log = desk.open()
    log.append(b"0")
    old = {path: desk.raw(path) for path in desk.fs.walk(ROOT) if path.name.startswith("manifest.")}
    log.roll()
    log.append(b"1")
    log.close()
    for path, data in old.items():
        desk.truncate(path, 0)
        desk.overwrite(path, data)
    with pytest.raises(ManifestCorrupted, match="the manifest does not know it") as caught:
        desk.open()
    assert caught.value.path == desk.segment_paths()[1]


def test_a_header_that_is_not_what_the_manifest_says_is_refused(desk: Desk) -> None:
    three_segments(desk)
    desk.overwrite(open_segment(desk), encode_header(desk.header(-1)._replace(base_record_count=99)))
    with pytest.raises(ManifestCorrupted, match="header and manifest do not agree") as caught:
        desk.open()
    assert caught.value.path == open_segment(desk)


def test_a_missing_open_segment_is_refused(desk: Desk) -> None:
    three_segments(desk)
    path = open_segment(desk)
    desk.fs.remove(path)
    with pytest.raises(ManifestCorrupted, match="the active segment is missing") as caught:
        desk.open()
    assert caught.value.path == path


def test_a_missing_last_sealed_segment_is_refused(desk: Desk) -> None:
    three_segments(desk)
    path = desk.segment_paths()[2]
    desk.fs.remove(path)
    with pytest.raises(ManifestCorrupted, match="a sealed segment is missing") as caught:
        desk.open()
    assert caught.value.path == path


def test_a_last_footer_that_is_not_what_the_manifest_says_is_refused(desk: Desk) -> None:
    three_segments(desk)
    second, third = desk.segment_paths()[1:3]
    desk.overwrite(third, desk.raw(second))
    with pytest.raises(ManifestCorrupted, match="footer and manifest do not agree"):
        desk.open()


# -- creation that was interrupted --------------------------------------------------------------------


def test_a_log_without_its_first_segment_is_born_when_it_is_opened(desk: Desk) -> None:
    desk.fs.make_directory(ROOT)
    ManifestStore(desk.fs, desk.layout).store(first_manifest(desk.layout, desk.clock.now_ns(), 0, IDENTITY))
    log = desk.open()
    assert log.append(b"0") == 0
    log.close()
    assert numbers(desk.open()) == [0]


def test_a_manifest_without_a_pointer_and_segments_is_an_unfinished_creation(desk: Desk) -> None:
    desk.open().close()
    raw = desk.raw(ROOT / "manifest.1")
    with Desk() as other:
        other.fs.make_directory(ROOT)
        for length in range(len(raw) + 1):
            file = other.fs.open(ROOT / "manifest.1", create=True)
            file.truncate(0)
            file.pwrite(raw[:length], 0)
            assert ManifestStore(other.fs, other.layout).is_unfinished_creation()
        assert other.open().append(b"0") == 0


def test_a_first_segment_that_is_lost_after_an_append_is_not_made_anew(desk: Desk) -> None:
    log = desk.open()
    log.append(b"0", durable=True)
    desk.kill()
    desk.fs.remove(open_segment(desk))
    with pytest.raises(ManifestCorrupted, match="the active segment is missing"):
        desk.open()


# -- a roll that was interrupted ----------------------------------------------------------------------


def test_a_power_cut_at_any_step_of_a_roll_loses_nothing_and_the_log_goes_on() -> None:
    fs = CrashFS()
    desk = Desk(fs)
    log = desk.open()
    log.append_many([b"0", b"1"], durable=True)
    for step, survivor in fs.cuts_during(lambda _: log.roll(), limit=40):
        with Desk(survivor) as after:
            again = after.open()
            assert numbers(again) == [0, 1], step
            assert again.append(b"2") == 2, step
            assert sealed_ids(again) in ([], [0]), step
            again.close()
            assert numbers(after.open()) == [0, 1, 2], step


def test_a_seal_that_was_completed_is_finished_when_the_log_is_opened(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"0", b"1"])
    log._writer.segment.seal(now_ns=desk.clock.now_ns(), coordinator_watermark=3, flush_failed=False)
    desk.kill()
    log = desk.open()
    assert sealed_ids(log) == [0]
    assert desk.footer(0).coordinator_watermark == 3
    assert log.append(b"2") == 2
    assert numbers(log) == [0, 1, 2]


def test_a_seal_that_was_not_completed_is_cut(desk: Desk) -> None:
    log = desk.open()
    log.append_many([b"0", b"1"])
    full = len(desk.raw(open_segment(desk)))
    footer, size = log._writer.segment.seal(now_ns=1, coordinator_watermark=0, flush_failed=False)
    desk.kill()
    desk.truncate(open_segment(desk), full)
    desk.overwrite(open_segment(desk), bytes(20), size - 20)
    log = desk.open()
    assert sealed_ids(log) == []
    assert desk.raw(open_segment(desk))[footer.index_offset :].strip(b"\0") == b""
    assert log.append(b"2") == 2
    assert numbers(log) == [0, 1, 2]
