"""One small Spark session for all tests, made when the first of them asks for it, and logs and lakes to read."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import latewood
from latewood.runtime import Store
from tests.spark.quick_java import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS_VARIABLE = "LATEWOOD_TEST_KEYS"
KEYS = "spring:" + bytes(range(7, 39)).hex()
"""What the environment of Spark's processes has, and that of the tests has not."""

SETTINGS = {
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.driver.memory": "1g",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    import latewood.spark  # noqa: PLC0415 - tests that plan without a JVM need none of it

    home = tmp_path_factory.mktemp("spark")
    conf = {**SETTINGS, "spark.sql.warehouse.dir": str(home / "warehouse"), "spark.local.dir": str(home / "local")}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_LAUNCHER_OPTS", OPTIONS)
        environment.setenv(KEYS_VARIABLE, KEYS)
        session = latewood.spark.session("latewood-tests", **conf)
    session.range(1).count()  # The first query of a session pays for what all of them need.
    yield session
    session.stop()


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A log of 1,000 records in some segments: payload `0` to `999`, a millisecond apart, from the year 2001 on."""
    path = tmp_path / "events"
    with latewood.open(path, segment_bytes_max=8192) as log:
        payloads = [b"%d" % number for number in range(1000)]
        times = [1_000_000_000_000_000_000 + number * 1_000_000 for number in range(1000)]
        log.append_many(payloads, ext_ids=range(1000), timestamps_ns=times, durable=True)
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A store: `clicks` with keys, 2 shards, 600 records of which 400 are in chunks; `ticks` without, 1 shard, 50."""
    root = tmp_path / "lake"
    with Store.open(root) as store:
        clicks = store.create_database("clicks", shards=2, segment_bytes_max=4096, chunk_bytes=8192)
        keys = [b"user-%d" % (number % 7) for number in range(400)]
        clicks.append_many([b"%d" % number for number in range(400)], keys, durable=True)
        flush(store, "clicks")
        clicks.append_many([b"%d" % number for number in range(400, 600)], keys[:200], durable=True)
        ticks = store.create_database("ticks", keyed=False)
        ticks.append_many([b"tick"] * 50, durable=True)
    return root


def flush(store: Store, name: str) -> None:
    """Turn all that a database has so far into chunks, and let the log forget it."""
    from latewood.catalog.tables import JobKind  # noqa: PLC0415 - as above

    for shard in store.database(name).shards:
        shard.log.roll()
    for kind in (JobKind.FLUSH, JobKind.CHECKPOINT):
        store.enqueue(kind, name)
        store.run_jobs()
