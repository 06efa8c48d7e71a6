"""The manifest's table of entries, decoded one at a time."""

import itertools
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import ManifestCorrupted
from latewood.format.entries import ENTRY_SIZE, EntryTable, SegmentEntry, encode_entry
from latewood.kernel import crc32c

MANIFEST = Path("events/manifest.1")
RECORDS = 10


def entry(segment_id: int) -> SegmentEntry:
    start = segment_id * RECORDS
    path = f"segments/2026/03/02/{segment_id:09}.q"
    return SegmentEntry(start, start + RECORDS - 1, 4096 + segment_id, 7 * segment_id, 3 * segment_id, path)


def table(*segment_ids: int) -> EntryTable:
    """A table as it is read from disk."""
    raw = bytearray(b"".join(encode_entry(entry(segment_id)) for segment_id in segment_ids))
    return EntryTable(raw, len(segment_ids), crc32c(raw), MANIFEST)


def appended(*segment_ids: int) -> EntryTable:
    """A table as the writer makes it."""
    made = EntryTable.empty(MANIFEST)
    for segment_id in segment_ids:
        made = made.append(entry(segment_id))
    return made


def everything(entries: EntryTable) -> list[SegmentEntry]:
    return [entries[index] for index in range(len(entries))]


SHORT_AND_LONG = range(999_999_997, 1_000_000_004)
"""Ids whose names have nine digits, then ten."""

id_ranges = st.one_of(
    st.builds(lambda start, count: range(start, start + count), st.integers(0, 10**6), st.integers(0, 30)),
    st.builds(lambda start, count: range(start, start + count), st.integers(10**9 - 20, 10**9), st.integers(0, 40)),
)


@given(id_ranges)
def test_a_table_gives_back_its_entries(ids: range) -> None:
    expected = [entry(segment_id) for segment_id in ids]
    assert everything(table(*ids)) == everything(appended(*ids)) == expected


@given(id_ranges)
def test_a_table_that_was_appended_to_has_the_same_bytes_and_checksum_as_one_read(ids: range) -> None:
    made, read = appended(*ids), table(*ids)
    assert made.raw() == read.raw()
    assert made.checksum == read.checksum == crc32c(made.raw())
    assert made.byte_count == len(made.raw())


def test_an_index_counts_from_either_end_and_ends_there() -> None:
    entries = table(5, 6, 7)
    assert entries[-1] == entries[2] == entry(7)
    for index in (3, -4):
        with pytest.raises(IndexError):
            entries[index]


def test_an_empty_table_has_no_entry() -> None:
    entries = EntryTable.empty(MANIFEST)
    assert len(entries) == 0
    assert entries.index_of_sequence(0) == -1
    assert entries.index_after_segment(0) == 0
    with pytest.raises(IndexError):
        entries[0]


def test_the_segment_id_is_the_number_in_the_path() -> None:
    assert entry(42).segment_id == 42
    assert entry(1_234_567_890).segment_id == 1_234_567_890


def test_appending_leaves_the_older_table_as_it_was() -> None:
    older = appended(1, 2)
    raw = older.raw()
    newer = older.append(entry(3))
    assert everything(older) == [entry(1), entry(2)]
    assert older.raw() == raw
    assert everything(newer) == [entry(1), entry(2), entry(3)]


def test_appending_twice_to_one_table_makes_two_that_do_not_meet() -> None:
    base = appended(1)
    left, right = base.append(entry(2)), base.append(entry(3))
    assert everything(left) == [entry(1), entry(2)]
    assert everything(right) == [entry(1), entry(3)]


def test_appending_shares_the_bytes_of_the_table_before() -> None:
    older = appended(1, 2)
    newer = older.append(entry(3))
    assert newer.extends(older)
    assert not older.extends(newer)
    assert newer.raw(older.byte_count) == encode_entry(entry(3))


def test_a_table_with_a_past_of_its_own_extends_no_other() -> None:
    base = appended(1)
    left, right = base.append(entry(2)), base.append(entry(3))
    assert not right.extends(left)
    assert not table(1, 2).extends(base)


