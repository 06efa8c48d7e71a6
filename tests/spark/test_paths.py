"""A relative path stays what it was when the program goes to another directory; executors get absolute ones."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import latewood
import latewood.spark
from latewood.fs import PosixFS
from latewood.spark.writing_target import find_target
from tests.spark.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def twins(tmp_path: Path) -> list[Path]:
    """Two directories, each with a log `events`, and each record says in which."""
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        with latewood.open(home / "events") as log:
            log.append_many([home.name.encode()] * 3, durable=True)
    return homes


def test_a_stream_goes_on_with_its_log_from_another_directory(
    twins: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(twins[0])
    query = Query(Path("events"))
    query.begin()
    monkeypatch.chdir(twins[1])
    assert query.run() == [(number, b"one") for number in range(3)]
    for home in twins:
        with latewood.open(home / "events") as log:
            log.append(home.name.encode(), durable=True)
    assert query.run() == [(3, b"one")]


def test_tasks_carry_absolute_paths(twins: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(twins[0])
    query = Query(Path("events"))
    query.begin()
    (partition,) = query.reader.partitions(query.reader.initialOffset(), query.reader.reportLatestOffset() or {})
    assert [stretch.source.log for stretch in getattr(partition, "stretches")] == [str(twins[0] / "events")]  # noqa: B009 - mypy knows no stretches
    target = find_target(PosixFS(), "events")
    assert (target.root, target.logs) == (twins[0] / "events", (twins[0] / "events",))


def test_our_functions_take_a_path_from_the_program_and_spark_from_where_it_was_started(
    spark: "SparkSession", twins: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    started_in = Path.cwd()
    monkeypatch.chdir(twins[0])
    frame = latewood.spark.table(spark, "events", columns="payload")
    monkeypatch.chdir(twins[1])
    assert {bytes(row.payload) for row in frame.collect()} == {b"one"}
    assert {bytes(row.payload) for row in latewood.spark.table(spark, "events").select("payload").collect()} == {b"two"}
    assert latewood.spark.count(spark, "events") == 3
    with pytest.raises(Exception, match=f"there is no log, database or store at {started_in}{os.sep}events"):
        spark.read.format("latewood").load("events")
