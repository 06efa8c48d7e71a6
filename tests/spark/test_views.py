"""What holds the records, as tables; counts that read no record; the one table."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import latewood
from latewood.runtime import Store
from tests.spark.conftest import flush

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def view(spark: "SparkSession", path: Path, name: str, **options: Any) -> "DataFrame":
    return spark.read.format("latewood").options(view=name, **options).load(str(path))


def test_segments_add_up_to_the_log(spark: "SparkSession", events: Path) -> None:
    rows = view(spark, events, "segments").orderBy("segment_id").collect()
    assert sum(row.record_count for row in rows) == 1000
    assert Counter(row.state for row in rows) == {"sealed": len(rows) - 1, "open": 1}
    assert rows[0].first_timestamp.timestamp() == 1_000_000_000


def test_chunks_say_where_they_are(spark: "SparkSession", lake: Path) -> None:
    rows = view(spark, lake, "chunks").collect()
    assert sum(row.row_count for row in rows) == 400
    assert {(row.database, row.state, row.residency) for row in rows} == {("clicks", "live", "local")}


def test_shards_count_without_reading(spark: "SparkSession", lake: Path) -> None:
    rows = view(spark, lake, "shards").collect()
    assert {(row.database, row.shard) for row in rows} == {("clicks", 0), ("clicks", 1), ("ticks", 0)}
    assert sum(row.records for row in rows) == 650
    assert all(row.log_first_sequence == row.first_sequence for row in rows if row.database == "ticks")


def test_jobs_are_a_table(spark: "SparkSession", lake: Path) -> None:
    rows = view(spark, lake / "clicks", "jobs", columns="kind,state,database").collect()
    assert {("flush", "Completed", "clicks"), ("checkpoint", "Completed", "clicks")} <= {tuple(row) for row in rows}


def test_readers_show_their_lag(spark: "SparkSession", events: Path, lake: Path) -> None:
    with latewood.open(events, mode="r") as log:
        log.reader("billing", start=900).close()
    (row,) = view(spark, events, "readers").collect()
    assert (row.reader, row.sequence, row.lag, row.problem) == ("billing", 900, 100, None)
    with Store.open(lake) as store, store.database("ticks").reader("etl") as reader:
        reader.poll(20)
        reader.commit()
    (row,) = view(spark, lake / "ticks", "readers").collect()
    assert (row.database, row.reader, row.lag) == ("ticks", "etl", 30)


def test_counting_reads_no_record(spark: "SparkSession", events: Path, lake: Path) -> None:
    assert latewood.spark.count(spark, str(events)) == 1000
    assert latewood.spark.count(spark, str(events), startingOffsets='{"0": 990}') == 10
    assert latewood.spark.count(spark, str(lake)) == 650


@pytest.mark.parametrize("native", [True, False])
def test_the_one_table_has_every_record_once(spark: "SparkSession", lake: Path, native: bool) -> None:  # noqa: FBT001 - a case
    frame = latewood.spark.table(spark, str(lake), native=native)
    assert frame.columns == spark.read.format("latewood").load(str(lake)).columns
    rows = frame.collect()
    assert Counter(row.database for row in rows) == {"clicks": 600, "ticks": 50}
    assert sorted(int(row.payload) for row in rows if row.database == "clicks") == list(range(600))
    assert len({(row.database, row.shard, row.sequence) for row in rows}) == 650


def test_the_one_table_is_the_same_natively_and_not(spark: "SparkSession", lake: Path) -> None:
    with Store.open(lake) as store:
        store.database("clicks").append(b"last", ext_id=(1 << 64) - 1)
        flush(store, "clicks")
    native, plain = (latewood.spark.table(spark, str(lake / "clicks"), native=how) for how in (True, False))
    assert "parquet" in native._jdf.queryExecution().toString().lower()
    assert dict(native.dtypes) == dict(plain.dtypes)
    assert sorted(map(tuple, native.collect())) == sorted(map(tuple, plain.collect()))


def test_options_hold_for_the_one_table(spark: "SparkSession", lake: Path) -> None:
    frame = latewood.spark.table(
        spark, str(lake / "clicks"), columns="shard,sequence", startingOffsets='{"0": 100, "1": "latest"}'
    )
    assert frame.columns == ["shard", "sequence"]
    assert {row.shard for row in frame.collect()} == {0}
    assert min(row.sequence for row in frame.collect()) == 100


def test_an_evicted_chunk_is_read_from_the_archive(spark: "SparkSession", lake: Path, tmp_path: Path) -> None:
    from latewood.catalog.tables import JobKind  # noqa: PLC0415 - as conftest

    (lake / "latewood.toml").write_text(f'[archive]\nurl = "{tmp_path / "cold"}"\n')
    planned = spark.read.format("latewood").load(str(lake / "clicks"))
    assert planned.count() == 600
    with Store.open(lake) as store:
        store.enqueue(JobKind.ARCHIVE, "clicks")
        store.run_jobs()
        store.enqueue(JobKind.EVICT, "clicks", now=True)
        store.run_jobs()
    assert {row.residency for row in view(spark, lake, "chunks").collect()} == {"remote"}
    assert planned.count() == 600  # Found where it has gone to since.
    fresh = latewood.spark.table(spark, str(lake / "clicks"))
    assert sorted(int(row.payload) for row in fresh.select("payload").collect()) == list(range(600))
