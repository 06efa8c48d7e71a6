"""Spark reads, batch and streaming, while one appends and others move the records from tier to tier.

Each read must begin at the first record and hold every one, once, up to an end that is no earlier than it was before
the read was planned.  Nothing here asserts a time: it goes on until there were enough reads and every job was done.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

import latewood
import latewood.spark
from latewood.archive.cover import Piece
from latewood.errors import DataLost, UniqueJobAlreadyPending
from latewood.jobs import Backoff, JobOptions
from latewood.jobs.kinds import kind_of
from latewood.runtime import Database, Store
from latewood.spark import pieces, survey
from latewood.spark.offsets import decode_offsets
from latewood.spark.options import parse_options
from latewood.spark.stream import StreamReader
from tests.patience import SECONDS_MAX, wait_until
from tests.runtime.pond import USUAL
from tests.runtime.watcher import payload_of
from tests.spark.test_source import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SHARDS: Final = 2
BATCH: Final = 40
ROUNDS: Final = 2
ROUNDS_CAMPAIGN: Final = 60
ROUNDS_MAX: Final = 200
"""If the jobs are not all done by then, something is stuck."""
STREAM_BATCHES: Final = 3
LOOKS: Final = 200
LOOKS_CAMPAIGN: Final = 5_000
MOVES: Final = ("flush", "checkpoint", "compact", "archive", "evict", "hydrate", "retain")
SMALL: Final = {"segment_bytes_max": 1 << 15, "chunk_bytes": 1 << 18}
_JOBS: Final = JobOptions(poll_ms=20, backoff=Backoff(first_ms=1, max_ms=5))


class Figures(NamedTuple):
    """What a read found in one shard."""

    records: int
    distinct: int
    first: int
    last: int
    sound: int
    """Records that are where they were written."""


def torn(found: Mapping[int, Figures], least: Mapping[int, int]) -> list[str]:
    """Return what is wrong with a read, given how many records there were before it."""
    wrong = []
    for shard, count in least.items():
        one = found.get(shard, Figures(0, 0, 0, -1, 0))
        if one.distinct != one.records:
            wrong.append(f"shard {shard}: {one.records - one.distinct} records came twice")
        if (one.first, one.last + 1) != (0, one.distinct):
            wrong.append(f"shard {shard}: {one.first} to {one.last} are {one.distinct} records")
        if one.sound != one.records:
            wrong.append(f"shard {shard}: {one.records - one.sound} records are in a wrong place")
        if one.last + 1 < count:
            wrong.append(f"shard {shard}: ends at {one.last + 1}, and ended at {count} before")
    return wrong


def figures(found: Iterable[tuple[int, int, bytes]]) -> dict[int, Figures]:
    """Count shards, sequences and payloads."""
    shards: dict[int, list[tuple[int, bool]]] = {}
    for shard, sequence, payload in found:
        shards.setdefault(shard, []).append((sequence, payload == payload_of(shard, sequence)))
    return {
        shard: Figures(
            len(own), len({at for at, _ in own}), min(own)[0], max(own)[0], sum(is_sound for _, is_sound in own)
        )
        for shard, own in shards.items()
    }


def spark_figures(frame: "DataFrame") -> dict[int, Figures]:
    """Have Spark count the same."""
    is_sound = "substring_index(string(payload), ' ', 1) = concat(shard, '/', sequence)"
    frame.createOrReplaceTempView("seam")
    counts = "count(*), count(DISTINCT sequence), min(sequence), max(sequence)"
    query = f"SELECT shard, {counts}, count_if({is_sound}) FROM seam GROUP BY shard"  # noqa: S608 - texts of ours
    return {shard: Figures(*found) for shard, *found in frame.sparkSession.sql(query).collect()}


def ends(db: Database) -> dict[int, int]:
    return {shard.number: shard.end() for shard in db.shards}


def appender(db: Database) -> Callable[[], None]:
    """Appends to one shard after the other, each record saying where it should be."""
    at = ends(db)
    turns = cycle(range(SHARDS))

    def append() -> None:
        shard = next(turns)
        payloads = [payload_of(shard, at[shard] + number) for number in range(BATCH)]
        assert db.append_many(payloads) == {shard: range(at[shard], at[shard] + BATCH)}
        at[shard] += BATCH

    return append


def mover(store: Store, name: str, kind: str) -> Callable[[], None]:
    def enqueue() -> None:
        with suppress(UniqueJobAlreadyPending):
            store.enqueue(kind_of(kind), name, **USUAL.get(kind, {}))

    return enqueue


@contextmanager
def moving(acts: Iterable[tuple[Callable[[], object], float]]) -> Iterator[None]:
    """Do things again and again, each in a thread of its own with its pause, until the block ends."""
    over, errors = threading.Event(), list[BaseException]()

    def repeat(act: Callable[[], object], pause_s: float) -> None:
        try:
            while not over.wait(pause_s):
                act()
        except BaseException as error:  # noqa: BLE001 - the top of a thread: told to the test
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=act) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(SECONDS_MAX)
    if errors:
        raise errors[0]


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Store]:
    """A store whose `clicks` loses what it can at once, and whose `ticks` gives readers the usual grace."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "latewood.toml").write_text('[archive]\nurl = "attic"\n')
    with Store.open(tmp_path / "lake", job_options=_JOBS) as store:
        store.create_database("clicks", SHARDS, grace_ms=0, **SMALL)  # type: ignore[arg-type]
        store.create_database("ticks", SHARDS, **SMALL)  # type: ignore[arg-type]
        for name in ("clicks", "ticks"):
            append = appender(store.database(name))
            for _ in range(20):
                append()
        yield store


