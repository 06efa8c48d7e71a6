"""Writing one segment: the file, its records, its seal."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, DiskFull, StorageError, UnsupportedVersion
from latewood.format import seal as seal_format
from latewood.format.record import record_bytes
from latewood.format.segment import FOOTER_SIZE, HEADER_SIZE, SegmentFooter, decode_header
from latewood.fs import File, PosixFS
from latewood.kernel import SEALED, index_records, scan
from latewood.segment import SegmentReader, empty_tail, file_bytes, prepare, read_footer, read_header, read_seal_at
from latewood.testing import MemFS
from tests.segment.bench import PATH, Line, append, begin, entry_of, header, overwrite, payloads, raw, reattached, seal

U64_MAX = 2**64 - 1


def opened(fs: MemFS) -> File:
    return fs.open(PATH)


# -- the file -----------------------------------------------------------------------------------------


def test_a_prepared_file_is_all_zeros_and_of_the_size_asked_for(fs: MemFS) -> None:
    prepare(fs, PATH, 5000).close()
    assert raw(fs) == bytes(5000)


def test_a_filled_file_is_written_and_one_that_is_not_is_only_promised(tmp_path: Path) -> None:
    fs, size = PosixFS(), 150_000
    for fill, end in ((False, 0), (True, size)):
        with closing(prepare(fs, tmp_path / "next.q", size, fill=fill)) as file:
            assert file.size() == size
            assert file.data_end(0, size) == end
        assert (tmp_path / "next.q").read_bytes() == bytes(size)


def test_preparing_makes_a_new_file_in_the_place_of_an_old_one(fs: MemFS) -> None:
    old = fs.open(PATH, create=True)
    old.pwrite(b"another name of a segment", 0)
    prepare(fs, PATH, 100).close()
    assert old.pread(100, 0) == b"another name of a segment"
    assert raw(fs) == bytes(100)


@pytest.mark.parametrize(("operation", "error"), [("allocate", DiskFull("no room")), ("sync", StorageError("no luck"))])
def test_a_file_that_cannot_be_prepared_is_not_left_behind(fs: MemFS, operation: str, error: Exception) -> None:
    fs.fail(operation, PATH.name, error)
    with pytest.raises(type(error)):
        prepare(fs, PATH, 100)
    assert not fs.exists(PATH)


def test_the_header_is_on_disk_before_the_first_record(fs: MemFS) -> None:
    begin(fs, segment_index=7, ext_id=5).close()
    assert decode_header(raw(fs), PATH) == header(segment_index=7, ext_id=5)


def test_the_cohort_of_an_empty_segment_can_be_changed(fs: MemFS) -> None:
    writer = begin(fs)
    writer.write_ext_id(9)
    assert writer.header.ext_id == 9
    assert read_header(opened(fs)) == header(ext_id=9)
    footer, _ = seal(writer)
    assert footer.ext_id == 9


# -- records ------------------------------------------------------------------------------------------


def test_a_record_that_fits_exactly_is_taken_and_a_larger_one_is_not(fs: MemFS) -> None:
    room = 512 - HEADER_SIZE
    writer = begin(fs, max_size=512)
    assert writer.appender.append(bytes(room - 24 + 1)) == -1
    assert writer.appender.append(bytes(room - 24)) == 100
    assert writer.tail().offset == 512
    assert writer.appender.append(b"") == -1
    assert seal(writer)[0].index_offset == 512


@given(st.integers(512, 2000).map(lambda size: size // 8 * 8), st.integers(1, 70))
def test_a_segment_full_of_empty_records_has_room_for_its_seal(size: int, interval: int) -> None:
    fs = MemFS()
    writer = begin(fs, max_size=size, index_interval=interval)
    count = 0
    while writer.appender.append(b"") >= 0:
        count += 1
    footer, trimmed = seal(writer)
    assert footer.record_count == count == (size - HEADER_SIZE) // 24
    assert trimmed <= file_bytes(size, interval)


def test_the_tail_sums_up_the_records(fs: MemFS) -> None:
    writer = begin(fs, empty_tail(40))
    assert writer.tail() == empty_tail(40)
    append(writer, [Line(b"a", 30, 7), Line(b"bcd", 50, 2), Line(b"", 20, 5)])
    assert writer.tail() == (HEADER_SIZE + 2 * record_bytes(3) + record_bytes(0), 3, 30, 20, 50, 2, 7)
    writer.close()


# -- the seal -----------------------------------------------------------------------------------------


def test_the_footer_says_what_the_segment_holds(fs: MemFS) -> None:
    writer = begin(fs, empty_tail(40), segment_index=3, base_record_count=100, ext_id=6, index_interval=2)
    append(writer, [Line(b"a", 30, 7), Line(b"b", 50, 2), Line(b"c", 20, 5)])
    footer, size = seal(writer, now_ns=90, watermark=77, flush_failed=True)
    assert footer == SegmentFooter(
        flush_failure_flag=True,
        segment_index=3,
        ext_id=6,
        durable_bytes=3 * record_bytes(1),
        record_count=3,
        first_record_timestamp=30,
        last_record_timestamp=20,
        max_timestamp=50,
        coordinator_watermark=77,
        min_ext_id=2,
        max_ext_id=7,
        index_offset=HEADER_SIZE + 3 * record_bytes(1),
        index_count=2,
        index_interval=2,
        base_record_count=100,
        sealed_at=90,
    )
    assert read_footer(opened(fs)) == footer
    assert size == len(raw(fs))


def test_a_sealed_file_ends_with_its_footer(fs: MemFS) -> None:
    writer = begin(fs, index_interval=4)
    append(writer, [Line(b"x")] * 9)
    footer, size = seal(writer)
    records_end = HEADER_SIZE + 9 * record_bytes(1)
    assert footer.index_offset == records_end
    assert size == records_end + seal_format.HEAD_SIZE + 3 * seal_format.ENTRY_SIZE + FOOTER_SIZE
    assert len(raw(fs)) == size


def test_the_seal_stands_where_the_next_record_would(fs: MemFS) -> None:
    writer = begin(fs)
    append(writer, [Line(b"x")] * 3)
    footer, size = seal(writer)
    data = raw(fs)
    records, end, state = scan(data, HEADER_SIZE, len(data), 100, 1_000, 1 << 20)
    assert (len(records), end, state) == (3, footer.index_offset, SEALED)
    assert read_seal_at(opened(fs), end) == (footer, size)


def test_the_index_has_every_nth_record_and_the_largest_timestamp_so_far(fs: MemFS) -> None:
    writer = begin(fs, empty_tail(25), index_interval=2)
    append(writer, [Line(b"x", timestamp) for timestamp in (10, 40, 20, 30, 50)])
    footer, _ = seal(writer)
    start = footer.index_offset + seal_format.HEAD_SIZE
    entries = memoryview(raw(fs))[start : start + 3 * seal_format.ENTRY_SIZE].cast("Q").tolist()
    step = 2 * record_bytes(1)
    assert entries == [HEADER_SIZE, 25, HEADER_SIZE + step, 40, HEADER_SIZE + 2 * step, 50]


def test_an_empty_segment_can_be_sealed(fs: MemFS) -> None:
    footer, size = seal(begin(fs))
    assert (footer.record_count, footer.durable_bytes, footer.index_count) == (0, 0, 0)
    assert (footer.min_ext_id, footer.max_ext_id) == (U64_MAX, 0)
    assert size == HEADER_SIZE + seal_format.HEAD_SIZE + FOOTER_SIZE


def test_nothing_can_be_appended_after_the_seal(fs: MemFS) -> None:
    writer = begin(fs)
    writer.seal(now_ns=1, coordinator_watermark=0, flush_failed=False)
    assert writer.appender.append(b"late") == -1
    writer.close()


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(0, 60), st.integers(1, 9))
def test_a_segment_that_was_reopened_halfway_is_sealed_like_any_other(
    timestamps: list[int], half: int, interval: int
) -> None:
    lines = [Line(b"x" * (timestamp % 11), timestamp, timestamp % 5) for timestamp in timestamps]
    straight, halved = MemFS(), MemFS()
    writer = begin(straight, index_interval=interval)
    append(writer, lines)
    seal(writer)
    writer = begin(halved, index_interval=interval)
    append(writer, lines[:half])
    writer = reattached(halved, writer)
    append(writer, lines[half:])
    footer, size = seal(writer)
    assert raw(halved) == raw(straight)
    assert payloads(SegmentReader(halved, PATH, entry_of(footer, size))) == [line.payload for line in lines]


def test_the_index_equals_the_one_that_the_records_give(fs: MemFS) -> None:
    writer = begin(fs, index_interval=3)
    append(writer, [Line(b"x" * number, 100 - number) for number in range(20)])
    footer, _ = seal(writer)
    data, start = raw(fs), footer.index_offset + seal_format.HEAD_SIZE
    assert data[start:-FOOTER_SIZE] == index_records(data, HEADER_SIZE, footer.index_offset, 20, 3, 0)


# -- a seal that is not whole -------------------------------------------------------------------------


def test_a_seal_is_not_one_until_every_byte_of_it_is_there(fs: MemFS) -> None:
    writer = begin(fs)
    append(writer, [Line(b"x")] * 5)
    footer, size = seal(writer)
    whole = raw(fs)
    for at in range(footer.index_offset, size):
        overwrite(fs, bytes([whole[at] ^ 0x55]), at)
        with pytest.raises((CorruptError, UnsupportedVersion)):
            read_seal_at(opened(fs), footer.index_offset)
        overwrite(fs, whole[at : at + 1], at)
    assert read_seal_at(opened(fs), footer.index_offset) == (footer, size)


def test_a_cut_seal_is_not_one_at_any_length(fs: MemFS) -> None:
    writer = begin(fs)
    append(writer, [Line(b"x")] * 5)
    footer, size = seal(writer)
    file = fs.open(PATH, write=True)
    for length in range(size - 1, -1, -1):
        file.truncate(length)
        with pytest.raises(CorruptError):
            read_footer(file)
        if length >= footer.index_offset:
            with pytest.raises(CorruptError):
                read_seal_at(file, footer.index_offset)


def test_an_entry_count_that_no_file_could_hold_is_refused_before_it_is_read(fs: MemFS) -> None:
    writer = begin(fs)
    footer, _ = seal(writer)
    overwrite(fs, b"\xff\xff\xff\xff", footer.index_offset + 8)
    before = fs.counts.bytes_read
    with pytest.raises(CorruptError, match="does not fit"):
        read_seal_at(opened(fs), footer.index_offset)
    assert fs.counts.bytes_read - before < 1_000


def test_a_missing_header_is_corrupt(fs: MemFS) -> None:
    file = prepare(fs, Path("zeros.q"), 500)
    with pytest.raises(CorruptError) as caught:
        read_header(file)
    assert (caught.value.path, caught.value.offset) == (Path("zeros.q"), 0)
