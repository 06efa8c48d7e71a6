"""Where the records of a shard are read from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.archive.cover import as_of, cover, floor
from latewood.catalog.tables import ChunkRecord, CompressionCodec
from latewood.errors import DataLost


def chunk(low: int, high: int, generation: int = 1, **more: object) -> ChunkRecord:
    return ChunkRecord(
        file_name=f"{low}-{high}",
        generation=generation,
        size_bytes=1,
        compression=CompressionCodec.ZSTD,
        shard=0,
        sequence_min=low,
        sequence_max=high,
        row_count=high - low + 1,
        **more,  # type: ignore[arg-type]
    )


CHUNKS = [chunk(10, 19), chunk(20, 29, 2), chunk(30, 39, 3)]


def spans(start: int, stop: int, log_first: int) -> list[tuple[int, int, str | None]]:
    return [
        (low, high, found.file_name if found else None) for low, high, found in cover(start, stop, log_first, CHUNKS)
    ]


def test_the_log_is_read_where_it_can_be() -> None:
    assert spans(25, 50, 20) == [(25, 50, None)]


def test_what_has_left_the_log_comes_from_chunks() -> None:
    assert spans(15, 45, 40) == [(15, 20, "10-19"), (20, 30, "20-29"), (30, 40, "30-39"), (40, 45, None)]


def test_a_chunk_is_left_where_the_log_begins() -> None:
    assert spans(10, 30, 25) == [(10, 20, "10-19"), (20, 25, "20-29"), (25, 30, None)]


def test_nothing_is_covered_by_nothing() -> None:
    assert spans(30, 30, 40) == []


def test_what_retention_removed_is_lost() -> None:
    with pytest.raises(DataLost) as lost:
        spans(3, 30, 40)
    assert (lost.value.start, lost.value.stop) == (3, 10)


def test_a_chunk_that_is_missing_is_told() -> None:
    with pytest.raises(DataLost) as lost:
        cover(10, 40, 40, [CHUNKS[0], CHUNKS[2]])
    assert (lost.value.start, lost.value.stop) == (20, 30)
    with pytest.raises(DataLost) as lost:
        cover(10, 60, 50, CHUNKS)
    assert (lost.value.start, lost.value.stop) == (40, 50)


@given(start=st.integers(10, 60), length=st.integers(0, 60), log_first=st.integers(0, 40))
def test_every_sequence_is_covered_once_and_in_order(start: int, length: int, log_first: int) -> None:
    pieces = cover(start, start + length, log_first, CHUNKS)
    assert [number for low, high, _ in pieces for number in range(low, high)] == list(range(start, start + length))
    for low, high, found in pieces:
        assert low < high
        assert found is None or found.sequence_min <= low < high <= found.sequence_max + 1


def test_the_floor_is_the_first_that_can_be_read() -> None:
    assert floor(5, []) == 5
    assert floor(40, CHUNKS) == 10
    assert floor(0, CHUNKS) == 0


def test_a_generation_tells_how_far_a_shard_had_come() -> None:
    assert [as_of(generation, CHUNKS, 10) for generation in range(5)] == [10, 20, 30, 40, 40]


def test_a_compaction_remembers_the_generations_of_what_it_was_made_from() -> None:
    compacted = [chunk(10, 39, 7, columns={"marks": [[1, 19], [2, 29], [3, 39]]})]
    assert [as_of(generation, compacted, 10) for generation in range(5)] == [10, 20, 30, 40, 40]
