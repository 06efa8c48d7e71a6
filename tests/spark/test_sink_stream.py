"""A streaming query writes exactly once: whatever dies or fails, and whichever batch is replayed."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import latewood
from latewood.runtime import Store
from tests.spark.sink_source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture(scope="module")
def mortal(spark: "SparkSession") -> "SparkSession":
    register(spark)
    return spark


def feed(scratch: Path, *files: int, rows: int = 100) -> None:
    """Let some files of numbers arrive, each of which becomes a batch."""
    source = scratch / "source"
    source.mkdir(exist_ok=True)
    for number in files:
        lines = "".join(f"{number * rows + row}\n" for row in range(rows))
        hidden = source / f".{number}"
        hidden.write_text(lines)
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))  # They are taken in this order.
        hidden.rename(source / f"{number}.txt")


def start(
    spark: "SparkSession", scratch: Path, sink: str = "latewood", name: str = "log", **options: Any
) -> "StreamingQuery":
    """Start the query: two tasks a batch, a file a batch, until the files are through."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(scratch / "source"))
    frame = lines.selectExpr("value AS payload").repartition(2)
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(scratch / f"checkpoint-{name}"))
    return writer.options(**options).trigger(availableNow=True).start(str(scratch / name))


def run(spark: "SparkSession", scratch: Path, sink: str = "latewood", name: str = "log", **options: Any) -> str:
    query = start(spark, scratch, sink, name, **options)
    query.awaitTermination()
    return str(query.id)


def numbers(path: Path) -> Counter[int]:
    with latewood.open(path, mode="r") as log:
        return Counter(int(record.payload) for record in log.scan())


def is_clean(root: Path) -> bool:
    return not any((root / "spark" / "staging").iterdir()) and not any((root / "spark" / "intents").iterdir())


def test_batches_arrive_once_under_the_names_that_spark_gives_its_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    """The local properties that name query and batch are Spark's own: this tells when they change."""
    feed(tmp_path, 0, 1)
    query = run(spark, tmp_path)
    feed(tmp_path, 2)
    assert run(spark, tmp_path) == query
    assert numbers(tmp_path / "log") == Counter(range(300))
    stored = json.loads((tmp_path / "log" / "spark" / "commits" / f"{query}.json").read_text())
    assert [(batch, rows) for batch, _, rows in stored["body"]["completions"]] == [(0, 100), (1, 100), (2, 100)]
    assert is_clean(tmp_path / "log")


@pytest.mark.parametrize("step", ["locked", "intended", "appended", "flushed", "completed"])
def test_a_batch_whose_commit_fails_is_there_once_after_a_restart(
    mortal: "SparkSession", tmp_path: Path, step: str
) -> None:
    feed(tmp_path, 0, 1)
    with pytest.raises(Exception, match="trap at"):
        run(mortal, tmp_path, "mortal", at=step, how="raise", home=str(tmp_path))
    run(mortal, tmp_path)
    assert numbers(tmp_path / "log") == Counter(range(200))
    assert is_clean(tmp_path / "log")


def test_a_batch_that_spark_has_forgotten_is_replayed_and_skipped(spark: "SparkSession", tmp_path: Path) -> None:
    feed(tmp_path, 0, 1)
    run(spark, tmp_path)
    commits = tmp_path / "checkpoint-log" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)
    feed(tmp_path, 2)
    run(spark, tmp_path)
    assert numbers(tmp_path / "log") == Counter(range(300))


def test_two_queries_write_into_one_database(spark: "SparkSession", tmp_path: Path) -> None:
    feed(tmp_path, 0, 1)
    with Store.open(tmp_path / "lake") as store:
        store.create_database("clicks", shards=2)
    target = tmp_path / "lake" / "clicks"
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(tmp_path / "source"))
    queries = [
        lines.selectExpr("value AS payload", "value AS key")
        .writeStream.format("latewood")
        .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        .trigger(availableNow=True)
        .start(str(target))
        for number in range(2)
    ]
    for query in queries:
        query.awaitTermination()
    with Store.open(tmp_path / "lake", mode="r") as store:
        found = Counter(int(record.payload) for record in store.database("clicks").scan())
    assert found == Counter(dict.fromkeys(range(200), 2))


def test_a_task_that_dies_in_a_stream_is_tried_again_and_writes_once(mortal: "SparkSession", tmp_path: Path) -> None:
    feed(tmp_path, 0)
    run(mortal, tmp_path, "mortal", at="staged: synced", how="kill", home=str(tmp_path))
    assert (tmp_path / "sprung").exists()
    assert numbers(tmp_path / "log") == Counter(range(100))
    assert is_clean(tmp_path / "log")


def test_a_complete_table_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    feed(tmp_path, 0)
    counted = (
        spark.readStream.format("text")
        .load(str(tmp_path / "source"))
        .groupBy("value")
        .count()
        .selectExpr("value AS payload")
    )
    writer = counted.writeStream.format("latewood").outputMode("complete")
    with pytest.raises(Exception, match=r"only ever appended to|[Cc]omplete"):
        writer.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "log")).awaitTermination(60)
