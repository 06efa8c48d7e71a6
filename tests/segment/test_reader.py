"""Reading one segment: sealed, or open and growing."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, NotFoundError, UnsupportedVersion
from latewood.format import keyed
from latewood.format.entries import SegmentEntry
from latewood.format.record import record_bytes
from latewood.format.segment import HEADER_SIZE
from latewood.kernel import BAD, EMPTY, KEYS, MORE, PAYLOADS, SEALED
from latewood.segment import SegmentReader, Selection, empty_tail
from latewood.testing import MemFS
from latewood.testing.mem_file import MemFile, MemMapping
from tests.segment.bench import (
    PATH,
    UNBOUNDED,
    Line,
    append,
    begin,
    entry_of,
    overwrite,
    payloads,
    raw,
    seal,
    sealed_reader,
)

LINES = [Line(b"x" * (number % 13), 10 * number, number) for number in range(30)]
ONE = record_bytes(1)

timestamps_strategy = st.lists(st.integers(0, 40), max_size=50)


def first_at_or_after(timestamps: list[int], wanted: int) -> int | None:
    return next((index for index, timestamp in enumerate(timestamps) if timestamp >= wanted), None)


# -- reading ------------------------------------------------------------------------------------------


def test_a_sealed_segment_gives_back_its_records(fs: MemFS) -> None:
    reader = sealed_reader(fs, LINES)
    records, end, state = reader.read(HEADER_SIZE, 100, UNBOUNDED, UNBOUNDED)
    assert [(record.payload, record.timestamp_ns, record.ext_id) for record in records] == LINES
    assert [record.sequence for record in records] == list(range(100, 130))
    assert (end, state) == (reader.footer.index_offset if reader.footer else None, SEALED)
    reader.close()


def test_reading_stops_at_the_records_and_bytes_asked_for_and_goes_on_from_there(fs: MemFS) -> None:
    reader = sealed_reader(fs, [Line(b"x" * 8)] * 10)
    records, offset, state = reader.read(HEADER_SIZE, 100, 3, UNBOUNDED)
    assert (len(records), state) == (3, MORE)
    records, offset, state = reader.read(offset, 103, UNBOUNDED, 17)
    assert ([record.sequence for record in records], state) == ([103, 104, 105], MORE)
    records, _, state = reader.read(offset, 106, UNBOUNDED, UNBOUNDED)
    assert ([record.sequence for record in records], state) == ([106, 107, 108, 109], SEALED)
    reader.close()


def test_columns_hold_the_same_as_records(fs: MemFS) -> None:
    reader = sealed_reader(fs, LINES)
    found = reader.read_columns(HEADER_SIZE, 100, UNBOUNDED, UNBOUNDED)
    (count, end, state, timestamps, ext_ids, offsets, data), keys = found[:7], found[7:]
    assert timestamps is not None
    assert ext_ids is not None
    assert offsets is not None
    assert data is not None
    assert keys == (None, None, None)
    ends = memoryview(offsets).cast("i").tolist()
    assert (count, state) == (30, SEALED)
    assert end == reader.read(HEADER_SIZE, 100, UNBOUNDED, UNBOUNDED)[1]
    assert memoryview(timestamps).cast("Q").tolist() == [line.timestamp_ns for line in LINES]
    assert memoryview(ext_ids).cast("Q").tolist() == [line.ext_id for line in LINES]
    assert [data[start:stop] for start, stop in pairwise(ends)] == [line.payload for line in LINES]
    reader.close()


def test_a_payload_that_is_too_short_for_its_key_is_told_with_its_place(fs: MemFS) -> None:
    reader = sealed_reader(fs, [Line(keyed.encode(b"k", b"v")), Line(b"abc")])
    selection = Selection(PAYLOADS | KEYS, keyed=True)
    found = reader.read_columns(HEADER_SIZE, 100, UNBOUNDED, UNBOUNDED, selection)
    assert (found[0], found[6], found[9]) == (1, b"v", b"k")
    with pytest.raises(CorruptError, match="too short for its key") as told:
        reader.read_columns(found[1], 101, UNBOUNDED, UNBOUNDED, selection)
    assert told.value.offset == found[1]
    reader.close()


# -- finding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [1, 2, 7, 29, 30, 31, 1_000])
@pytest.mark.parametrize("sealed", [True, False])
def test_every_record_is_found_by_its_sequence(fs: MemFS, interval: int, *, sealed: bool) -> None:
    writer = begin(fs, index_interval=interval)
    starts = [HEADER_SIZE]
    for line in LINES:
        append(writer, [line])
        starts.append(writer.tail().offset)
    reader = SegmentReader(fs, PATH, entry_of(*seal(writer)) if sealed else None)
    for ordinal in [17, *range(31), 3]:
        assert reader.offset_of(100 + ordinal) == starts[ordinal]
        assert reader.sequence_at(starts[ordinal]) == 100 + ordinal
    reader.close()


def test_a_sequence_beyond_the_records_is_not_there(fs: MemFS) -> None:
    reader = sealed_reader(fs, LINES)
    with pytest.raises(CorruptError, match="131 should be here"):
        reader.offset_of(131)
    reader.close()


def test_no_record_begins_between_two_others(fs: MemFS) -> None:
    reader = sealed_reader(fs, [Line(b"x" * 8)] * 3)
    assert reader.sequence_at(0) == 100
    assert reader.sequence_at(HEADER_SIZE + 8) is None
    assert reader.sequence_at(1 << 20) is None
    reader.close()


@given(timestamps_strategy, st.integers(0, 41), st.integers(1, 12), st.integers(0, 50))
def test_a_time_is_found_where_it_is_first_reached_however_the_clock_ran(
    timestamps: list[int], wanted: int, interval: int, before: int
) -> None:
    expected = first_at_or_after(timestamps, wanted)
    fs = MemFS()
    writer = begin(fs, empty_tail(before), index_interval=interval)
    append(writer, [Line(b"x", timestamp) for timestamp in timestamps])
    live = SegmentReader(fs, PATH, None)
    sealed = SegmentReader(fs, PATH, entry_of(*seal(writer)))
    for reader in (live, sealed):
        found = reader.find_timestamp(wanted)
        assert found == (None if expected is None else (100 + expected, HEADER_SIZE + expected * ONE))
        reader.close()


@given(timestamps_strategy, timestamps_strategy, st.integers(0, 41))
def test_a_time_is_found_in_what_was_appended_since_the_last_look(
    early: list[int], late: list[int], wanted: int
) -> None:
    fs = MemFS()
    writer = begin(fs, index_interval=3)
    append(writer, [Line(b"x", timestamp) for timestamp in early])
    reader = SegmentReader(fs, PATH, None)
    reader.find_timestamp(wanted)
    append(writer, [Line(b"x", timestamp) for timestamp in late])
    expected = first_at_or_after(early + late, wanted)
    found = reader.find_timestamp(wanted)
    assert found == (None if expected is None else (100 + expected, HEADER_SIZE + expected * ONE))


# -- an open segment ----------------------------------------------------------------------------------


def test_an_open_segment_is_read_as_it_grows(fs: MemFS) -> None:
    writer = begin(fs)
    reader = SegmentReader(fs, PATH, None)
    assert reader.read(HEADER_SIZE, 100, 10, UNBOUNDED) == ([], HEADER_SIZE, EMPTY)
    append(writer, [Line(b"a")])
    records, offset, state = reader.read(HEADER_SIZE, 100, 10, UNBOUNDED)
    assert ([record.payload for record in records], state) == ([b"a"], EMPTY)
    append(writer, [Line(b"b"), Line(b"c")])
    records, _, _ = reader.read(offset, 101, 10, UNBOUNDED)
    assert [record.payload for record in records] == [b"b", b"c"]
    writer.close()
    reader.close()


def test_a_live_reader_sees_the_seal(fs: MemFS) -> None:
    writer = begin(fs)
    append(writer, [Line(b"a")])
    reader = SegmentReader(fs, PATH, None)
    offset = reader.offset_of(101)
    assert reader.read(offset, 101, 10, UNBOUNDED) == ([], offset, EMPTY)
    seal(writer)
    assert reader.read(offset, 101, 10, UNBOUNDED) == ([], offset, SEALED)
    reader.close()


def test_a_batch_is_seen_whole_or_not_at_all(fs: MemFS) -> None:
    writer = begin(fs)
    reader = SegmentReader(fs, PATH, None)
    assert writer.appender.append_many([b"a", b"b", b"c"], 0, 0, 1) == 3
    mark = raw(fs)[HEADER_SIZE + 4 : HEADER_SIZE + 8]
    overwrite(fs, bytes(4), HEADER_SIZE + 4)  # the first record's mark, which is stored last
    assert reader.read(HEADER_SIZE, 100, 10, UNBOUNDED) == ([], HEADER_SIZE, EMPTY)
    overwrite(fs, mark, HEADER_SIZE + 4)
    assert payloads(reader) == [b"a", b"b", b"c"]
    writer.close()
    reader.close()


def test_a_bad_record_of_an_open_segment_is_left_for_the_log_to_judge(fs: MemFS) -> None:
    writer = begin(fs)
    append(writer, [Line(b"a"), Line(b"b")])
    overwrite(fs, b"X", HEADER_SIZE + ONE + 24)
    reader = SegmentReader(fs, PATH, None)
    records, offset, state = reader.read(HEADER_SIZE, 100, 10, UNBOUNDED)
    assert ([record.payload for record in records], offset, state) == ([b"a"], HEADER_SIZE + ONE, BAD)
    assert reader.read(offset, 101, 10, UNBOUNDED) == ([], offset, BAD)
    writer.close()
    reader.close()


class TrimmedUnderneath(MemFS):
    """A disk on which the writer trims the segment between a reader's look at its size and the mapping."""

    trimmed_to = 0

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> MemFile:
        file = super().open(path, write=write, create=create)
        if self.trimmed_to and not write:
            file.map = self._map_after_trim(file)  # type: ignore[method-assign]
        return file

    def _map_after_trim(self, file: MemFile) -> "type[MemMapping]":
        original = file.map

        def trimmed(length: int, *, writable: bool) -> MemMapping:
            if self.trimmed_to:
                self.trimmed_to, size = 0, self.trimmed_to
                super(TrimmedUnderneath, self).open(file.path, write=True).truncate(size)
            return original(length, writable=writable)

        return trimmed  # type: ignore[return-value]


