"""Real Spark meets a log that was made anew: under a stream's checkpoint, and under a sink."""

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import latewood
from latewood.runtime import Store
from tests.cli.shell import ok

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 10


def fill(path: Path, word: str, count: int) -> list[str]:
    with latewood.open(path) as log:
        log.append_many([f"{word} {number}".encode() for number in range(count)], durable=True)
    return [f"{word} {number}" for number in range(count)]


def fill_database(lake: Path, word: str, count: int) -> list[str]:
    with Store.open(lake) as store:
        clicks = store.create_database("clicks", keyed=False)
        clicks.append_many([f"{word} {number}".encode() for number in range(count)], durable=True)
    return [f"{word} {number}" for number in range(count)]


def read(spark: "SparkSession", path: Path, checkpoint: Path, **options: Any) -> list[str]:
    """Run a stream to its end, and return what it has read."""
    found: list[str] = []

    def take(frame: "DataFrame", batch: int) -> None:
        del batch
        found.extend(bytes(row.payload).decode() for row in frame.collect())

    stream = spark.readStream.format("latewood").options(columns="payload", **options).load(str(path))
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(found)


def error_of(caught: pytest.ExceptionInfo[Exception]) -> str:
    """Return our error, found as the guide says."""
    found = re.search(r"^\s*(?:pyspark\S*: )?latewood\.errors\.AnotherLog: (.*)", str(caught.value), re.MULTILINE)
    assert found is not None, str(caught.value)
    return found[1]


def test_a_stream_of_a_log_that_was_made_anew_says_what_to_do(spark: "SparkSession", tmp_path: Path) -> None:
    log, checkpoint = tmp_path / "log", tmp_path / "checkpoint"
    assert read(spark, log_with(log, "old"), checkpoint) == sorted(fill_names("old"))
    shutil.rmtree(log)
    new = fill(log, "new", COUNT + 3)
    with pytest.raises(Exception, match="AnotherLog") as caught:
        read(spark, log, checkpoint)
    assert "set failOnDataLoss to false" in error_of(caught)
    assert read(spark, log, checkpoint, failOnDataLoss="false") == sorted(new)
    assert read(spark, log, checkpoint) == []


def test_a_stream_of_a_database_that_was_made_anew_says_what_to_do(spark: "SparkSession", tmp_path: Path) -> None:
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    old = fill_database(lake, "old", COUNT)
    assert read(spark, lake / "clicks", checkpoint) == sorted(old)
    with Store.open(lake) as store:
        store.drop("clicks")
    new = fill_database(lake, "new", COUNT + 3)
    with pytest.raises(Exception, match="AnotherLog") as caught:
        read(spark, lake / "clicks", checkpoint)
    assert "shard 0 of 'clicks'" in error_of(caught)
    assert read(spark, lake / "clicks", tmp_path / "another") == sorted(new)


def log_with(path: Path, word: str) -> Path:
    fill(path, word, COUNT)
    return path


def fill_names(word: str) -> list[str]:
    return [f"{word} {number}" for number in range(COUNT)]


# -- the sink -------------------------------------------------------------------------------------------------------


def write(spark: "SparkSession", source: Path, target: Path, checkpoint: Path) -> None:
    """Run a stream from a log into a target, to its end."""
    stream = spark.readStream.format("latewood").option("columns", "payload").load(str(source))
    writer = stream.writeStream.format("latewood").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(target)).awaitTermination()


def forget_completion(checkpoint: Path, batch: int) -> None:
    """Leave a checkpoint as it is when Spark is killed before it notes that a batch is done: it is repeated."""
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint / "commits" / name).unlink()


def payloads(path: Path) -> list[str]:
    with latewood.open(path, mode="r") as log:
        return [record.payload.decode() for record in log.scan()]


def test_a_batch_that_is_repeated_is_in_the_log_that_took_the_place_of_the_first(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source, target, checkpoint = tmp_path / "source", tmp_path / "target", tmp_path / "checkpoint"
    rows = fill(source, "row", COUNT)
    write(spark, source, target, checkpoint)
    assert payloads(target) == rows
    forget_completion(checkpoint, 0)
    shutil.move(target / "spark", tmp_path / "kept")  # What the sink remembers was kept, or came back from a backup.
    shutil.rmtree(target)
    latewood.open(target).close()
    shutil.move(tmp_path / "kept", target / "spark")
    write(spark, source, target, checkpoint)
    assert payloads(target) == rows
    more = fill(source, "more", 3)
    write(spark, source, target, checkpoint)
    assert payloads(target) == rows + more


def test_a_batch_that_a_shard_has_lost_is_refused_until_somebody_has_looked(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source, lake, checkpoint = tmp_path / "source", tmp_path / "lake", tmp_path / "checkpoint"
    rows = fill(source, "row", COUNT)
    kept = fill_database(lake, "kept", COUNT)
    with Store.open(lake) as store:
        store.run_job("flush", "clicks", seal=True)
    write(spark, source, lake / "clicks", checkpoint)
    forget_completion(checkpoint, 0)
    (database,) = (lake / "databases").iterdir()
    shutil.rmtree(database / "shards" / "00000")
    with pytest.raises(Exception, match="LogBehind"):
        write(spark, source, lake / "clicks", checkpoint)
    ok("rebuild", "--accept-loss", "--yes", lake / "clicks")
    with pytest.raises(Exception, match="AnotherLog") as caught:
        write(spark, source, lake / "clicks", checkpoint)
    named = re.search(r"then remove (\S+\.json):", error_of(caught))
    assert named is not None
    Path(named[1]).unlink()
    write(spark, source, lake / "clicks", checkpoint)
    with Store.open(lake, mode="r") as store:
        assert [record.payload.decode() for record in store.database("clicks").scan()] == kept + rows
