"""What a task does when its records are no longer where they were: it finds them, or says so."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import latewood
from latewood.archive.names import parse_file_name
from latewood.errors import UnavailableError
from latewood.runtime import Store
from latewood.spark.columns import Shaper
from latewood.spark.options import parse_options
from latewood.spark.pieces import ShardReader, ShardSource
from latewood.spark.plan import Chunk, within
from latewood.spark.survey import surveyed
from tests.spark.conftest import flush


def planned(path: Path, number: int = 0) -> tuple[ShardSource, int, list[Chunk]]:
    """What a task on a shard carries: where it is, its end, its chunks."""
    with surveyed(parse_options({"path": str(path)})) as survey:
        shard = survey.shards[number]
        return shard.source, shard.log.next_sequence, within(shard.chunks, 0, shard.log.next_sequence)


def read(source: ShardSource, stop: int, chunks: list[Chunk], *, start: int = 0, fails: bool = True) -> list[int]:
    with ShardReader(source, fail_on_data_loss=fails) as reader:
        batches = list(reader.batches(start, stop, chunks, ["sequence"]))
    return [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]


def test_log_and_chunks_are_read_as_one(lake: Path) -> None:
    source, end, chunks = planned(lake / "clicks")
    assert chunks
    assert read(source, end, chunks) == list(range(end))


@pytest.mark.parametrize("name", ["clicks", "ticks"])
def test_lengths_need_no_payload_in_the_log(lake: Path, name: str) -> None:
    source, end, chunks = planned(lake / name)
    with ShardReader(source) as reader:
        batches = list(reader.batches(0, end, chunks, ["length"]))
        whole = list(reader.batches(0, end, chunks, ["payload"]))
    assert batches[-1].schema.names == ["length"]
    assert {tuple(batch.schema.names) for batch in batches} <= {("length",), ("payload",)}
    shaped = [Shaper(pa.schema([("length", pa.int32())]), name, 0).shaped(batch) for batch in batches]
    found = [length for batch in shaped for length in batch.column("length").to_pylist()]
    assert found == [len(payload) for batch in whole for payload in batch.column("payload").to_pylist()]


def test_records_that_left_the_log_since_are_found_in_chunks(lake: Path) -> None:
    source, end, chunks = planned(lake / "clicks")
    with Store.open(lake) as store:
        flush(store, "clicks")
    assert read(source, end, chunks) == list(range(end))


def test_a_log_that_loses_segments_under_a_reader_goes_on_in_chunks(lake: Path) -> None:
    source, end, chunks = planned(lake / "clicks")
    with ShardReader(source) as reader:
        batches = reader.batches(0, end, chunks, ["sequence"])
        found = next(batches).column("sequence").to_pylist()
        with Store.open(lake) as store:
            flush(store, "clicks")
        for batch in batches:
            found += batch.column("sequence").to_pylist()
    assert found == list(range(end))


def test_a_chunk_that_was_renamed_by_a_compaction_is_found_by_its_range(lake: Path) -> None:
    source, end, chunks = planned(lake / "clicks")
    file = Path(str(chunks[0].file))
    name = parse_file_name(file.name)
    assert name is not None
    file.rename(file.with_name(name._replace(token="f" * 32).file_name))
    assert read(source, end, chunks) == list(range(end))


def test_what_is_nowhere_fails_so_that_the_query_is_run_again(lake: Path) -> None:
    source, end, chunks = planned(lake / "clicks")
    shutil.rmtree(Path(str(chunks[0].file)).parent)
    with pytest.raises(UnavailableError, match=r"of shard 0 of 'clicks' were moved or removed since .*: run it again"):
        read(source, end, chunks)
    first = chunks[-1].sequence_max + 1
    assert read(source, end, chunks, fails=False) == list(range(first, end))


def test_a_log_that_went_back_is_told(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log") as log:
        log.append_many([b"x"] * 5)
    source, _, _ = planned(tmp_path / "log")
    with pytest.raises(UnavailableError, match=r"records 5 to 8 .* shorter than it was"):
        read(source, 9, [])


def test_another_databases_objects_of_the_same_name_are_passed_over(lake: Path, tmp_path: Path) -> None:
    from latewood.catalog.tables import JobKind  # noqa: PLC0415 - as conftest

    (lake / "latewood.toml").write_text(f'[archive]\nurl = "{tmp_path / "cold"}"\n')
    with Store.open(lake) as store:
        store.enqueue(JobKind.ARCHIVE, "clicks")
        store.run_jobs()
    source, _, _ = planned(lake / "clicks")
    with ShardReader(source._replace(chunk_dirs=())) as reader:
        assert reader.look(0, 10)
    with ShardReader(source._replace(chunk_dirs=(), database_ids=(99,))) as reader:
        assert not reader.look(0, 10)


def test_no_secret_travels_with_a_task(lake: Path) -> None:
    text = '[archive]\nurl = "s3://bucket/cold"\n[archive.settings]\nsecret_access_key = "hush"\n'
    (lake / "latewood.toml").write_text(text)
    source, _, chunks = planned(lake / "clicks")
    assert source.archive is not None
    assert source.archive.url == "s3://bucket/cold"
    assert "hush" not in repr((source, chunks))
