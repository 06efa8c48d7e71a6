"""Checkpoints of streams, and interrupted commits, of version 1: today's code goes on with them."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import latewood
from latewood.fs import PosixFS
from latewood.runtime import Store
from latewood.spark.commits import Batch, Committer
from latewood.spark.commits_files import txn_query
from latewood.spark.writing_target import find_target
from latewood.testing import FakeClock
from tests.golden.make import EXPECTED
from tests.golden.spark import QUERY, TXN, commit, freeze, payloads, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION_1: Final = Path(__file__).parents[1] / "golden" / "v1" / "spark"
BIRTH: Final = json.loads((VERSION_1 / EXPECTED).read_text())
CUT: Final = {"cut": "cut", "copies": "lake/copies"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return shutil.copytree(VERSION_1, tmp_path / "golden")


def rows(batches: dict[int, Any]) -> dict[str, list[list[Any]]]:
    return {str(batch): [list(row) for row in batches[batch]] for batch in batches}


@pytest.mark.slow
def test_a_stream_of_version_1_repeats_its_last_batch_and_goes_on(spark: "SparkSession", home: Path) -> None:
    with latewood.open(home / "log") as log:
        log.append_many([b"record 12", b"record 13"], durable=True)
    with Store.open(home / "lake") as store:
        store.database("clicks").append_many([b"click 20", b"click 21"], [b"user-0", b"user-1"], durable=True)
    for name, path in (("log", home / "log"), ("lake", home / "lake" / "clicks")):
        before = BIRTH[name]["batches"]
        found = read(spark, path, home / f"of-{name}")
        assert rows({2: found.pop(2)}) == {"2": before["2"]}
        assert sorted(found) == [3]
        kind = {"log": "record", "lake": "click"}[name]
        known = [int(text.split()[-1]) for batch in before.values() for _, _, text in batch]
        new = [int(text.split()[-1]) for _, _, text in found[3]]
        assert all(text.startswith(kind) for _, _, text in found[3])
        assert sorted(known + new) == list(range(len(known) + 2))
        assert read(spark, path, home / f"of-{name}") == {}


@pytest.mark.parametrize("name", CUT)
def test_a_commit_that_version_1_was_cut_short_in_is_finished(name: str, home: Path) -> None:
    """Spark repeats the batch; what its tasks stage now goes, for the intent's files are the batch."""
    path = home / CUT[name]
    assert payloads(path) == BIRTH[name]
    commit(path, Batch(QUERY, "stream", 1))
    commit(path, Batch(QUERY, "stream", 1))
    shards = len(BIRTH[name])
    wanted = [
        [text for batch in (0, 1) for task in (0, 1) for text in rows_of(batch, task, shards)[shard]]
        for shard in range(shards)
    ]
    assert payloads(path) == wanted


def test_what_version_1_committed_is_not_committed_again(home: Path) -> None:
    for batch in (Batch(QUERY, "stream", 0), Batch(txn_query(TXN), "txn", 0)):
        commit(home / "copy", batch)
    assert payloads(home / "copy") == BIRTH["copy"]


def test_an_interrupted_commit_of_version_1_is_counted_by_another_query(home: Path) -> None:
    other = Batch("5f0c2c0e-0000-4000-8000-000000000002", "stream", 0)
    commit(home / "cut", other)
    Committer(PosixFS(), find_target(PosixFS(), str(home / "cut")), clock=FakeClock()).commit(
        Batch(QUERY, "stream", 1), []
    )
    one = [text for task in (0, 1) for text in rows_of(1, task, 1)[0]]
    theirs = [text for task in (0, 1) for text in rows_of(0, task, 1)[0]]
    assert payloads(home / "cut") == [theirs + one[:3] + theirs + one[3:]]


def test_checkpoints_that_are_frozen_cannot_be_frozen_again() -> None:
    with pytest.raises(FileExistsError):
        freeze(VERSION_1)
