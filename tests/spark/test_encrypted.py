"""Spark reads encrypted chunks, local and archived, with keys from a file or a variable; none of them is in a task."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import latewood
import latewood.spark
from latewood.archive.keys import KeyRing
from latewood.errors import KeyNotFound, UsageError
from latewood.runtime import Store
from tests.spark.conftest import KEYS, KEYS_VARIABLE
from tests.spark.test_source import rows, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET: Final = KEYS.partition(":")[2]
OTHER: Final = bytes(range(70, 102)).hex()
MARK: Final = b"nobody may read this: "
COUNT: Final = 300


def make_lake(home: Path, encryption: str) -> Path:
    """A store whose `secrets` has all records in encrypted chunks, and twenty more in its log; nothing is archived."""
    root = home / "lake"
    root.mkdir()
    (root / "latewood.toml").write_text(f'[archive]\nurl = "attic"\n[encryption]\n{encryption}\n')
    with Store.open(root, keys=KeyRing.parse(KEYS, "test")) as store:
        secrets = store.create_database("secrets", shards=2, key_id="spring", segment_bytes_max=4096, chunk_bytes=4096)
        append(store, range(COUNT))
        for kind in ("flush", "checkpoint"):
            store.run_job(kind, "secrets", **{"flush": {"seal": True}}.get(kind, {}))
        append(store, range(COUNT, COUNT + 20))
        assert all(shard.log.first_sequence > 0 for shard in secrets.shards)
    return root


def append(store: Store, numbers: range) -> None:
    keys = [b"user-%d" % (number % 7) for number in numbers]
    store.database("secrets").append_many([MARK + b"%d" % number for number in numbers], keys, durable=True)


def archive(root: Path) -> None:
    """Leave nothing but the objects."""
    with Store.open(root, keys=KeyRing.parse(KEYS, "test")) as store:
        store.run_job("archive", "secrets")
        store.run_job("evict", "secrets", now=True)
    assert not list(root.glob("databases/*/chunks/*.parquet*"))
    assert not any(MARK in path.read_bytes() for path in (root / "attic").rglob("*") if path.is_file())


def stay(_: Path) -> None:
    """Leave them where they are."""


def numbers_in(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["payload"].removeprefix(MARK)) for row in found)


@pytest.fixture(params=["file", "variable"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Such a store, whose settings name a key file or a variable."""
    if request.param == "file":
        (tmp_path / "keys.txt").write_text(KEYS)
        return make_lake(tmp_path, f'key_file = "{tmp_path / "keys.txt"}"')
    monkeypatch.setenv(KEYS_VARIABLE, KEYS)
    return make_lake(tmp_path, f'key_environment = "{KEYS_VARIABLE}"')


@pytest.mark.parametrize("move", [stay, archive])
def test_encrypted_chunks_are_read_wherever_they_are(lake: Path, move: Callable[[Path], None]) -> None:
    move(lake)
    assert numbers_in(rows(lake / "secrets")) == list(range(COUNT + 20))


@pytest.mark.parametrize("move", [stay, archive])
def test_a_task_carries_no_secret(lake: Path, move: Callable[[Path], None]) -> None:
    move(lake)
    carried = pickle.dumps(tasks(lake / "secrets"))
    assert bytes.fromhex(SECRET) not in carried
    assert SECRET.encode() not in carried
    assert b"spring" not in carried


def test_a_missing_variable_is_one_clear_error(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    with pytest.raises(UsageError, match=f"the environment variable {KEYS_VARIABLE} is not set"):
        rows(lake / "secrets", keyEnvironment=KEYS_VARIABLE)


def test_what_an_option_names_counts_before_the_settings(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATEWOOD_TEST_OTHER_KEYS", f"autumn:{OTHER}")
    with pytest.raises(KeyNotFound):
        rows(lake / "secrets", keyEnvironment="LATEWOOD_TEST_OTHER_KEYS")


def test_the_wrong_keys_are_one_clear_error_without_a_secret(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.txt").write_text(f"autumn:{OTHER}")
    with pytest.raises(KeyNotFound, match="key 'spring' is not among those given: autumn") as caught:
        rows(lake / "secrets", keyFile=tmp_path / "wrong.txt")
    assert OTHER not in str(caught.value)


@pytest.mark.slow
def test_spark_reads_with_a_key_file(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text(KEYS)
    lake = make_lake(tmp_path, f'key_file = "{tmp_path / "keys.txt"}"')
    path = str(lake / "secrets")
    for move in (stay, archive):
        move(lake)
        frame = latewood.spark.table(spark, path, columns="payload", minPartitions=3)
        assert numbers_in([{"payload": bytes(row.payload)} for row in frame.collect()]) == list(range(COUNT + 20))
    assert latewood.spark.count(spark, path) == COUNT + 20


@pytest.mark.slow
def test_spark_reads_with_a_variable_of_its_executors(spark: "SparkSession", tmp_path: Path) -> None:
    lake = make_lake(tmp_path, f'key_environment = "{KEYS_VARIABLE}"')
    archive(lake)
    assert KEYS_VARIABLE not in os.environ, "only Spark's processes have it"
    path = str(lake / "secrets")
    frame = spark.read.format("latewood").option("columns", "payload").load(path)
    assert numbers_in([{"payload": bytes(row.payload)} for row in frame.collect()]) == list(range(COUNT + 20))
    assert SECRET not in frame._jdf.queryExecution().toString()
    stream = spark.readStream.format("latewood").option("columns", "payload").load(path)
    writer = stream.writeStream.format("latewood").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "copy")).awaitTermination()
    with latewood.open(tmp_path / "copy", mode="r") as log:
        assert numbers_in([{"payload": record.payload} for record in log.scan()]) == list(range(COUNT + 20))
