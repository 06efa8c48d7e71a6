"""Batch reads: a log, a database, a store, and every option that says what of them."""

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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"0": 990}'}, range(990, 1000)),
        ({"endingOffsets": '{"0": 10}'}, range(10)),
        ({"startingOffsets": '{"0": 500}', "endingOffsets": '{"0": 510}'}, range(500, 510)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"startingTimestamp": "2001-09-09T01:46:40.995Z"}, range(995, 1000)),
        ({"endingTimestamp": "1000000000005"}, range(5)),
        ({"startingOffsets": '{"0": 2000}', "failOnDataLoss": "false"}, range(0)),
        ({"ranges": '[["", 0, 3, 5], ["", 0, 700, 702]]'}, [3, 4, 700, 701]),
        ({"minPartitions": "5", "columns": "sequence"}, range(1000)),
    ],
)
def test_options_say_which_records(
    spark: "SparkSession", events: Path, options: dict[str, str], expected: range | list[int]
) -> None:
    assert sequences(load(spark, events, **options)) == list(expected)


def test_segments_are_split_among_tasks(spark: "SparkSession", events: Path) -> None:
    assert load(spark, events).rdd.getNumPartitions() == 1
    assert load(spark, events, minPartitions=7).rdd.getNumPartitions() >= 7
    assert load(spark, events, targetPartitionBytes="1k").rdd.getNumPartitions() > 20


@pytest.mark.parametrize(
    "columns", [["payload"], ["length", "sequence"], ["shard"], ["timestamp", "ext_id"], ["sequence"]]
)
def test_only_the_columns_that_are_asked_for_are_read(spark: "SparkSession", lake: Path, columns: list[str]) -> None:
    chosen = load(spark, lake / "clicks", columns=",".join(columns))
    whole = load(spark, lake / "clicks")
    assert chosen.columns == columns
    assert sorted(map(tuple, chosen.collect())) == sorted(map(tuple, whole.select(columns).collect()))


def test_a_users_own_schema_prunes_columns_too(spark: "SparkSession", events: Path) -> None:
    frame = spark.read.format("latewood").schema("length INT, sequence BIGINT").load(str(events))
    assert frame.orderBy("sequence").first() == (1, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfset": "1"}, "perhaps you meant startingOffsets; the options are view, columns,"),
        ({"columns": "sequence,value"}, "there is no column 'value'; the columns are shard, sequence, timestamp,"),
        ({"startingOffsets": '{"4": 1}'}, "startingOffsets names shard 4, which is not there"),
        ({"endingOffsets": '{"0": 5000}'}, "endingOffsets of shard 0 is 5000, and its log ends at 1000"),
        ({"asOfGeneration": "1"}, "asOfGeneration is for databases and stores"),
        ({"view": "jobs"}, "view=jobs is for databases and stores"),
    ],
)
def test_a_bad_option_is_one_clear_error(
    spark: "SparkSession", events: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=r"(?s)UsageError: .*") as caught:
        load(spark, events, **options).collect()
    assert message in str(caught.value)


def test_a_path_with_nothing_is_not_found(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no log, database or store at"):
        load(spark, tmp_path / "nothing")


def test_a_wrong_type_in_a_users_schema_is_refused(spark: "SparkSession", events: Path) -> None:
    with pytest.raises(Exception, match="column 'payload' is BINARY, not STRING; cast it after loading"):
        spark.read.format("latewood").schema("payload STRING").load(str(events)).collect()


def test_records_that_retention_took_fail_the_query_unless_told(spark: "SparkSession", events: Path) -> None:
    with latewood.open(events) as log, log.reader("all") as reader:
        for _ in range(500):
            reader.next()
        reader.commit()
        log.cleanup()
        first = log.first_sequence
    assert 0 < first <= 500
    with pytest.raises(Exception, match=rf"(?s)DataLost: records 3 to {first - 1} are gone.*failOnDataLoss"):
        load(spark, events, startingOffsets='{"0": 3}').collect()
    lenient = load(spark, events, startingOffsets='{"0": 3}', failOnDataLoss=False)
    assert sequences(lenient) == list(range(first, 1000))
    assert sequences(load(spark, events)) == list(range(first, 1000))


def test_a_generation_is_a_state_of_the_past(spark: "SparkSession", lake: Path) -> None:
    with Store.open(lake) as store:
        before = store.generation
        flush(store, "clicks")
        assert store.generation > before
    assert load(spark, lake / "clicks", asOfGeneration=before).count() == 400
    assert load(spark, lake / "clicks").count() == 600
    with pytest.raises(Exception, match="generation 99 has not come yet"):
        load(spark, lake / "clicks", asOfGeneration=99).count()


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