@given(id_ranges, st.integers(0, 40))
def test_dropping_the_oldest_leaves_the_rest(ids: range, count: int) -> None:
    count = min(count, len(ids))
    rest = table(*ids).without_first(count)
    assert everything(rest) == [entry(segment_id) for segment_id in ids[count:]]
    assert rest.checksum == crc32c(rest.raw())
    assert everything(rest.append(entry(ids.stop))) == [entry(segment_id) for segment_id in [*ids[count:], ids.stop]]


def test_names_of_nine_and_of_ten_digits_are_told_apart() -> None:
    entries = table(*SHORT_AND_LONG)
    assert everything(entries) == [entry(segment_id) for segment_id in SHORT_AND_LONG]
    assert everything(entries.without_first(4)) == [entry(segment_id) for segment_id in SHORT_AND_LONG[4:]]


@given(st.lists(st.integers(0, 99), unique=True, max_size=30).map(sorted), st.integers(-5, 1_100))
def test_a_sequence_is_found_in_the_last_entry_that_starts_at_or_before_it(ids: list[int], sequence: int) -> None:
    expected = [index for index, segment_id in enumerate(ids) if entry(segment_id).start_sequence <= sequence]
    assert table(*ids).index_of_sequence(sequence) == (expected[-1] if expected else -1)


@given(st.lists(st.integers(0, 99), unique=True, max_size=30).map(sorted), st.integers(-1, 100))
def test_the_segment_after_another_is_the_first_with_a_higher_id(ids: list[int], segment_id: int) -> None:
    expected = len(list(itertools.takewhile(lambda other: other <= segment_id, ids)))
    assert table(*ids).index_after_segment(segment_id) == expected


def test_a_lookup_among_100_000_decodes_no_more_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = table(*range(100_000))
    decoded = 0
    decode = EntryTable._decode

    def counted(self: EntryTable, at: int) -> SegmentEntry:
        nonlocal decoded
        decoded += 1
        return decode(self, at)

    monkeypatch.setattr(EntryTable, "_decode", counted)
    assert entries[77_777] == entry(77_777)
    assert entries.index_of_sequence(555_555) == 55_555
    assert entries.index_after_segment(99_998) == 99_999
    assert decoded <= 1 + 2 * 17  # 17 halvings of 100,000


def test_bytes_that_do_not_make_as_many_entries_are_corrupt() -> None:
    raw = bytearray(encode_entry(entry(1)) + encode_entry(entry(2)))
    for count in (0, 1, 3):
        with pytest.raises(ManifestCorrupted):
            everything(EntryTable(raw, count, crc32c(raw), MANIFEST))


def test_an_entry_that_is_cut_short_is_corrupt_at_each_length() -> None:
    whole = encode_entry(entry(1))
    for length in range(len(whole)):
        with pytest.raises(ManifestCorrupted) as caught:
            everything(EntryTable(bytearray(whole[:length]), 1, 0, MANIFEST))
        assert caught.value.path == MANIFEST


def test_the_bytes_of_an_entry_are_those_of_version_2() -> None:
    numbers = "3200000000000000 3b00000000000000 0510000000000000 2300000000000000 0f000000 1f00"
    assert encode_entry(entry(5)) == bytes.fromhex(numbers) + b"segments/2026/03/02/000000005.q"
    assert len(encode_entry(entry(5))) == ENTRY_SIZE + 31


def test_entries_of_version_1_are_read_and_have_neither_cohort_nor_seal() -> None:
    raw = bytearray()
    for segment_id in SHORT_AND_LONG:
        path = entry(segment_id).path.encode()
        raw += struct.pack("<QQQH", *entry(segment_id)[:3], len(path)) + path
    found = EntryTable(raw, len(SHORT_AND_LONG), crc32c(raw), MANIFEST, is_version_1=True)
    assert everything(found) == [entry(segment_id)._replace(ext_id=0, seal_checksum=0) for segment_id in SHORT_AND_LONG]
    assert found.index_after_segment(SHORT_AND_LONG[2]) == 3