def test_a_segment_that_is_trimmed_while_it_is_being_opened_is_opened_all_the_same() -> None:
    fs = TrimmedUnderneath()
    writer = begin(fs)
    append(writer, [Line(b"a")])
    _, size = seal(writer)
    file = fs.open(PATH, write=True)
    file.allocate(4264)
    fs.trimmed_to = size
    reader = SegmentReader(fs, PATH, None)
    assert payloads(reader) == [b"a"]
    assert len(reader.view) == size


# -- damage -------------------------------------------------------------------------------------------


def test_a_missing_segment_is_not_found(fs: MemFS) -> None:
    with pytest.raises(NotFoundError):
        SegmentReader(fs, PATH, None)


def test_every_changed_byte_of_a_sealed_segment_is_detected_or_harmless(fs: MemFS) -> None:
    lines = [Line(b"abc", number, number) for number in range(6)]
    writer = begin(fs, index_interval=2)
    append(writer, lines)
    entry = entry_of(*seal(writer))
    whole = raw(fs)
    for at in range(len(whole)):
        overwrite(fs, bytes([whole[at] ^ 0x04]), at)
        try:
            reader = SegmentReader(fs, PATH, entry)
            assert reader.offset_of(103) == HEADER_SIZE + 3 * ONE
            found = payloads(reader)
        except (CorruptError, UnsupportedVersion):
            found = [line.payload for line in lines]
        assert found == [line.payload for line in lines]
        overwrite(fs, whole[at : at + 1], at)


