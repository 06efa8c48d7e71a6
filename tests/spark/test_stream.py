"""Streaming reads: limits, restarts, what is durable, new databases, and the query as a named reader."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import latewood
from latewood.queue.listing import list_readers
from latewood.runtime import Store
from tests.spark.conftest import flush

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow
PATIENCE_S = 120


class Pipeline:
    """A streaming query that is started, runs to its end, and is started again."""

    def __init__(self, spark: "SparkSession", home: Path) -> None:
        self.spark, self.home = spark, home

    def run(self, path: Path, *, columns: str = "sequence", **options: Any) -> "StreamingQuery":
        """Read all there is now into the output."""
        return self.start(path, columns=columns, trigger={"availableNow": True}, **options)

    def start(self, path: Path, *, columns: str, trigger: dict[str, Any], **options: Any) -> "StreamingQuery":
        stream = self.spark.readStream.format("latewood").options(columns=columns, **options).load(str(path))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(self.home / "checkpoint"))
        query = writer.trigger(**trigger).start(str(self.home / "out"))
        if "availableNow" in trigger:
            assert query.awaitTermination(PATIENCE_S)
        return query

    def rows(self) -> list[Any]:
        return self.spark.read.parquet(str(self.home / "out")).collect()

    def sequences(self) -> list[int]:
        return sorted(row.sequence for row in self.rows())


@pytest.fixture
def pipeline(spark: "SparkSession", tmp_path: Path) -> Iterator[Pipeline]:
    yield Pipeline(spark, tmp_path / "pipeline")
    for query in spark.streams.active:
        query.stop()


def inputs(query: "StreamingQuery") -> list[int]:
    """Rows of each batch."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_all_that_is_there_is_read_once_in_batches_and_after_a_restart(pipeline: Pipeline, events: Path) -> None:
    query = pipeline.run(events, maxOffsetsPerTrigger=400)
    assert inputs(query) == [400, 400, 200]
    assert pipeline.sequences() == list(range(1000))
    with latewood.open(events) as log:
        log.append_many([b"more"] * 5, durable=True)
    assert inputs(pipeline.run(events)) == [5]
    assert pipeline.sequences() == list(range(1005))


def test_a_batch_has_about_so_many_bytes(pipeline: Pipeline, events: Path) -> None:
    with latewood.open(events) as log:
        half = log.stats().sealed_bytes // 2
    batches = inputs(pipeline.run(events, maxBytesPerTrigger=half, startingOffsets='{"0": 500}'))
    assert len(batches) >= 1
    assert pipeline.sequences() == list(range(500, 1000))


def test_only_what_is_durable_is_read(pipeline: Pipeline, tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", background=False) as log:
        log.append(b"kept", durable=True)
        log.append(b"not yet")
        pipeline.run(tmp_path / "log")
        assert pipeline.sequences() == [0]
        log.flush()
        pipeline.run(tmp_path / "log")
    assert pipeline.sequences() == [0, 1]


def test_a_running_store_is_read_across_flushes_and_new_databases(pipeline: Pipeline, lake: Path) -> None:
    columns = "database,shard,sequence"
    pipeline.run(lake, columns=columns)
    with Store.open(lake) as store:
        store.database("clicks").append_many([b"new"] * 10, durable=True)
        flush(store, "clicks")
        store.create_database("late", keyed=False).append_many([b"x"] * 3, durable=True)
        pipeline.run(lake, columns=columns)
    rows = [tuple(row) for row in pipeline.rows()]
    assert len(rows) == len(set(rows)) == 600 + 10 + 50 + 3
    assert sum(database == "late" for database, _, _ in rows) == 3


def test_a_query_is_a_named_reader_of_a_log(pipeline: Pipeline, events: Path) -> None:
    pipeline.run(events, reader="etl", maxOffsetsPerTrigger=300)
    with latewood.open(events) as log:
        (reader,) = list_readers(log)
        # Spark tells the source of a batch when the next one is done; of the last of this run it never does.
        assert (reader.name, reader.sequence, reader.lag) == ("etl", 900, 100)
        log.cleanup()
        assert 0 < log.first_sequence <= 900
        log.append_many([b"more"] * 5, durable=True)
    pipeline.run(events, reader="etl")
    assert pipeline.sequences() == list(range(1005))


def test_a_query_is_a_named_reader_of_a_database(pipeline: Pipeline, lake: Path) -> None:
    pipeline.run(lake / "clicks", reader="etl", maxOffsetsPerTrigger=200)
    with Store.open(lake) as store:
        positions = {one.shard: one.sequence for one in store.database("clicks").readers().positions()}
    assert sum(positions.values()) == 400


def test_a_new_query_goes_on_where_its_reader_stands(pipeline: Pipeline, events: Path) -> None:
    with latewood.open(events, mode="r") as log:
        log.reader("etl", start=990).close()
    pipeline.run(events, reader="etl")
    assert pipeline.sequences() == list(range(990, 1000))


def test_records_that_were_lost_stop_the_query_unless_told(pipeline: Pipeline, events: Path) -> None:
    with latewood.open(events, mode="r") as log:
        log.reader("others", start=800).close()
    pipeline.run(events, startingTimestamp="1000000000000", maxOffsetsPerTrigger=1000)
    with latewood.open(events, segment_bytes_max=8192) as log:
        log.append_many([b"more"] * 1000, durable=True)
        log.remove_reader("others")
        log.reader("others", start="latest").close()
        log.cleanup()
        first = log.first_sequence
    assert first > 1000
    with pytest.raises(Exception, match="DataLost"):
        pipeline.run(events)
    pipeline.run(events, failOnDataLoss=False)
    assert pipeline.sequences() == [*range(1000), *range(first, 2000)]


def test_a_stopped_query_lets_go_of_its_reader(pipeline: Pipeline, events: Path) -> None:
    for _ in range(2):
        query = pipeline.start(events, columns="sequence", trigger={"processingTime": "0 seconds"}, reader="etl")
        query.processAllAvailable()
        query.stop()
    assert pipeline.sequences() == list(range(1000))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is no option of a streaming read"),
        ({"startingOffsets": '{"9": 0}'}, "startingOffsets names shard 9"),
    ],
)
def test_a_bad_option_stops_the_query(pipeline: Pipeline, events: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        pipeline.run(events, **options)
