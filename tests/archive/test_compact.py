"""Chunks that follow on one another become one, with the same records and the same checksum."""

from contextlib import ExitStack

import pytest

from latewood.archive.chunk_writer import Chunk, Origin, SegmentStart
from latewood.archive.compact import compact_chunks
from latewood.archive.options import ChunkOptions
from latewood.archive.sums import checksum_of
from latewood.errors import CorruptError, UsageError
from tests.archive.records import KEYS, Yard, batches_of, table_of


def compacted(yard: Yard, chunks: list[Chunk]) -> list[Chunk]:
    with ExitStack() as stack:
        return list(compact_chunks(yard.site, [stack.enter_context(yard.open(chunk)) for chunk in chunks]))


def four(yard: Yard, *, keyed: bool = False) -> list[Chunk]:
    return [yard.one(at, at + 250, keyed=keyed) for at in range(0, 1000, 250)]


@pytest.mark.parametrize("keyed", [False, True])
def test_the_records_are_the_same(*, keyed: bool) -> None:
    yard = Yard()
    chunks = four(yard, keyed=keyed)
    (merged,) = compacted(yard, chunks)
    with yard.open(merged) as reader:
        assert table_of(reader.batches()).equals(table_of(batches_of(0, 1000, keyed=keyed)))
        reader.verify()
    expected = checksum_of(batches_of(0, 1000, keyed=keyed))
    assert expected == (0, 1000, merged.meta.checksum)
    assert merged.meta.parents == tuple(chunk.meta.token for chunk in chunks)
    assert len(yard.names()) == 5


def test_segments_of_all_are_told() -> None:
    yard = Yard()
    origin = Origin(segments=[SegmentStart(4, 0), SegmentStart(5, 300)])
    chunks = yard.write(batches_of(0, 250), origin) + yard.write(batches_of(250, 500), origin)
    (merged,) = compacted(yard, chunks)
    assert (merged.meta.segment_min, merged.meta.segment_max) == (4, 5)


def test_a_compaction_may_encrypt_what_was_plain() -> None:
    plain = Yard()
    chunks = four(plain)
    secret = Yard(plain.fs, keys=KEYS, random_bytes=lambda length: b"\x77" * length)
    (merged,) = compacted(secret, chunks)
    assert merged.name.encrypted
    with secret.open(merged) as reader:
        assert reader.verify().row_count == 1000


def test_a_compaction_splits_as_its_options_say() -> None:
    yard = Yard(options=ChunkOptions(row_group_rows=100, chunk_bytes=1))
    chunks = compacted(yard, four(Yard(yard.fs, random_bytes=lambda length: b"\x55" * length)))
    assert [chunk.meta.row_count for chunk in chunks] == [250] * 4 or len(chunks) > 4


def test_chunks_that_do_not_follow_are_refused() -> None:
    yard = Yard()
    chunks = four(yard)
    for wrong in ([], [chunks[0], chunks[2]], chunks[::-1], [chunks[0], chunks[0]]):
        with pytest.raises(UsageError):
            compacted(yard, wrong)
    other = Yard(yard.fs, shard=4)
    with pytest.raises(UsageError, match="shard"):
        compacted(other, chunks)
    assert len(yard.names()) == 4


def test_a_damaged_chunk_stops_it_and_nothing_is_made() -> None:
    yard = Yard()
    chunks = four(yard)
    file = yard.fs.open(chunks[2].path, write=True)
    file.pwrite(b"\xff\x00\xff", 1500)
    file.close()
    with pytest.raises(CorruptError):
        compacted(yard, chunks)
    assert sorted(yard.names()) == sorted(chunk.path.name for chunk in chunks)
