"""Readers' files of older programs: 16 bytes, or 8, without a sequence."""

import struct

import pytest

from latewood import CorruptError, Queue
from latewood.format.cursor import FILE_BYTES_MAX
from latewood.format.record import record_bytes
from latewood.format.segment import HEADER_SIZE
from tests.log.desk import Desk

ONE = record_bytes(1)


def filled(desk: Desk) -> Queue:
    """Three segments of four one-byte records each, the last one open."""
    log = desk.open(segment_records_max=4)
    log.append_many([b"x"] * 12)
    return log


def write_legacy(desk: Desk, name: str, raw: bytes) -> None:
    desk.fs.make_directory(desk.layout.readers)
    file = desk.fs.open(desk.layout.readers / f"{name}.meta", create=True)
    file.pwrite(raw, 0)
    file.close()


@pytest.mark.parametrize(
    ("segment_id", "offset", "sequence"),
    [
        (0, 0, 0),
        (0, HEADER_SIZE, 0),
        (0, HEADER_SIZE + 2 * ONE, 2),
        (1, 0, 4),
        (1, HEADER_SIZE + 3 * ONE, 7),
        (1, HEADER_SIZE + 4 * ONE, 8),
        (2, HEADER_SIZE + ONE, 9),
        (2, HEADER_SIZE + 4 * ONE, 12),
    ],
)
def test_a_position_in_16_bytes_is_read_and_becomes_one_of_today(
    desk: Desk, segment_id: int, offset: int, sequence: int
) -> None:
    log = filled(desk)
    write_legacy(desk, "old", struct.pack("<QQ", segment_id, offset))
    with log.reader("old") as reader:
        assert reader.sequence == sequence
        assert len(list(reader)) == 12 - sequence
    assert len(desk.raw(desk.layout.readers / "old.meta")) == FILE_BYTES_MAX
    assert [info.sequence for info in log.readers()] == [sequence]


def test_a_position_in_8_bytes_is_one_in_the_first_segment(desk: Desk) -> None:
    log = filled(desk)
    write_legacy(desk, "old", struct.pack("<Q", HEADER_SIZE + 3 * ONE))
    with log.reader("old") as reader:
        assert reader.sequence == 3
        reader.next()
        reader.commit()
    with log.reader("old") as reader:
        assert reader.sequence == 4


def test_a_position_between_two_records_is_refused(desk: Desk) -> None:
    log = filled(desk)
    write_legacy(desk, "old", struct.pack("<QQ", 1, HEADER_SIZE + 8))
    with pytest.raises(CorruptError, match="no record begins at this position"):
        log.reader("old")
    with log.reader("old", start=5) as reader:
        assert reader.sequence == 5


def test_a_position_in_a_segment_that_was_deleted_is_at_the_next_that_is_left(desk: Desk) -> None:
    log = filled(desk)
    log._writer.retire(0)
    write_legacy(desk, "old", struct.pack("<QQ", 0, HEADER_SIZE + ONE))
    with log.reader("old") as reader:
        assert reader.sequence == 4


@pytest.mark.parametrize(("segment_id", "deleted"), [(0, []), (1, [0]), (2, [0, 1]), (99, [])])
def test_a_position_of_an_older_program_holds_its_whole_segment_back(
    desk: Desk, segment_id: int, deleted: list[int]
) -> None:
    log = filled(desk)
    write_legacy(desk, "old", struct.pack("<QQ", segment_id, HEADER_SIZE + 2 * ONE))
    assert log.cleanup() == deleted


def test_readers_of_older_programs_are_listed(desk: Desk) -> None:
    log = filled(desk)
    write_legacy(desk, "old", struct.pack("<QQ", 1, HEADER_SIZE + 2 * ONE))
    (info,) = log.readers()
    assert (info.name, info.committed_at_ns) == ("old", 0)
    assert info.sequence in {4, 6}
