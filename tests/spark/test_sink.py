"""Writing from Spark: what is accepted, where it goes, and that it is there once."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import latewood
from latewood.format.sharding import shard_of
from latewood.runtime import Store
from tests.spark.sink_source import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def mortal(spark: "SparkSession") -> "SparkSession":
    """The session, with the format whose sink can be made to fail."""
    register(spark)
    return spark


def payloads(path: Path) -> list[bytes]:
    with latewood.open(path, mode="r") as log:
        return [record.payload for record in log.scan()]


def numbers(path: Path) -> Counter[int]:
    return Counter(int(payload) for payload in payloads(path))


def numbered(spark: "SparkSession", count: int = 1000, tasks: int = 2) -> "DataFrame":
    return spark.range(0, count, 1, tasks).selectExpr("cast(id AS string) AS payload")


def save(frame: "DataFrame", path: Path, **options: Any) -> None:
    frame.write.format("latewood").mode("append").options(**options).save(str(path))


def staged(root: Path) -> list[Path]:
    return sorted((root / "spark" / "staging").iterdir())


# -- what goes where ------------------------------------------------------------------------------------------------


def test_a_frame_becomes_a_log_that_was_not_there(spark: "SparkSession", tmp_path: Path) -> None:
    save(numbered(spark), tmp_path / "new")
    assert payloads(tmp_path / "new") == [b"%d" % number for number in range(1000)]
    assert staged(tmp_path / "new") == []


def test_every_column_arrives(spark: "SparkSession", tmp_path: Path) -> None:
    when = datetime(2026, 3, 2, 12, 0, 0, 123456, UTC)
    frame = spark.createDataFrame(
        [(bytearray(b"a"), when, 7), (bytearray(b""), None, None)], "payload binary, timestamp timestamp, ext_id bigint"
    )
    save(frame.coalesce(1), tmp_path / "log")
    with latewood.open(tmp_path / "log", mode="r") as log:
        first, second = log.scan()
    assert (first.payload, first.ext_id, first.timestamp_ns) == (b"a", 7, int(when.timestamp()) * 10**9 + 123_456_000)
    assert (second.payload, second.ext_id) == (b"", 0)
    assert second.timestamp_ns > first.timestamp_ns


def test_a_key_picks_the_shard_and_its_records_stay_in_order(spark: "SparkSession", tmp_path: Path) -> None:
    with Store.open(tmp_path / "lake") as store:
        store.create_database("clicks", shards=3)
    frame = spark.range(0, 3000, 1, 2).selectExpr(
        "cast(if(id % 10 = 9, NULL, concat('user-', id % 7)) AS binary) AS key", "cast(id AS string) AS payload"
    )
    save(frame, tmp_path / "lake" / "clicks")
    with Store.open(tmp_path / "lake", mode="r") as store:
        records = list(store.database("clicks").scan())
    assert Counter(int(record.payload) for record in records) == Counter(range(3000))
    assert all(record.shard == shard_of(record.key, 3) for record in records if record.key is not None)
    for key in {record.key for record in records} - {None}:
        of_key = [int(record.payload) for record in records if record.key == key]
        assert of_key == sorted(of_key)


def test_records_without_keys_go_round_the_shards(spark: "SparkSession", tmp_path: Path) -> None:
    with Store.open(tmp_path / "lake") as store:
        store.create_database("ticks", shards=2, keyed=False)
    save(numbered(spark), tmp_path / "lake" / "ticks")
    with Store.open(tmp_path / "lake", mode="r") as store:
        assert Counter(record.shard for record in store.database("ticks").scan()) == {0: 500, 1: 500}


def test_what_one_query_reads_another_can_write(spark: "SparkSession", events: Path, tmp_path: Path) -> None:
    with latewood.open(events) as log:
        log.append(b"its id is more than Spark can count", ext_id=2**64 - 1, timestamp_ns=10**18)
    frame = spark.read.format("latewood").load(str(events))
    save(frame.select("payload", "timestamp", "ext_id").coalesce(1), tmp_path / "copy")
    with latewood.open(events, mode="r") as old, latewood.open(tmp_path / "copy", mode="r") as new:
        assert [record[1:] for record in old.scan()] == [record[1:] for record in new.scan()]


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("id AS value", "there is no column 'payload'|a record has no column 'value'"),
        ("id AS payload", "is bigint: cast it to binary or string"),
        ("'a' AS payload", None),
        ("'a' AS payload, 'k' AS key", "made without keys"),
        ("'a' AS payload, id AS sequence", "drop that column"),
        ("'a' AS payload, 'b' AS Payload", "two columns"),
        ("'a' AS payload, id AS timestamp", "cast it to timestamp"),
        ("cast(NULL AS string) AS payload", "payloads are null"),
        ("'a' AS payload, timestamp'1969-12-31' AS timestamp", "before 1970"),
    ],
)
def test_columns_are_checked_before_anything_is_written(
    spark: "SparkSession", tmp_path: Path, columns: str, problem: str | None
) -> None:
    frame = spark.sql(f"SELECT {columns} FROM range(1)")  # noqa: S608 - columns of ours
    if problem is None:
        save(frame, tmp_path / "log")
        return
    with pytest.raises(Exception, match=problem):
        save(frame, tmp_path / "log")
    assert payloads(tmp_path / "log") == []
    assert not any((tmp_path / "log").glob("spark/staging/*"))


def test_overwriting_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="only ever appended to"):
        numbered(spark).write.format("latewood").mode("overwrite").save(str(tmp_path / "log"))
    assert not (tmp_path / "log").exists()


def test_an_unknown_option_is_told_with_those_that_there_are(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(Exception, match="'txid' is no option of a batch write; the options are txnId, lockTimeout"):
        save(numbered(spark), tmp_path / "log", txId="1")


def test_a_log_that_another_program_has_open_is_waited_for_and_then_told_of(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with latewood.open(tmp_path / "log") as log:
        log.append(b"0", durable=True)
        with pytest.raises(Exception, match=r"waited 0\.05 s"):
            save(numbered(spark), tmp_path / "log", lockTimeout="50ms")
    assert payloads(tmp_path / "log") == [b"0"]
    save(numbered(spark), tmp_path / "log")
    assert len(payloads(tmp_path / "log")) == 1001


def test_a_record_that_no_segment_holds_is_refused_before_any_is_appended(
    spark: "SparkSession", tmp_path: Path
) -> None:
    latewood.open(tmp_path / "log", segment_bytes_max=4096).close()
    frame = spark.sql("SELECT if(id = 1, repeat('x', 10000), 'small') AS payload FROM range(2)")
    with pytest.raises(Exception, match="does not fit a segment"):
        save(frame, tmp_path / "log")
    assert payloads(tmp_path / "log") == []
    assert staged(tmp_path / "log") == []


# -- once -----------------------------------------------------------------------------------------------------------


def test_a_write_is_repeated_unless_it_has_a_txn_id(spark: "SparkSession", tmp_path: Path) -> None:
    for _ in range(2):
        save(numbered(spark, 10), tmp_path / "twice")
        save(numbered(spark, 10), tmp_path / "once", txnId="2026-03-02/orders")
    assert set(numbers(tmp_path / "twice").values()) == {2}
    assert set(numbers(tmp_path / "once").values()) == {1}
    save(numbered(spark, 10), tmp_path / "once", txnId="2026-03-03/orders")
    assert set(numbers(tmp_path / "once").values()) == {2}


def test_a_task_that_fails_half_way_and_is_tried_again_writes_once(spark: "SparkSession", tmp_path: Path) -> None:
    marker = tmp_path / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not marker.exists():
                marker.touch()
                raise RuntimeError("once")

    frame = numbered(spark, 50_000).mapInArrow(fail_once, "payload string")
    save(frame, tmp_path / "log")
    assert marker.exists()
    assert numbers(tmp_path / "log") == Counter(range(50_000))
    assert staged(tmp_path / "log") == []


@pytest.mark.parametrize("step", ["staged: written", "staged: durable"])
def test_a_task_whose_process_is_killed_is_tried_again_and_writes_once(
    mortal: "SparkSession", tmp_path: Path, step: str
) -> None:
    options = {"at": step, "how": "kill", "home": str(tmp_path), "txnId": "1"}
    numbered(mortal).write.format("mortal").mode("append").options(**options).save(str(tmp_path / "log"))
    assert (tmp_path / "sprung").exists()
    assert numbers(tmp_path / "log") == Counter(range(1000))
    assert staged(tmp_path / "log") == []


@pytest.mark.parametrize("step", ["verified", "intended", "appended", "flushed", "completed"])
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_commit_that_is_cut_short_is_made_whole_by_the_same_txn_id(
    mortal: "SparkSession", tmp_path: Path, step: str, how: str
) -> None:
    options = {"at": step, "how": how, "home": str(tmp_path), "txnId": "1"}
    with pytest.raises(Exception, match=r"trap at|exited|crash|EOF|Connection|terminated"):
        numbered(mortal).write.format("mortal").mode("append").options(**options).save(str(tmp_path / "log"))
    assert (tmp_path / "sprung").read_text() == step
    save(numbered(mortal), tmp_path / "log", txnId="1")
    assert numbers(tmp_path / "log") == Counter(range(1000))
    assert staged(tmp_path / "log") == []


def test_a_write_that_fails_in_a_task_appends_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark may kill the other task when its file is whole, and tells nobody: a later write removes it by its age."""
    frame = spark.sql("SELECT if(id < 900, cast(id AS string), raise_error('no')) AS payload FROM range(0, 1000, 1, 2)")
    with pytest.raises(Exception, match="no"):
        save(frame, tmp_path / "log")
    assert payloads(tmp_path / "log") == []
    assert len(staged(tmp_path / "log")) <= 1
    save(numbered(spark), tmp_path / "log", stagingMaxAge="1ms")
    assert staged(tmp_path / "log") == []
    assert numbers(tmp_path / "log") == Counter(range(1000))
