"""A driver is killed, with its JVM, in the middle of a streaming batch, a flush and a compaction: nothing is lost."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import latewood.spark
from tests.spark.quick_java import quick_java
from tests.spark.test_jobs import check, content, make_pond, ranges
from tests.spark.test_sink_stream import feed, is_clean, numbers, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

REPO: Final = Path(__file__).parents[2]
DRIVER: Final = Path(__file__).with_name("killed_driver.py")
STOPS: Final = {"commit chunk": 3, "commit compaction": 2}
"""At which step the jobs stop, and when it comes for which time: before that commit, and after those before it."""
SINK_STEP: Final = "appended"

jobs: Final = latewood.spark.jobs


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a driver has left behind that was killed in the middle of everything."""
    scratch = tmp_path_factory.mktemp("killed")
    feed(scratch, 0, 1)
    for name in ("flush", "compact"):
        (scratch / name).mkdir()
        make_pond(scratch / name / "pond")
    environ = {**os.environ, **quick_java(scratch), "PYTHONPATH": os.pathsep.join([str(REPO / "src"), str(REPO)])}
    command = [sys.executable, str(DRIVER), str(scratch)]
    killed = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=500, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert (scratch / "sprung").read_text() == SINK_STEP
    return scratch


def test_its_streaming_query_goes_on_in_another_one(spark: "SparkSession", scene: Path) -> None:
    run(spark, scene)
    assert numbers(scene / "log") == Counter(range(200))
    assert is_clean(scene / "log")


def test_its_flush_is_done_again(spark: "SparkSession", scene: Path, tmp_path: Path) -> None:
    pond = scene / "flush" / "pond"
    before, untouched = content(pond), make_pond(tmp_path / "pond")
    assert list((pond / "databases").rglob("*.staging")) != []
    assert len(ranges(pond)) == len(ranges(untouched)) + 2, "two chunks were committed"
    assert [payload for *_, payload in before] == [payload for *_, payload in content(untouched)]
    jobs.flush(spark, pond)
    assert content(pond) == before
    check(pond)


def test_its_compaction_is_done_again(spark: "SparkSession", scene: Path) -> None:
    pond = scene / "compact" / "pond"
    before, shards = content(pond), Counter(shard for shard, *_ in ranges(pond))
    assert min(shards.values()) == 1, "one shard was compacted"
    assert max(shards.values()) > 1, "and the other was not"
    assert list((pond / "databases").rglob("*.staging")) != []
    (report,) = jobs.compact(spark, pond, eager=True, target_bytes=1 << 20)
    assert report.done == report.total
    assert len(ranges(pond)) == 2
    assert content(pond) == before
    check(pond)