def test_a_sealed_segment_is_detected_as_cut_short_at_each_length(fs: MemFS) -> None:
    writer = begin(fs)
    append(writer, LINES[:3])
    entry = entry_of(*seal(writer))
    file = fs.open(PATH, write=True)
    for length in range(file.size() - 1, -1, -1):
        file.truncate(length)
        with pytest.raises(CorruptError):
            SegmentReader(fs, PATH, entry)


@pytest.mark.parametrize(("start", "end"), [(99, 128), (100, 128), (101, 130), (100, 130)])
def test_a_segment_that_is_not_what_the_manifest_says_is_refused(fs: MemFS, start: int, end: int) -> None:
    sealed_reader(fs, LINES).close()
    with pytest.raises(CorruptError, match="footer and manifest do not agree"):
        SegmentReader(fs, PATH, SegmentEntry(start, end, 0, 0, 0, PATH.as_posix()))


def test_header_and_footer_of_different_segments_are_refused(fs: MemFS) -> None:
    reader = sealed_reader(fs, LINES, segment_index=3)
    reader.close()
    whole = raw(fs)
    other = MemFS()
    sealed_reader(other, LINES, segment_index=4).close()
    overwrite(fs, raw(other)[:HEADER_SIZE], 0)
    with pytest.raises(CorruptError, match="header and footer do not agree"):
        SegmentReader(fs, PATH, SegmentEntry(100, 129, len(whole), 0, 0, PATH.as_posix()))
