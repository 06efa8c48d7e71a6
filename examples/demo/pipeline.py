"""What Spark does in the demo: a stream that adds up, exactly once, and SQL over what there is."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from examples.demo.events import PageTally, RunTally, Tally
from latewood.errors import NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_EVENT: Final = "run INT, number BIGINT, page STRING, cents BIGINT"
_SUMS: Final = "page STRING, events BIGINT, cents BIGINT"
_STDERR: Final = 2


class Totals(NamedTuple):
    """What the stream has written into the second database."""

    pages: Mapping[str, PageTally]
    records: int
    batches: int
    replayed: int
    """Batches that Spark had to do again, because it forgot that they were done."""


class SparkFailed(Exception):
    """Spark cannot be had, or did not do what it was asked for.  Its text is one sentence."""


@contextmanager
def in_one_line(what: str) -> Iterator[None]:
    """Have whatever Spark raises in the block come as `SparkFailed`."""
    from latewood.spark.engine import SPARK_ERRORS, reason_of  # noqa: PLC0415 - the demo goes on without

    try:
        yield
    except (*SPARK_ERRORS, OSError) as error:  # The latter when its JVM is gone.
        raise SparkFailed(f"{what} ({reason_of(error)})") from error


def start_session(home: Path) -> "SparkSession":
    """Return a session.  What the JVM has to say goes to a file in `home`.

    Raises:
        SparkFailed: it does not start, or is not installed.
    """
    try:
        import latewood.spark  # noqa: PLC0415 - as above
        import latewood.spark.engine  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise SparkFailed(f"{error.name} is not installed: pip install 'latewood[spark]'") from error
    settings = {
        "spark_local_dir": home / "spark",
        "spark_sql_warehouse_dir": home / "warehouse",
        "spark_driver_memory": "1g",
        "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1",  # A short life is not worth the best code.
        "spark_log_level": "ERROR",
    }
    try:
        with in_one_line("`latewood spark doctor` may say why Spark does not start"), _quiet(home / "spark.log"):
            return latewood.spark.session("latewood-demo", **settings)
    except NotFoundError as error:
        raise SparkFailed(str(error)) from error


class Stream:
    """A query that reads `events`, adds them up by page, and appends the sums to `totals`, each batch once."""

    def __init__(self, spark: "SparkSession", lake: Path, home: Path, batch: int) -> None:
        self._spark, self._lake, self._checkpoint, self._batch = spark, lake, home / "checkpoint", batch
        self._along: StreamingQuery | None = None
        self.replayed = 0

    def catch_up(self) -> None:
        """Read all that is there now, and end."""
        self._start(availableNow=True).awaitTermination()

    def begin(self) -> None:
        """Read along from now on."""
        self._along = self._start(processingTime="500 milliseconds")

    def end(self) -> None:
        """Read what is there, and read along no more."""
        if self._along:
            self._along.processAllAvailable()
            self._along.stop()

    def forget(self) -> None:
        """Have Spark believe that its last batch was never done, as if the driver had died a moment too early."""
        last = max(self._commits())
        for name in (str(last), f".{last}.crc"):
            (self._checkpoint / "commits" / name).unlink(missing_ok=True)
        self.replayed += 1

    def totals(self) -> Totals:
        """Return what is in the second database."""
        rows = self._read("totals").selectExpr(f"from_json(string(payload), '{_SUMS}') AS sums").select("sums.*")
        rows.createOrReplaceTempView("totals")
        found = self._spark.sql("SELECT page, sum(events), sum(cents), count(*) FROM totals GROUP BY page").collect()
        pages = {page: PageTally(events, cents) for page, events, cents, _ in found}
        return Totals(pages, sum(row[3] for row in found), len(self._commits()), self.replayed)

    def tally(self, acknowledged: Mapping[int, int]) -> Tally:
        """Count what is in the one table over log, chunks and archive."""
        import latewood.spark  # noqa: PLC0415 - as above

        whole = latewood.spark.table(self._spark, str(self._lake / "events"), columns="payload")
        rows = whole.selectExpr(f"from_json(string(payload), '{_EVENT}') AS event").select("event.*")
        rows.createOrReplaceTempView("events")
        promised = " ".join(f"WHEN {run} THEN {count}" for run, count in acknowledged.items())
        is_promised = f"number < CASE run {promised} ELSE 0 END"
        found = self._spark.sql(
            f"SELECT run, page, count(*), count(DISTINCT number), count_if({is_promised}), "  # noqa: S608 - numbers of ours
            f"sum(IF({is_promised}, cents, 0)), sum(cents) FROM events GROUP BY run, page"
        ).collect()
        runs: dict[int, RunTally] = {}
        pages: dict[str, PageTally] = {}
        for run, page, events, distinct, safe, safe_cents, cents in found:
            before, so_far = runs.get(run, RunTally(0, 0, 0, 0)), pages.get(page, PageTally(0, 0))
            figures = zip(before, (events, distinct, safe, safe_cents), strict=True)
            runs[run] = RunTally(*(old + new for old, new in figures))
            pages[page] = PageTally(so_far.events + events, so_far.cents + cents)
        return Tally(runs, pages)

    def segments(self) -> list[tuple[Any, ...]]:
        """Return what the log itself says, in SQL: database, shard, state, segments, records, bytes."""
        self._read("", view="segments").createOrReplaceTempView("segments")
        query = """SELECT database, shard, state, count(*), sum(record_count), sum(size_bytes)
                   FROM segments GROUP BY database, shard, state ORDER BY database, shard, state DESC"""
        return [tuple(row) for row in self._spark.sql(query).collect()]

    def _read(self, name: str, **options: str) -> "DataFrame":
        return self._spark.read.format("latewood").options(**options).load(str(self._lake / name))

    def _start(self, **trigger: Any) -> "StreamingQuery":
        events = (
            self._spark.readStream.format("latewood")
            .option("reader", "etl")
            .option("maxOffsetsPerTrigger", self._batch)
            .option("columns", "payload")
            .load(str(self._lake / "events"))
        )
        rows = events.selectExpr(f"from_json(string(payload), '{_EVENT}') AS event").select("event.page", "event.cents")
        sums = rows.mapInArrow(_adder(), _SUMS).selectExpr("page AS key", "to_json(struct(*)) AS payload")
        return (
            sums.writeStream.format("latewood")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger)
            .start(str(self._lake / "totals"))
        )

    def _commits(self) -> list[int]:
        return [int(path.name) for path in (self._checkpoint / "commits").glob("[0-9]*")]


def _adder() -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Return what each task does with its rows: add them up by page.  A function in a function travels by value."""

    def add(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow  # noqa: ICN001, PLC0415 - it runs in a worker

        found = list(batches)
        if found:
            sums = pyarrow.Table.from_batches(found).group_by("page").aggregate([([], "count_all"), ("cents", "sum")])
            yield from sums.rename_columns(["page", "events", "cents"]).to_batches()

    return add


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Have what is started in the block write its complaints to a file: the JVM is talkative."""
    kept = os.dup(_STDERR)
    with log.open("wb") as file:
        os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
