"""Jobs on an engine that does every task twice, sends everything by value and never asks: they end as they do here."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest

from latewood.archive.chunk_writer import SegmentStart, segment_range
from latewood.archive.options import ChunkOptions
from latewood.catalog.tables import JobKind
from latewood.errors import NotFoundError
from latewood.fs import PosixFS
from latewood.jobs import Outcome
from latewood.jobs.handlers import staging
from latewood.jobs.handlers.repair import MEND
from latewood.jobs.handlers.report import load_report
from latewood.jobs.handlers.retain import RETAIN
from latewood.jobs.handlers.slices import Stretch, slice_bytes, slices
from latewood.jobs.handlers.staging import job_of_staging
from latewood.jobs.handlers.store import STEPS
from latewood.queue import open_queue
from latewood.spark.archive import ArchiveNames
from latewood.spark.executor import tools_of
from latewood.tasks.chunks import FlushTask, Recipe, flush_records, overlapping
from latewood.tasks.parcels import parcels
from tests.jobs.handlers.damage import break_file, break_object
from tests.jobs.handlers.lake import DB, Lake, prove
from tests.jobs.handlers.test_cuts import appended, archived, compacted, evicted, expiring, flushed

TINY: Final = ChunkOptions(chunk_bytes=600, row_group_rows=8)
STAGED: Final = {"make staging", "adopt chunk", "remove staging"}


class Case(NamedTuple):
    prepare: Callable[[Lake], None]
    kind: int
    payload: dict[str, Any]
    steps: set[str]
    options: Mapping[str, Any] = MappingProxyType({})


CASES: Final = {
    "flush": Case(appended, JobKind.FLUSH, {"seal": True}, {*STAGED, "seal", "commit chunk"}, {"chunk_options": TINY}),
    "flush with keys": Case(
        appended, JobKind.FLUSH, {}, {*STAGED, "commit chunk"}, {"chunk_options": TINY, "has_keys": True}
    ),
    "checkpoint": Case(flushed, JobKind.CHECKPOINT, {}, {"move reader", "clean log", "note checkpoint"}),
    "compact": Case(flushed, JobKind.COMPACT, {}, {*STAGED, "commit compaction"}),
    "compact of evicted chunks": Case(evicted, JobKind.COMPACT, {}, {*STAGED, "commit compaction"}),
    "retain after a compaction": Case(
        compacted, RETAIN, {}, {"commit purging", "commit purged", "move reader", "clean log"}
    ),
    "retain by age": Case(
        expiring, RETAIN, {"grace_ms": 0}, {"commit expired", "commit purged", "move reader", "clean log"}
    ),
    "verify": Case(archived, JobKind.VERIFY, {}, {"write report"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_job_whose_driver_is_killed_at_any_step_ends_in_the_same_state(tmp_path: Path, case: Case) -> None:
    steps = prove(tmp_path, case.prepare, case.kind, case.payload, is_rough=True, **case.options)
    assert set(steps) == case.steps
    assert case.steps <= {*STEPS[case.kind], "remove orphan"}


@pytest.mark.parametrize("name", CASES)
def test_a_job_ends_as_it_does_in_one_thread(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    contents = []
    for is_rough in (False, True):
        with Lake(tmp_path / f"lake-{is_rough}", is_rough=is_rough, **case.options) as lake:
            case.prepare(lake)
            assert lake.run(case.kind, case.payload) is Outcome.COMPLETED
            lake.check()
            lake.check_no_orphan()
            shards = [lake.last_applied(shard) for shard in (0, 1)]
            contents.append((shards, [lake.content(shard) for shard in (0, 1)], lake.logs[DB, 0].first_sequence))
            assert not is_rough or (lake.engine and lake.engine.waves), "the engine had nothing to do"
    assert contents[0] == contents[1]


def test_a_flush_is_cut_into_several_tasks(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", is_rough=True, chunk_options=ChunkOptions(chunk_bytes=100, row_group_rows=8)) as lake:
        lake.append(100)
        lake.run(JobKind.FLUSH)
        assert lake.engine
        tasks = [task for task in lake.engine.calls if isinstance(task, FlushTask)]
        assert [(task.recipe.shard, task.start) for task in tasks if task.start == 0] == [(0, 0), (1, 0)]
        assert len(tasks) > 4
        lake.check()
        lake.check_no_orphan()


def test_an_error_of_a_task_ends_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", is_rough=True) as lake:
        lake.logs[DB, 0].append(b"\xff\0\0\0")
        assert lake.run(JobKind.FLUSH, {"seal": True}) is Outcome.FAILED
        (job,) = lake.manager.jobs()
        assert job.last_error
        assert job.last_error.kind == "CorruptError"
        assert lake.rows() == []
        assert lake.files() == []


def test_damage_is_found_by_tasks_and_mended(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", is_rough=True) as lake:
        archived(lake)
        rows = lake.live()
        break_file(lake, rows[0])
        break_object(lake, rows[-1])
        lake.manager.enqueue(JobKind.VERIFY, db_id=DB)
        assert lake._pool.run_next() is Outcome.COMPLETED
        report = load_report(lake.fs, lake.database(DB).report_dir)
        assert {finding.chunk_id for finding in report.findings} == {rows[0].chunk_id, rows[-1].chunk_id}
        lake.drain()
        assert [job.kind for job in lake.manager.jobs() if job.kind == MEND] == [MEND]
        lake.run(JobKind.VERIFY)
        assert load_report(lake.fs, lake.database(DB).report_dir).is_sound


def test_a_damaged_chunk_does_not_keep_others_from_being_joined(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", is_rough=True) as lake:
        lake.flush(10, 11)
        break_file(lake, lake.live(0)[0])
        assert lake.run(JobKind.COMPACT) is Outcome.FAILED
        assert (len(lake.live(0)), len(lake.live(1))) == (2, 1)
        lake.check_no_orphan()


def test_a_planted_staging_in_place_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the files of tasks made where chunks are, those of the attempts that do not count would stay."""
    monkeypatch.setattr("tests.jobs.handlers.rough_engine.RoughEngine.is_staged", False)
    with Lake(tmp_path / "lake", is_rough=True) as lake:
        lake.append(40)
        lake.fs.make_directory(lake.database(DB).chunk_dir)
        assert lake.run(JobKind.FLUSH, {"seal": True}) is Outcome.COMPLETED
        with pytest.raises(AssertionError):
            lake.check_no_orphan()


