"""A chunk names the log that its records came from, and one of another log is refused."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from latewood.archive.chunk import META_KEY, VERSION_KEY, ChunkMeta, decode_meta, encode_meta
from latewood.archive.chunk_reader import ChunkReader, checked_log
from latewood.archive.chunk_writer import Chunk, Origin
from latewood.archive.compact import compact_chunks
from latewood.archive.source import BytesSource
from latewood.errors import AnotherLog, CorruptError, StorageError
from latewood.format.identity import Mark
from tests.archive.records import Yard, batches_of

OURS: Final = bytes(range(16))
THEIRS: Final = bytes(range(16, 32))
PATH: Final = Path("x.parquet")
GOLDEN: Final = Path(__file__).with_name("golden") / "v1"


def made(yard: Yard, start: int, mark: Mark | None) -> Chunk:
    (chunk,) = yard.write(batches_of(start, start + 100), Origin(mark=mark))
    return chunk


def compacted(site: Yard, yard: Yard, *chunks: Chunk) -> ChunkMeta:
    readers = [yard.open(chunk) for chunk in chunks]
    (merged,) = compact_chunks(site.site, readers)
    for reader in readers:
        reader.close()
    with site.open(merged) as reader:
        return reader.meta


def test_a_chunk_names_its_log_and_the_life_that_the_log_was_in() -> None:
    yard = Yard()
    with yard.open(made(yard, 0, Mark(OURS, 7))) as reader:
        assert (reader.meta.log, reader.meta.life) == (OURS.hex(), "0000000000000007")
        assert reader.meta.mark == Mark(OURS, 7)


def test_a_compaction_names_the_latest_life_of_the_log() -> None:
    yard = Yard()
    chunks = [made(yard, 0, Mark(OURS, 9)), made(yard, 100, Mark(OURS, 3)), made(yard, 200, None)]
    assert compacted(yard, yard, *chunks).mark == Mark(OURS, 3)
    assert compacted(yard, yard, chunks[2]).mark is None


def test_a_fork_that_joins_chunks_of_other_logs_names_none() -> None:
    yard = Yard()
    ours, theirs = made(yard, 0, Mark(OURS, 7)), made(yard, 100, Mark(THEIRS, 7))
    assert compacted(yard, yard, ours, theirs).mark is None
    fork = Yard(yard.fs, database_id=8, random_bytes=lambda length: b"\x77" * length)
    assert compacted(fork, yard, ours).mark is None


def test_a_chunk_of_another_log_is_refused_and_closed() -> None:
    yard = Yard()
    reader = yard.open(made(yard, 0, Mark(OURS, 7)))
    assert checked_log(reader, OURS) is reader
    assert checked_log(reader, None) is reader
    with pytest.raises(
        AnotherLog, match=f"of the log {OURS.hex()}, and shard 3 is the log {THEIRS.hex()}; it was copied"
    ):
        checked_log(reader, THEIRS)
    with pytest.raises(StorageError, match="closed"):
        list(reader.batches())


def test_a_chunk_of_version_1_that_names_no_log_is_of_any() -> None:
    (path,) = GOLDEN.glob("*.parquet")
    with ChunkReader(BytesSource(path.read_bytes(), path)) as reader:
        assert reader.meta.mark is None
        assert checked_log(reader, THEIRS) is reader


@pytest.mark.parametrize("fields", [{"log": "zz"}, {"life": None}, {"log": OURS.hex()[2:]}, {"life": "7"}])
def test_a_log_that_cannot_be_is_damage(fields: dict[str, str | None]) -> None:
    yard = Yard()
    meta = made(yard, 0, Mark(OURS, 7)).meta
    texts = {VERSION_KEY: b"1", META_KEY: msgspec.json.encode(msgspec.structs.replace(meta, **fields))}
    assert decode_meta(encode_meta(meta), PATH) == meta
    with pytest.raises(CorruptError, match="not the identity of a log"):
        decode_meta(texts, PATH)
