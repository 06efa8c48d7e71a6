"""What Spark is timed at: the same queries on a log and on Parquet files of the same rows, in one session.

The rows are made once for all claims, beside their directories.  Python's share of a query runs in processes of Spark's
own, so CPU time is that of all processes below this one.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.measure import NANOSECONDS, Sample
from bench.store_work import batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# ruff: noqa: PLC0415 - pyspark and its JVM are of use to these workloads only

GROUPS: Final = 1000
READY: Final = "ready-made"
"""The name of `spark_floor.ReadySource`, which pyspark is needed for."""
PAYLOAD_BYTES: Final = 100
WARM_UPS: Final = 2
"""The JVM compiles what has run some times; who comes first would pay for it."""
WARM_UP_BATCHES: Final = 6
SETTINGS: Final = {
    "spark.driver.memory": "3g",
    "spark.log.level": "OFF",  # A stream that is stopped while a batch runs is reported as an error.
    "spark.sql.streaming.metricsEnabled": "false",
}


def session() -> "SparkSession":
    """Return the one session of this process."""
    import latewood.spark

    return latewood.spark.session("latewood-bench", **SETTINGS)


@cache
def log_of(directory: Path, records: int) -> Path:
    """Make a log, without keys; `ext_id` has some thousand values."""
    import latewood

    path = directory / f"log-{records}"
    with latewood.open(path) as log:
        at = 0
        for payloads in batches(records, PAYLOAD_BYTES):
            log.append_many(payloads, ext_ids=[number % GROUPS for number in range(at, at + len(payloads))])
            at += len(payloads)
        log.flush()
    return path


@cache
def parquet_of(directory: Path, records: int) -> Path:
    """Make Parquet files of the rows of that log, as Spark writes them."""
    path = directory / f"parquet-{records}"
    session().read.format("latewood").load(str(log_of(directory, records))).write.parquet(str(path))
    return path


class Watch:
    """Wall time, and the CPU time of this process and all below it, ended ones included once they are reaped."""

    def __init__(self) -> None:
        self._cpu, self._wall = _tree_cpu_ns(), time.perf_counter_ns()

    def sample(self) -> Sample:
        """Return the times so far."""
        wall = time.perf_counter_ns() - self._wall
        return {"wall_ns": wall, "process_ns": max(1, _tree_cpu_ns() - self._cpu)}


class Query:
    """A query, by name, on one of the sources."""

    def __init__(self, directory: Path, records: int, query: str, source: str, columns: str = "") -> None:
        self._shared, self._records = directory.parents[1], records
        self._query, self._source, self._columns = QUERIES[query], source, columns

    def prepare(self) -> None:
        made = {"latewood": log_of, "parquet": parquet_of, READY: log_of}[self._source]
        self._path = str(made(self._shared, self._records))
        for _ in range(WARM_UPS):
            self.round()

    def round(self) -> Sample:
        watch = Watch()
        found = self._query(self._loaded())
        sample = watch.sample()
        assert found == self._records * PAYLOAD_BYTES, f"{found} in {self._path}"
        return sample

    def close(self) -> None:
        pass

    def _loaded(self) -> "DataFrame":
        if self._source == READY:
            return _ready(self._path, self._records, self._columns)
        reader = session().read.format(self._source)
        return (reader.option("columns", self._columns) if self._columns else reader).load(self._path)


def _ready(path: str, records: int, columns: str) -> "DataFrame":
    """Return as many rows that no one has to read, in tasks and batches like those of the log at `path`."""
    from bench.spark_floor import ReadySource

    session().dataSource.register(ReadySource)
    numbers = {"records": records, "groups": GROUPS, "payload_bytes": PAYLOAD_BYTES, **_shape(path, columns)}
    return session().read.format(READY).option("columns", columns).options(**numbers).load()


@cache
def _shape(path: str, columns: str) -> dict[str, int]:
    """Return how many tasks the log's source has for these columns, and how many rows are in its batches."""
    from latewood.queue import open_queue
    from latewood.spark.batch import scan_partitions
    from latewood.spark.options import parse_options
    from latewood.spark.ranges import batch_ranges
    from latewood.spark.survey import surveyed

    options = parse_options({"path": path})
    with surveyed(options) as survey:
        tasks = len(scan_partitions(survey, batch_ranges(survey, options), options))
    with open_queue(path, mode="r") as log:
        return {"tasks": tasks, "rows": next(log.arrow_batches(columns=columns.split(","))).num_rows}


def _sum_payload(frame: "DataFrame") -> int:
    from pyspark.sql import functions as sql

    return int(frame.agg(sql.sum(sql.length("payload"))).collect()[0][0])


def _sum_length(frame: "DataFrame") -> int:
    from pyspark.sql import functions as sql

    return int(frame.agg(sql.sum("length")).collect()[0][0])


def _group_payload(frame: "DataFrame") -> int:
    from pyspark.sql import functions as sql

    return _added(frame.groupBy("ext_id").agg(sql.count("*"), sql.sum(sql.length("payload"))))


def _group_length(frame: "DataFrame") -> int:
    from pyspark.sql import functions as sql

    return _added(frame.groupBy("ext_id").agg(sql.count("*"), sql.sum("length")))