def copying(spark: "SparkSession", source: Path, home: Path) -> "StreamingQuery":
    """Have a stream copy payloads from a database into a log, exactly once."""
    return (
        spark.readStream.format("latewood")
        .option("columns", "payload")
        .option("reader", "copier")
        .load(str(source))
        .writeStream.format("latewood")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start(str(home / "copy"))
    )


def done(store: Store, name: str) -> set[str]:
    """The kinds of jobs that were done at least once."""
    db_id = store.database(name).db_id
    jobs = [job for job in store.jobs.jobs() if job.db_id == db_id and type(job.state).__name__ == "Completed"]
    kinds = {int(kind_of(kind)): kind for kind in MOVES}
    return {kinds[job.kind] for job in jobs if job.kind in kinds}


def read_all(spark: "SparkSession", store: Store) -> None:
    """Read everything in every way; nothing may be missing, doubled or misplaced."""
    root = store.layout.root
    ways: list[tuple[str, Callable[[Path], DataFrame]]] = [
        ("clicks", lambda path: spark.read.format("latewood").option("minPartitions", 4).load(str(path))),
        ("ticks", lambda path: latewood.spark.table(spark, str(path))),
    ]
    for name, load in ways:
        least = ends(store.database(name))
        found = spark_figures(load(root / name))
        assert torn(found, least) == [], name


@pytest.mark.slow
def test_every_read_of_spark_is_whole_while_everything_moves(
    spark: "SparkSession", busy: Store, tmp_path: Path, *, campaign: bool
) -> None:
    clicks, ticks = busy.database("clicks"), busy.database("ticks")
    acts: list[tuple[Callable[[], object], float]] = [(appender(clicks), 0.01), (appender(ticks), 0.02)]
    acts += [(mover(busy, "clicks", kind), 0.1) for kind in MOVES]
    acts += [(mover(busy, "ticks", kind), 0.3) for kind in ("flush", "checkpoint", "compact", "archive")]
    acts += [(lambda: [shard.log.roll() for shard in clicks.shards], 0.2), (clicks.flush, 0.05)]
    busy.start_workers(2)
    query = copying(spark, busy.layout.root / "clicks", tmp_path)
    try:
        with moving(acts):
            for number in range(ROUNDS_MAX):
                read_all(spark, busy)
                batches = query.lastProgress["batchId"] if query.lastProgress else 0
                is_enough = number + 1 >= (ROUNDS_CAMPAIGN if campaign else ROUNDS)
                if is_enough and done(busy, "clicks") == set(MOVES) and batches >= STREAM_BATCHES:
                    break
            else:
                raise AssertionError(f"only {done(busy, 'clicks')} and {batches} batches of the stream")
        clicks.flush()
        # Not `processAllAvailable`: it may be answered by a look at the log that began before the flush.
        wait_until(lambda: query.exception() is not None or reached(query) == ends(clicks))
    finally:
        query.stop()
    assert query.exception() is None
    check_copy(tmp_path / "copy", clicks)
    wait_until(lambda: all(job.is_finished for job in busy.jobs.jobs()))
    read_all(spark, busy)


def reached(query: "StreamingQuery") -> dict[int, int]:
    """Return how far the last batch went that is done, sink and all."""
    progress = query.lastProgress
    if not progress:
        return {}
    offset = progress["sources"][0]["endOffset"]
    found = decode_offsets(json.loads(offset) if isinstance(offset, str) else offset)
    return {shard.number: sequence for shard, sequence in found.sequences.items()}


