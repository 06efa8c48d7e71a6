"""Cohorts of a chunk's records: those of the segments that they came from, through flushes and compactions."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.archive.chunk import decode_meta, encode_meta
from latewood.archive.chunk_writer import Origin, SegmentStart
from latewood.archive.cohorts import are_cohorts_of, cohorts_within
from latewood.archive.options import ChunkOptions
from latewood.errors import CorruptError
from tests.archive.records import Yard, batches_of
from tests.archive.test_compact import compacted

COHORTS = st.integers(0, 3)


@given(st.lists(st.tuples(st.integers(1, 5), COHORTS), min_size=1), st.data())
def test_each_record_of_a_range_is_of_the_cohort_of_its_segment(
    segments: list[tuple[int, int]], data: st.DataObject
) -> None:
    truth = [cohort for records, cohort in segments for _ in range(records)]
    first = data.draw(st.integers(0, len(truth) - 1))
    last = data.draw(st.integers(first, len(truth) - 1))
    starts, at = [], 0
    for records, cohort in segments:
        starts.append((at, cohort))
        at += records
    found = cohorts_within(starts, first, last)
    stretches = pairwise([*(found or ((first, 0),)), (last + 1, 0)])
    told = [cohort for (start, cohort), (end, _) in stretches for _ in range(start, end)]
    assert told == truth[first : last + 1]
    assert are_cohorts_of(found, first, last)
    assert all(one[1] != other[1] for one, other in pairwise(found))


def test_a_chunk_says_of_which_cohorts_its_records_are() -> None:
    yard = Yard(options=ChunkOptions(row_group_rows=100, chunk_bytes=1))
    segments = [SegmentStart(8, 0, 5), SegmentStart(9, 150, 7), SegmentStart(10, 300, 7)]
    chunks = yard.write(batches_of(0, 400), Origin(segments=segments))
    assert [chunk.meta.cohorts for chunk in chunks] == [((0, 5),), ((100, 5), (150, 7)), ((200, 7),), ((300, 7),)]
    with yard.open(chunks[1]) as reader:
        assert reader.meta.cohorts == ((100, 5), (150, 7))


def test_a_compaction_keeps_the_cohorts_also_of_chunks_that_name_none() -> None:
    yard = Yard()
    chunks = yard.write(batches_of(0, 100)) + yard.write(
        batches_of(100, 300), Origin(segments=[SegmentStart(4, 0, 3), SegmentStart(5, 200, 9)])
    )
    (merged,) = compacted(yard, chunks)
    assert merged.meta.cohorts == ((0, 0), (100, 3), (200, 9))
    assert merged.meta.row_count == 300


@pytest.mark.parametrize("cohorts", [((1, 5),), ((0, 5), (0, 6)), ((0, 5), (100, 6)), ((0, 5), (9, 6), (8, 7))])
def test_cohorts_that_are_not_those_of_the_records_are_damage(cohorts: tuple[tuple[int, int], ...]) -> None:
    yard = Yard()
    (chunk,) = yard.write(batches_of(0, 100))
    texts = encode_meta(msgspec.structs.replace(chunk.meta, cohorts=cohorts))
    with pytest.raises(CorruptError, match="cohorts"):
        decode_meta(texts, chunk.path)
