"""Batch reads: a log, a database, a store, and every option that says what of them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import latewood
from latewood.runtime import Store
from tests.spark.conftest import flush

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def load(spark: "SparkSession", path: Path, **options: Any) -> "DataFrame":
    return spark.read.format("latewood").options(**options).load(str(path))


def sequences(frame: "DataFrame") -> list[int]:
    return sorted(row[0] for row in frame.select("sequence").collect())


def test_a_log_is_a_table_with_nothing_to_register(spark: "SparkSession", events: Path) -> None:
    frame = load(spark, events)
    assert dict(frame.dtypes) == {
        "shard": "int",
        "sequence": "bigint",
        "timestamp": "timestamp",
        "ext_id": "bigint",
        "payload": "binary",
        "length": "int",
    }
    rows = frame.orderBy("sequence").collect()
    assert [bytes(row.payload) for row in rows] == [b"%d" % number for number in range(1000)]
    assert [(row.shard, row.sequence, row.ext_id, row.length) for row in rows[998:]] == [
        (0, 998, 998, 3),
        (0, 999, 999, 3),
    ]
    assert rows[1].timestamp.timestamp() == pytest.approx(1_000_000_000.001)


def test_a_database_has_keys_and_is_read_across_log_and_chunks(spark: "SparkSession", lake: Path) -> None:
    frame = load(spark, lake / "clicks")
    assert "key" in frame.columns
    rows = frame.collect()
    assert sorted(int(row.payload) for row in rows) == list(range(600))
    assert len({(row.shard, row.sequence) for row in rows}) == 600
    assert {bytes(row.key) for row in rows} == {b"user-%d" % number for number in range(7)}


def test_a_store_is_one_table_of_all_databases(spark: "SparkSession", lake: Path) -> None:
    frame = load(spark, lake)
    assert frame.columns[:2] == ["database", "shard"]
    found = {row.database: (row["count"], row.keys) for row in _by_database(frame)}
    assert found == {"clicks": (600, 600), "ticks": (50, 0)}


def _by_database(frame: "DataFrame") -> list[Any]:
    from pyspark.sql import functions as sql  # noqa: PLC0415 - planning tests need no pyspark

    return frame.groupBy("database").agg(sql.count("*").alias("count"), sql.count("key").alias("keys")).collect()


def test_segments_are_split_among_tasks(spark: "SparkSession", events: Path) -> None:
    assert load(spark, events).rdd.getNumPartitions() == 1
    assert load(spark, events, minPartitions=7).rdd.getNumPartitions() >= 7
    assert load(spark, events, targetPartitionBytes="1k").rdd.getNumPartitions() > 20


def test_a_users_own_schema_prunes_columns_too(spark: "SparkSession", events: Path) -> None:
    frame = spark.read.format("latewood").schema("length INT, sequence BIGINT").load(str(events))
    assert frame.orderBy("sequence").first() == (1, 0)


def test_a_bad_option_is_one_clear_error(spark: "SparkSession", events: Path) -> None:
    with pytest.raises(Exception, match=r"UsageError: there is no option 'startingofset', perhaps you meant"):
        load(spark, events, startingOfset=1)


def test_a_path_with_nothing_is_not_found(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no log, database or store at"):
        load(spark, tmp_path / "nothing")


def test_a_wrong_type_in_a_users_schema_is_refused(spark: "SparkSession", events: Path) -> None:
    with pytest.raises(Exception, match="column 'payload' is BINARY, not STRING; cast it after loading"):
        spark.read.format("latewood").schema("payload STRING").load(str(events)).collect()


def test_an_error_of_ours_is_found_in_sparks_as_the_guide_says(spark: "SparkSession", events: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "spark.md").read_text()
    (pattern,) = re.findall(r're\.search\(r"(.*)", str\(error\)', guide)
    damaged = min(path for path in (events / "segments").rglob("*") if path.is_file())

    def found_in(act: Callable[[], object]) -> tuple[str, str]:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever Spark makes of it
            act()
        found = re.search(pattern, str(caught.value), re.MULTILINE)
        assert found is not None, str(caught.value)
        return found[1], found[2]

    def stream() -> None:
        loaded = spark.readStream.format("latewood").option("endingOffsets", "latest").load(str(events))
        writer = loaded.writeStream.format("noop").option("checkpointLocation", str(events.with_name("checkpoint")))
        writer.start().awaitTermination()

    assert found_in(lambda: load(spark, events, viev="shards"))[0] == "UsageError"
    assert found_in(stream)[0] == "UsageError"
    raw = bytearray(damaged.read_bytes())
    raw[len(raw) // 4] ^= 1
    damaged.write_bytes(raw)
    name, message = found_in(load(spark, events).collect)
    assert name == "CorruptError"
    assert damaged.name in message


def test_large_ext_ids_are_the_same_bits(spark: "SparkSession", tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log") as log:
        log.append_many([b"", b"", b""], ext_ids=[(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
    found = load(spark, tmp_path / "log").orderBy("sequence").collect()
    assert [row.ext_id for row in found] == [(1 << 63) - 1, -(1 << 63), -1]


def test_a_planned_query_finds_records_that_were_moved_since(spark: "SparkSession", lake: Path) -> None:
    frame = load(spark, lake / "clicks")
    assert frame.count() == 600
    with Store.open(lake) as store:
        flush(store, "clicks")
    assert sorted(int(row.payload) for row in frame.select("payload").collect()) == list(range(600))


def test_a_store_that_is_open_here_can_be_read(spark: "SparkSession", lake: Path) -> None:
    with Store.open(lake) as store:
        store.database("ticks").append(b"one more")
        assert load(spark, lake / "ticks").count() == 51