def check_copy(copy: Path, db: Database) -> None:
    """Compare what the stream has copied with what was appended."""
    with latewood.open(copy, mode="r") as log:
        payloads = [record.payload for record in log.scan()]
    places = [tuple(map(int, payload.split(b" ")[0].split(b"/"))) for payload in payloads]
    copied = figures((shard, sequence, payload) for (shard, sequence), payload in zip(places, payloads, strict=True))
    assert torn(copied, ends(db)) == []
    assert len(payloads) == sum(ends(db).values())


@pytest.mark.slow
def test_what_was_flushed_is_in_the_next_look_of_a_stream(tmp_path: Path, *, campaign: bool) -> None:
    """A stream's end comes from the log alone: whoever looks after a flush sees all of it, whatever rolls meanwhile."""
    stream = StreamReader(parse_options({"path": str(tmp_path / "log")}, streaming=True), StructType())
    with latewood.open(tmp_path / "log", segment_bytes_max=4096) as log:
        log.append(b"first", durable=True)
        at = stream.initialOffset()
        with moving([(log.roll, 0.002), (log.flush, 0.001)]):
            for number in range(LOOKS_CAMPAIGN if campaign else LOOKS):
                log.append_many([b"%d" % number] * (1 + number % 70))
                log.flush()
                at = stream.latestOffset(at, ReadAllAvailable())
                assert list(decode_offsets(at).sequences.values()) == [log.next_sequence]


# -- the checks themselves ----------------------------------------------------------------------------------


@pytest.fixture
def still(busy: Store) -> Path:
    """Its `clicks`, while nobody has the store open."""
    busy.close()
    return busy.layout.root / "clicks"


def found_in(path: Path) -> dict[int, Figures]:
    """Plan and read in this process, without a JVM."""
    return figures((row["shard"], row["sequence"], row["payload"]) for row in rows(path))


APPENDED: Final = {0: 10 * BATCH, 1: 10 * BATCH}


@pytest.mark.slow
def test_a_read_that_is_planned_across_a_flush_is_whole(still: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush_between(still, monkeypatch)
    assert torn(found_in(still), APPENDED) == []


@pytest.mark.slow
def test_looking_at_the_catalog_before_the_log_would_be_seen(still: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush_between(still, monkeypatch)
    monkeypatch.setattr(survey.Shard, "see", lambda *_: None)
    with suppress(DataLost):  # At best; it must not pass.
        assert torn(found_in(still), APPENDED)


def test_reading_what_log_and_chunks_both_have_twice_would_be_seen(
    still: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(still.parent) as store:
        store.run_job("flush", "clicks", seal=True)  # And no checkpoint: the logs have it still.
    assert torn(found_in(still), APPENDED) == []

    def uncut(start: int, stop: int, log_first: int, chunks: Any) -> list[Piece[Any]]:
        taken = [Piece(max(start, one.sequence_min), min(stop, one.sequence_max + 1), one) for one in chunks]
        return [*(one for one in taken if one.start < one.stop), Piece(max(start, log_first), stop, None)]

    monkeypatch.setattr(pieces, "cover", uncut)
    assert any("came twice" in one for one in torn(found_in(still), APPENDED))


@pytest.mark.parametrize(
    ("sequences", "problem"),
    [
        ([0, 1, 3], "0 to 3 are 3 records"),
        ([0, 1, 1, 2], "1 records came twice"),
        ([1, 2, 3], "1 to 3 are 3 records"),
        ([0, 1], "ends at 2, and ended at 3 before"),
        ([], "ends at 0, and ended at 3 before"),
    ],
)
def test_gaps_duplicates_and_lost_ends_are_seen(sequences: list[int], problem: str) -> None:
    found = torn(figures((0, at, payload_of(0, at)) for at in sequences), {0: 3})
    assert any(problem in one for one in found)


def test_a_record_in_a_wrong_place_is_seen() -> None:
    found = torn(figures([(0, 0, payload_of(0, 1)), (0, 1, payload_of(0, 0))]), {0: 2})
    assert found == ["shard 0: 2 records are in a wrong place"]


def flush_between(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all records leave the logs after a query has looked at the catalog, and before it looks at the logs."""
    source, flushed = survey._source, list[str]()
    job = (
        "import sys; from latewood.runtime import Store; store = Store.open(sys.argv[1]); "
        "store.run_job('flush', 'clicks', seal=True); store.run_job('checkpoint', 'clicks'); store.close()"
    )

    def after_the_catalog(*arguments: Any) -> Any:
        if not flushed:
            flushed.append("once")
            subprocess.run([sys.executable, "-c", job, str(path.parent)], check=True)
        return source(*arguments)

    monkeypatch.setattr(survey, "_source", after_the_catalog)