def _added(groups: "DataFrame") -> int:
    rows = groups.collect()
    assert len(rows) == GROUPS, len(rows)
    return sum(int(row[2]) for row in rows)


QUERIES: Final[dict[str, Callable[["DataFrame"], int]]] = {
    "sum payload": _sum_payload,
    "sum length": _sum_length,
    "group payload": _group_payload,
    "group length": _group_length,
}
"""Each returns the length of all payloads together."""


class Count:
    """How many rows there are."""

    def __init__(self, directory: Path, records: int, source: str) -> None:
        self._shared, self._records, self._source = directory.parents[1], records, source

    def prepare(self) -> None:
        self._path = str({"latewood": log_of, "parquet": parquet_of}[self._source](self._shared, self._records))
        for _ in range(WARM_UPS):
            self.round()

    def round(self) -> Sample:
        import latewood.spark

        watch = Watch()
        if self._source == "latewood":
            found = latewood.spark.count(session(), self._path)
        else:
            found = session().read.parquet(self._path).count()
        sample = watch.sample()
        assert found == self._records, f"{found} in {self._path}"
        return sample

    def close(self) -> None:
        pass


class Write:
    """Payload, time and ext_id of the Parquet files, into a fresh log or fresh Parquet files."""

    def __init__(self, directory: Path, records: int, target: str) -> None:
        self._directory, self._records, self._target = directory, records, target
        self._numbers = count()

    def prepare(self) -> None:
        self._rows = session().read.parquet(str(parquet_of(self._directory.parents[1], self._records)))
        self._rows = self._rows.select("payload", "timestamp", "ext_id")
        self.round()

    def round(self) -> Sample:
        path = self._directory / str(next(self._numbers))
        watch = Watch()
        self._rows.write.format(self._target).mode("append").save(str(path))
        sample = watch.sample()
        assert self._stored(str(path)) == self._records
        shutil.rmtree(path)
        return sample

    def close(self) -> None:
        shutil.rmtree(self._directory)

    def _stored(self, path: str) -> int:
        import latewood.spark

        if self._target == "latewood":
            return latewood.spark.count(session(), path)
        return session().read.parquet(path).count()


class Stream:
    """Micro-batches of so many rows to nowhere, one after the other; the figure is the time from one to the next."""

    def __init__(self, directory: Path, rows: int, micro_batches: int, source: str) -> None:
        self._directory, self._rows, self._micro_batches, self._source = directory, rows, micro_batches, source
        self._numbers = count()

    def prepare(self) -> None:
        if self._source == "latewood":
            # More than are read: a stream that comes to the end of the log would wait.
            log_of(self._directory, self._rows * (self._micro_batches + WARM_UP_BATCHES) * 3)
        self.round()

    def round(self) -> Sample:
        query = self._start(str(self._directory / f"checkpoint-{next(self._numbers)}"))
        try:
            _await_batch(query, WARM_UP_BATCHES)
            watch, first = Watch(), _batch(query)
            _await_batch(query, first + self._micro_batches)
            sample, done = watch.sample(), _batch(query) - first
            rows = [progress["numInputRows"] for progress in query.recentProgress]
            assert set(rows) == {self._rows}, rows
        finally:
            query.stop()
        return {name: value / done for name, value in sample.items()}

    def close(self) -> None:
        shutil.rmtree(self._directory)

    def _start(self, checkpoint: str) -> "StreamingQuery":
        stream = session().readStream
        if self._source == "latewood":
            path = log_of(self._directory, self._rows * (self._micro_batches + WARM_UP_BATCHES) * 3)
            loaded = stream.format("latewood").option("maxOffsetsPerTrigger", self._rows).load(str(path))
        elif self._source == "rate":
            loaded = stream.format("rate-micro-batch").option("rowsPerBatch", self._rows).load()
        else:
            from bench.spark_floor import NAME, MadeUpSource

            session().dataSource.register(MadeUpSource)
            loaded = stream.format(NAME).option("rows", self._rows).load()
        return loaded.writeStream.format("noop").option("checkpointLocation", checkpoint).start()


def _await_batch(query: "StreamingQuery", number: int) -> None:
    """Wait until a batch is done."""
    deadline = time.monotonic() + 120
    while _batch(query) < number:
        if (error := query.exception()) is not None:
            raise error
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.005)


def _batch(query: "StreamingQuery") -> int:
    """Return the last batch that is done."""
    progress: Any = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _tree_cpu_ns() -> int:
    """Return the CPU time of this process and of all below it."""
    parents, ticks = {}, {}
    for pid, fields in _processes():
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    own = [pid for pid in parents if os.getpid() in _ancestors(pid, parents)]
    return sum(ticks[pid] for pid in own) * NANOSECONDS // os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield every process with the fields of its `stat` that follow its name."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                text = (path / "stat").read_text()
            except OSError:  # It has ended meanwhile.
                continue
            yield int(path.name), text.rpartition(")")[2].split()


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """Yield a process, its parent, and so on."""
    while pid in parents:
        yield pid
        pid = parents[pid]
