"""Jobs on a real Spark session: they end as local ones do, whatever happens to tasks, executors and drivers."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

import latewood
import latewood.spark
from latewood.archive.names import parse_file_name
from latewood.catalog.tables import Cancelled, Completed
from latewood.errors import JobCancelled, JobFailed, NotFoundError, UsageError
from latewood.fs import PosixFS
from latewood.jobs.handlers.chunks import Row, gaps, has_file, live_rows
from latewood.jobs.handlers.report import load_report
from latewood.log.layout import Layout
from latewood.log.rebuild import rebuild
from latewood.runtime import Store
from latewood.runtime.remake import remake_catalog
from tests.cli import shell
from tests.spark import jobs_faults
from tests.spark.jobs_faults import FaultyEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

jobs: Final = latewood.spark.jobs

T = TypeVar("T")
NAME: Final = "clicks"
COUNT: Final = 1200
KEYS: Final = "first:" + "11" * 32


@pytest.fixture
def pond(tmp_path: Path) -> Path:
    return make_pond(tmp_path / "pond")


def make_pond(root: Path) -> Path:
    """A store with an archive and keys: two shards, encrypted, half in small chunks of which some are only archived."""
    root.mkdir()
    root.with_name("keys").write_text(KEYS)
    (root / "latewood.toml").write_text('[archive]\nurl = "attic"\n[encryption]\nkey_file = "../keys"\n')
    with Store.open(root) as store:
        clicks = store.create_database(NAME, shards=2, segment_bytes_max=4096, chunk_bytes=2048, key_id="first")
        for start in range(0, COUNT // 2, 200):
            fill(clicks, start, start + 200)
            store.run_job("flush", NAME, seal=True)
            if start == 0:
                store.run_job("archive", NAME)
                store.run_job("evict", NAME, now=True)
        fill(clicks, COUNT // 2, COUNT)
    return root


def fill(database: Any, start: int, stop: int) -> None:
    numbers = range(start, stop)
    database.append_many([b"%d " % n * 9 for n in numbers], [b"user-%d" % (n % 7) for n in numbers], durable=True)


def both(
    root: Path, on_spark: Callable[[Path], Any], here: Callable[[Store], Any], look: Callable[[Path], T]
) -> list[T]:
    """Return what is seen of a store after a job on Spark, and after the same job here, on a copy in the same place."""
    kept, moved = root.with_name("kept"), root.with_name("moved")
    shutil.copytree(root, kept)
    on_spark(root)
    seen = look(root)
    root.rename(moved)
    kept.rename(root)
    with Store.open(root) as store:
        here(store)
    found = [seen, look(root)]
    shutil.rmtree(root)
    moved.rename(root)
    return found


def content(root: Path) -> list[tuple[Any, ...]]:
    """All records of a store, in the order of shards and sequences."""
    with Store.open(root, mode="r") as store:
        return [
            (record.shard, record.sequence, record.timestamp_ns, record.key, record.payload)
            for record in store.database(NAME).scan()
        ]


def rows(root: Path) -> list[Row]:
    with Store.open(root, mode="r") as store:
        return [Row(key.chunk_id, record) for key, record in store.catalog.scan_chunks(store.database(NAME).db_id)]


def ranges(root: Path) -> list[tuple[int, int, int]]:
    return [(row.record.shard, *row.record.wal_range) for row in live_rows(rows(root))]


def check(root: Path) -> None:
    """Nothing is missing, nothing is there twice, and nothing is there that no row names."""
    files = {path.name for path in chunk_dir(root).iterdir()}
    found = rows(root)
    assert files == {row.record.file_name for row in found if has_file(row.record)}
    for shard in (0, 1):
        live = live_rows(found, shard)
        assert gaps(live, live[-1].record.sequence_max + 1) == []
    with Store.open(root, mode="r") as store:
        assert {type(job.state) for job in store.jobs.jobs()} <= {Completed, Cancelled}
    assert sorted(payload for *_, payload in content(root)) == sorted(b"%d " % n * 9 for n in range(COUNT))


@contextmanager
def faulty(monkeypatch: pytest.MonkeyPatch, fault: Any, *arguments: Any) -> Iterator[None]:
    """Have the tasks of jobs meet a fault."""
    sound = jobs.engine_of
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "engine_of", lambda *a, **k: FaultyEngine(sound(*a, **k), fault, *arguments))
        yield


# -- as a local one -----------------------------------------------------------------------------------------------


def test_a_flush_ends_as_a_local_one(spark: "SparkSession", pond: Path) -> None:
    before, reports = content(pond), list[Any]()

    def here(store: Store) -> None:
        store.run_job("flush", NAME, seal=True)
        store.run_job("checkpoint", NAME)

    found, local = both(pond, lambda root: reports.extend(jobs.flush(spark, root / NAME)), here, content)
    assert found == local == before
    assert [(one.kind, one.database, one.done, one.total) for one in reports] == [
        ("flush", NAME, COUNT // 2, COUNT // 2),
        ("checkpoint", NAME, 2, 2),
    ]
    assert len(ranges(pond)) > len({shard for shard, *_ in ranges(pond)}) + 4, "many tasks made chunks"
    assert all(row.record.encrypted and row.record.key_id == "first" for row in rows(pond))
    with Store.open(pond, mode="r") as store:
        assert [shard.log_first_sequence for shard in store.database(NAME).stats()] == [
            shard.next_sequence for shard in store.database(NAME).stats()
        ], "the checkpoint let the logs go"
    check(pond)


def test_a_compaction_ends_as_a_local_one(spark: "SparkSession", pond: Path) -> None:
    before, reports = content(pond), list[Any]()
    how: dict[str, Any] = {"eager": True, "target_bytes": 1 << 20}

    def look(root: Path) -> Any:
        return content(root), [(row.record.wal_range, len(row.record.marks)) for row in live_rows(rows(root))]

    found, local = both(
        pond,
        lambda root: reports.extend(jobs.compact(spark, root, **how)),
        lambda store: store.run_job("compact", NAME, **how),
        look,
    )
    assert found == local
    assert found[0] == before
    assert len(found[1]) == 2
    assert reports[0].done == reports[0].total
    check(pond)


def test_a_scrub_finds_what_a_local_one_finds_and_has_it_mended(spark: "SparkSession", pond: Path) -> None:
    (sound,) = jobs.verify(spark, pond)
    assert sound["is_sound"]
    spoil(next(iter(sorted(chunk_dir(pond).iterdir()))))
    spoil(next(iter(sorted((pond / "attic").rglob("*.enc")))))
    found, local = both(
        pond, lambda root: jobs.verify(spark, root), lambda store: store.run_job("verify", NAME), scrubbed
    )
    assert found == local
    assert len(found[1]) == 2
    (again,) = jobs.verify(spark, pond)
    assert again["is_sound"], "what was damaged was mended from the log"


def test_retention_ends_as_a_local_one(spark: "SparkSession", pond: Path) -> None:
    before, reports = content(pond), list[Any]()
    with Store.open(pond) as store:
        store.run_job("compact", NAME, eager=True, target_bytes=1 << 20, grace_ms=0)
        store.run_job("archive", NAME)
    found, local = both(
        pond,
        lambda root: reports.extend(jobs.retain(spark, root)),
        lambda store: store.run_job("retain", NAME),
        lambda root: (rows(root), objects(root), sorted(path.name for path in chunk_dir(root).iterdir())),
    )
    assert found == local
    assert reports[0].done > 4
    assert (len(found[0]), len(found[1]), len(found[2])) == (2, 2, 2)
    assert content(pond) == before
    check(pond)


def test_a_manifest_is_made_again_as_a_local_one(spark: "SparkSession", events: Path) -> None:
    (events / "manifest.current").unlink()
    local = rebuild(PosixFS(), Layout(events), dry_run=True)
    assert local.segments_found > 3
    found = jobs.rebuild_manifest(spark, events)
    assert found == local._replace(written=True)
    (report,) = jobs.verify(spark, events)
    assert report["is_sound"]
    assert report["records_checked"] == 1000
    with latewood.open(events, mode="r") as log:
        assert [record.payload for record in log.scan()] == [b"%d" % number for number in range(1000)]


def test_a_catalog_is_made_again_as_a_local_one(spark: "SparkSession", pond: Path) -> None:
    before = content(pond)
    spoil(next(iter(sorted(chunk_dir(pond).iterdir()))))
    local = remake_catalog(pond)
    wanted = rows(pond)
    (pond / "catalog.mdb").unlink()
    found = jobs.rebuild_catalog(spark, pond)
    assert found.databases == local.databases
    assert not found.is_whole
    assert len(found.databases[0].problems) == 1
    assert rows(pond) == wanted
    jobs.verify(spark, pond)
    assert content(pond) == before, "what was damaged was mended from the log"


def test_the_commands_have_an_engine(spark: "SparkSession", pond: Path, events: Path) -> None:
    assert spark is latewood.spark.session(), "the commands use the session that is there"
    before, engine = content(pond), ("--engine", "spark")
    found = shell.rows("flush", *engine, pond / NAME)
    assert [(job["kind"], job["state"], job["done"]) for job in found] == [
        ("flush", "completed", COUNT // 2),
        ("checkpoint", "completed", 2),
    ]
    assert [job["state"] for job in shell.rows("compact", *engine, pond, NAME)] == ["completed"]
    assert [job["state"] for job in shell.rows("retain", *engine, "--yes", pond)] == ["completed"]
    assert shell.row("verify", *engine, pond)["is_sound"]
    assert shell.row("rebuild", *engine, "--catalog", "--yes", pond)["name"] == NAME
    assert content(pond) == before
    assert shell.row("rebuild", *engine, "--yes", events)["written"]
    assert shell.row("verify", *engine, "--deep", events)["records_checked"] == 1000


def test_a_master_is_for_spark(pond: Path) -> None:
    for command in (["flush"], ["compact"], ["retain", "--yes"], ["verify"], ["rebuild", "--yes", "--catalog"]):
        result = shell.run(*command, "--master", "local[2]", pond)
        assert result.exit_code == 2
        assert "--engine spark" in result.stderr


def test_a_whole_store_and_a_path_of_a_database_are_understood(spark: "SparkSession", lake: Path) -> None:
    assert [one.database for one in jobs.flush(spark, lake, keep_log=True)] == ["clicks", "ticks"]
    assert [one.database for one in jobs.compact(spark, f"file:{lake}/ticks")] == ["ticks"]
    with pytest.raises(NotFoundError, match="no database 'nobody'"):
        jobs.flush(spark, lake / "nobody")


def test_jobs_are_of_stores(spark: "SparkSession", events: Path) -> None:
    with pytest.raises(NotFoundError, match="no store"):
        jobs.flush(spark, events)


def test_lanes_have_bounds(spark: "SparkSession", pond: Path) -> None:
    with pytest.raises(UsageError, match="lanes"):
        jobs.compact(spark, pond, lanes=1)


# -- whatever happens ---------------------------------------------------------------------------------------------


FAULTS: Final[dict[str, Callable[..., Any]]] = {
    "a task is done twice": jobs_faults.done_twice,
    "an executor dies": jobs_faults.dying_once,
    "a task fails and is tried again": jobs_faults.unavailable_once,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_twice_or_left_when(
    spark: "SparkSession", pond: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    before, run = content(pond), FAULTS[fault]
    arguments = [] if run is jobs_faults.done_twice else [str(pond.with_name("mark"))]
    with faulty(monkeypatch, run, *arguments):
        jobs.flush(spark, pond)
        Path(*arguments).unlink(missing_ok=True) if arguments else None
        jobs.compact(spark, pond, eager=True, target_bytes=1 << 20)
    assert not arguments or Path(*arguments).exists(), "the fault did happen"
    assert content(pond) == before
    assert len(ranges(pond)) == 2
    check(pond)


@pytest.mark.slow
def test_a_task_that_fails_each_time_fails_the_job_and_leaves_nothing(
    spark: "SparkSession", pond: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files = content(pond), sorted((pond / "databases").rglob("*.parquet*"))
    with faulty(monkeypatch, jobs_faults.never), pytest.raises(JobFailed, match="it never answers"):
        jobs.flush(spark, pond)
    assert sorted((pond / "databases").rglob("*.parquet*")) == files
    assert list((pond / "databases").rglob("*.staging")) == []
    assert content(pond) == before
    with Store.open(pond) as store:
        (job,) = [job for job in store.jobs.jobs() if job.last_error]
        assert (job.attempts, job.last_error and job.last_error.kind) == (1, "UnavailableError")
        store.jobs.retry(job.job_id) if job.is_finished else store.jobs.cancel(job.job_id)
    jobs.flush(spark, pond)
    assert content(pond) == before


def test_a_job_that_is_called_off_ends_while_its_tasks_run(spark: "SparkSession", pond: Path) -> None:
    """Whoever waits for Spark still looks whether the job was called off, and what is under way is called off too."""
    called_off = threading.Event()
    threading.Timer(0.5, called_off.set).start()

    def check_off() -> None:
        if called_off.is_set():
            raise JobCancelled("it was called off")

    found = jobs.engine_of(spark, pond).map(asleep, range(20), check_off)
    with pytest.raises(JobCancelled):
        list(found)


def test_results_come_in_the_order_of_tasks(spark: "SparkSession", pond: Path) -> None:
    found = list(jobs.engine_of(spark, pond).map(pair, iter(range(11))))
    assert found == [value for number in range(11) for value in (number, -number)]
    assert list(jobs.engine_of(spark, pond).map(pair, [])) == []


def asleep(task: int, tools: Any) -> list[int]:
    del tools
    time.sleep(20)
    return [task]


def pair(task: int, tools: Any) -> list[int]:
    del tools
    return [task, -task]


# -- what is looked at --------------------------------------------------------------------------------------------


def spoil(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def chunk_dir(root: Path) -> Path:
    return root / "databases" / f"00000001-{NAME}" / "chunks"


def scrubbed(root: Path) -> tuple[Any, ...]:
    """What the last scrub looked at, and what it found."""
    with Store.open(root, mode="r") as store:
        report = load_report(PosixFS(), store.site_of(store.database(NAME).db_id).report_dir)
    looked = report.segments, report.records, report.files, report.objects, report.bytes, report.damaged
    return looked, sorted((one.severity, one.where, one.problem, one.chunk_id) for one in report.findings)


def objects(root: Path) -> list[Any]:
    return sorted(parse_file_name(path.name) for path in (root / "attic").rglob("*.enc"))