@pytest.mark.slow
def test_a_planted_staging_that_is_not_swept_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.jobs.handlers.orphans.job_of_staging", lambda _: None)
    with pytest.raises(AssertionError):
        prove(tmp_path, flushed, JobKind.COMPACT, is_rough=True)


def test_a_planted_chunk_that_is_committed_before_it_is_adopted_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latewood.jobs.handlers.flush.adopted", lambda _, chunk: chunk)
    with Lake(tmp_path / "lake", is_rough=True) as lake:
        lake.append(40)
        lake.run(JobKind.FLUSH, {"seal": True})
        with pytest.raises(AssertionError):
            lake.check()


# -- a task that goes on when nobody waits for it -----------------------------------------------------------------


def flush_task(directory: Path) -> tuple[FlushTask, Path]:
    """A log of 400 records, and a task that makes many chunks of them in a staging directory."""
    with open_queue(directory / "log", segment_bytes_max=4096) as log:
        log.append_many([b"%d" % number for number in range(400)], durable=True)
        log.roll()
        end = log.next_sequence
    chunks = directory / "chunks"
    home = chunks / f"{7:016x}-1.staging"
    home.mkdir(parents=True)
    options = ChunkOptions(chunk_bytes=1000, row_group_rows=16)
    recipe = Recipe(7, str(home), "clicks", 1, 0, options, None)
    return FlushTask(recipe, str(directory / "log"), keyed=False, start=0, stop=end, segments=()), home


@pytest.mark.parametrize("after", [0, 1])
def test_a_task_whose_staging_is_gone_makes_nothing(tmp_path: Path, after: int) -> None:
    task, home = flush_task(tmp_path)
    made = flush_records(task, tools_of(ArchiveNames(str(tmp_path))))
    for _ in range(after):
        next(made)
    PosixFS().remove_tree(home)
    with pytest.raises(NotFoundError):
        list(made)
    assert list(home.parent.iterdir()) == []


def test_a_staging_that_tasks_still_write_into_is_removed(tmp_path: Path) -> None:
    """A file comes between the look at the directory and its removal."""

    class Haunted(PosixFS):
        visits = 3

        def remove_tree(self, path: Path) -> None:
            if self.visits:
                self.visits -= 1
                for file in path.iterdir():
                    file.unlink()
                (path / "late").write_bytes(b"x")
                return
            super().remove_tree(path)

    home = tmp_path / "x.staging"
    home.mkdir()
    (home / "one").write_bytes(b"x")
    attempt: Any = type("Attempted", (), {"fs": Haunted()})()
    staging.remove_staging(attempt, home)
    assert list(tmp_path.iterdir()) == []


# -- pure ---------------------------------------------------------------------------------------------------------


def test_staging_directories_are_known_by_their_job() -> None:
    assert job_of_staging(f"{258:016x}-3.staging") == 258
    assert [job_of_staging(name) for name in ("x.staging", "README", f"{1:016x}-1.staging2")] == [None] * 3


@pytest.mark.parametrize(
    ("start", "stop", "bytes_max", "wanted"),
    [
        (0, 40, None, [(0, 40)]),
        (0, 40, 1, [(0, 10), (10, 20), (20, 30), (30, 40)]),
        (0, 40, 25, [(0, 20), (20, 40)]),
        (5, 40, 25, [(5, 20), (20, 40)]),
        (25, 40, 1000, [(25, 40)]),
        (40, 40, 10, []),
    ],
)
def test_slices_follow_on_one_another(
    start: int, stop: int, bytes_max: int | None, wanted: list[tuple[int, int]]
) -> None:
    stretches = [Stretch(at, at + 10, 10) for at in range(0, 40, 10)]
    assert slices(stretches, start, stop, bytes_max) == wanted


def test_a_slice_is_an_equal_share_within_bounds() -> None:
    assert slice_bytes(1000, 4, 100) == 250
    assert slice_bytes(1000, 100, 100) == 100, "smaller tasks make small chunks"
    assert slice_bytes(10_000, 2, 100) == 400, "larger tasks commit late"


def test_parcels_hold_all_in_order_and_no_more_than_they_should() -> None:
    weights = [3, 3, 3, 10, 1, 1, 1]
    assert list(parcels(weights, int, 6)) == [(3, 3), (3,), (10,), (1, 1, 1)]
    assert list(parcels([], int, 6)) == []


def test_segments_of_a_range_and_the_one_behind_it_are_told() -> None:
    segments = tuple(SegmentStart(number, number * 10) for number in range(5))
    for start, stop in [(0, 10), (5, 15), (10, 40), (0, 40), (39, 40)]:
        part = overlapping(segments, start, stop)
        assert segment_range(part, start, stop - 1) == segment_range(segments, start, stop - 1)
        assert len(part) <= (stop - 1) // 10 - start // 10 + 2


def test_tasks_and_what_they_come_to_are_plain_values(tmp_path: Path) -> None:
    task, _ = flush_task(tmp_path)
    assert pickle.loads(pickle.dumps((flush_records, task))) == (flush_records, task)  # noqa: S301 - our own
