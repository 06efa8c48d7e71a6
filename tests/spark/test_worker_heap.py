"""Spark's Python processes do not search all modules for garbage after each task, and do not wait for it to arrive."""

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from latewood.spark import batch, executor, sink, source
from latewood.spark.archive import ArchiveNames
from latewood.spark.worker_heap import settle
from latewood.tasks.segments import SegmentsTask, look_at_segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRAM = """
import gc, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None)
from latewood.spark.worker_heap import settle
before = gc.get_freeze_count()  # Python 3.12 begins with some.
settle()
print(gc.get_freeze_count() - before)
"""


class HeapSource(DataSource):
    """Tells what the process that reads it is like."""

    @classmethod
    def name(cls) -> str:
        return "heap"

    def schema(self) -> str:
        return "frozen BIGINT, searched BIGINT"

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return HeapReader()


class HeapReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        del partition
        settle()
        yield gc.get_freeze_count(), len(gc.get_objects())


def test_a_program_of_the_users_own_is_left_alone() -> None:
    before = gc.get_freeze_count()
    settle.__wrapped__()
    assert gc.get_freeze_count() == before


def test_only_sparks_own_processes_are_settled() -> None:
    def frozen(main: str) -> int:
        command = [sys.executable, "-c", _PROGRAM, main]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert frozen("pyspark.daemon") > 0
    assert frozen("somebody.else") == 0


def test_a_worker_of_sparks_has_little_left_to_search(spark: "SparkSession") -> None:
    spark.dataSource.register(HeapSource)
    counts = spark.read.format("heap").load().collect()
    assert counts
    # A worker that has served other tests has imported more since it was settled.
    assert all(frozen > max(searched, 10_000) for frozen, searched in counts), counts


def test_a_worker_is_reached_by_a_socket_that_does_not_wait_for_acknowledgements(spark: "SparkSession") -> None:
    def told(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"enabled": [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower()]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(told, "enabled STRING").collect()
    assert row.enabled == "true"


def test_schema_plan_and_task_settle_their_processes(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(source, "settle", lambda: calls.append("schema"))
    monkeypatch.setattr(batch, "settle", lambda: calls.append("plan or task"))
    opened = source.LatewoodSource({"path": str(events)})
    reader = opened.reader(opened.schema())
    assert calls == ["schema"]
    (task,) = reader.partitions()
    assert calls == ["schema", "plan or task"]
    batches: Iterator[Any] = reader.read(task)
    assert sum(found.num_rows for found in batches) == 1000
    assert calls == ["schema", "plan or task", "plan or task"]


def test_writer_task_and_commit_settle_their_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(sink, "settle", lambda: calls.append("sink"))
    schema = StructType().add("payload", "binary")
    writer = source.LatewoodSource({"path": str(tmp_path / "log")}).writer(schema, overwrite=False)
    assert len(calls) == 1
    rows: Any = pa.RecordBatch.from_pydict({"payload": [b"a", b"b"]})
    staged = writer.write(iter([rows]))
    assert len(calls) == 2
    writer.commit([staged])
    assert len(calls) == 3


def test_a_task_of_a_job_settles_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(executor, "settle", lambda: calls.append("task"))
    sent = pickle.dumps((look_at_segments, SegmentsTask((), deep=False)))
    executor.done(sent, lambda: executor.tools_of(ArchiveNames(str(tmp_path))))
    assert calls == ["task"]
