"""A driver on a real cluster: `python sink_cluster.py SCRATCH MASTER` writes 4,000 numbers while things go wrong.

Then it flushes the store SCRATCH/pond, with both executors.

One task is slow, so that Spark runs it a second time on the other worker; another kills its executor.  Attempts are
told apart by files in SCRATCH.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import latewood.spark
from latewood.runtime import spark_jobs
from tests.cli import shell
from tests.patience import wait_until
from tests.spark.jobs_faults import FaultyEngine, executor_pid, noting

CONF = {
    "spark_speculation": "true",
    "spark_speculation_interval": "100ms",
    "spark_speculation_multiplier": "1.1",
    "spark_speculation_quantile": "0.5",
    "spark_speculation_minTaskRuntime": "500ms",
    "spark_executor_memory": "512m",
    "spark_executor_cores": "1",
    "spark_log_level": "ERROR",
}
SLOW, DEADLY = 1, 2
EXECUTORS = 2


def at_work(spark: SparkSession) -> set[int]:
    """Return the executors that take tasks: those that Spark lists may be dead, or not have begun."""

    def work(_: int) -> int:
        time.sleep(0.3)  # Else one of them has done all before the other is asked.
        return executor_pid()

    return set(spark.sparkContext.parallelize(range(2 * EXECUTORS), 2 * EXECUTORS).map(work).collect())


def main(scratch: Path, master: str) -> None:
    def disturb(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        yield from batches
        mark = scratch / f"disturbed-{partition}"
        if partition == SLOW and mark.exists():
            (scratch / "speculated").touch()
        elif partition == SLOW:
            mark.touch()
            time.sleep(120)
        if partition == DEADLY and not mark.exists():
            mark.touch()
            os.kill(executor_pid(), signal.SIGKILL)

    spark = latewood.spark.session("cluster", spark_master=master, **CONF)
    numbers = spark.range(0, 4000, 1, 4).selectExpr("cast(id AS string) AS payload")
    frame = numbers.mapInArrow(disturb, "payload string")
    begun = time.monotonic()
    frame.write.format("latewood").mode("append").save(str(scratch / "log"))
    print(f"written after {time.monotonic() - begun:.1f} s")
    wait_until(lambda: len(at_work(spark)) == EXECUTORS)
    flush(scratch, master)
    spark.stop()


def flush(scratch: Path, master: str) -> None:
    """Flush a store by the command, in this session, and have the tasks note where they are."""
    sound = spark_jobs.engine_of
    (scratch / "hosts").mkdir()
    spark_jobs.engine_of = lambda *a, **k: FaultyEngine(sound(*a, **k), noting, str(scratch / "hosts"))  # type: ignore[assignment]
    print(shell.rows("flush", "--engine", "spark", "--master", master, scratch / "pond"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
