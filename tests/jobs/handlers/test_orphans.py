"""Orphans: what jobs that broke off have left goes; what somebody works on, or may be an only copy, stays."""

from pathlib import Path

import pytest

from latewood.archive.names import ChunkName, temporary_name
from latewood.catalog.tables import JobKind
from latewood.jobs import Outcome
from latewood.jobs.handlers.orphans import holds_only_copy, unnamed
from latewood.jobs.handlers.report import load_report
from tests.jobs.handlers.lake import DB, Lake


def token(job_id: int, rest: int = 1) -> str:
    return (job_id.to_bytes(8, "big") + rest.to_bytes(8, "big")).hex()


def put(lake: Lake, name: str) -> str:
    lake.fs.make_directory(lake.database(DB).chunk_dir)
    file = lake.fs.open(lake.database(DB).chunk_dir / name, create=True)
    file.pwrite(b"half", 0)
    file.close()
    return name


def test_files_of_jobs_that_are_over_or_gone_go(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        kept = lake.files()
        (job,) = lake.manager.jobs()
        put(lake, temporary_name(token(job.job_id)))
        put(lake, ChunkName(0, 0, 9, token(job.job_id)).file_name)
        put(lake, temporary_name(token(1 << 60)))
        lake.run(JobKind.CHECKPOINT)
        assert lake.files() == kept


def test_files_of_a_job_at_work_stay(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        other = lake.manager.enqueue(JobKind.COMPACT, db_id=DB)
        assert lake.manager.claim("elsewhere", [JobKind.COMPACT])
        names = [put(lake, temporary_name(token(other))), put(lake, ChunkName(0, 0, 9, token(other)).file_name)]
        lake.run(JobKind.CHECKPOINT)
        assert set(names) <= set(lake.files())


def test_files_that_are_not_ours_stay(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        for name in ("README", "notes.parquet", "x.tmp"):
            put(lake, name)
        lake.run(JobKind.CHECKPOINT)
        assert {"README", "notes.parquet", "x.tmp"} <= set(lake.files())


def test_a_file_that_may_be_an_only_copy_stays_and_is_told(tmp_path: Path) -> None:
    """An older catalog was put back, and the log has retired what its chunks hold."""
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20)
        lake.run(JobKind.CHECKPOINT)
        names = lake.files()
        txn = lake.catalog.begin_write()
        for row in lake.rows():
            txn.delete_chunk((DB, row.chunk_id))  # type: ignore[arg-type]
        for shard in (0, 1):
            txn.delete_wal_state((DB, shard))  # type: ignore[arg-type]
        txn.commit()
        assert lake.run(JobKind.FLUSH) is Outcome.FAILED, "the log has retired what it should begin with"
        assert lake.files() == names
        lake.run(JobKind.VERIFY)
        report = load_report(lake.fs, lake.database(DB).report_dir)
        assert {Path(finding.where).name for finding in report.findings} >= set(names)
        assert not report.is_sound


@pytest.mark.parametrize(
    ("span", "last_applied", "log_first", "log_end", "only"),
    [
        ((0, 9), 10, 0, 10, False),
        ((0, 9), 0, 0, 10, False),
        ((0, 9), 0, 0, 9, True),
        ((0, 9), 0, 5, 10, True),
        ((0, 9), 0, 10, 10, True),
        ((10, 19), 10, 10, 20, False),
        ((10, 19), 5, 15, 20, True),
        ((10, 19), 30, 40, 40, False),
        ((10, 19), 20, 0, 5, False),
        ((50, 59), 30, 40, 60, False),
        ((50, 59), 30, 40, 55, True),
    ],
)
def test_a_file_is_an_only_copy_if_it_fills_a_hole_or_goes_beyond_the_log(
    span: tuple[int, int],
    last_applied: int,
    log_first: int,
    log_end: int,
    only: bool,  # noqa: FBT001 - expected
) -> None:
    assert holds_only_copy(ChunkName(0, *span, token(1)), last_applied, log_first, log_end) is only


def test_only_files_of_ours_that_no_row_names_are_found() -> None:
    chunk, draft = ChunkName(0, 0, 9, token(7)).file_name, temporary_name(token(8))
    assert [file.job_id for file in unnamed([chunk, draft, "README"], [])] == [7, 8]
    assert [file.job_id for file in unnamed([chunk, draft, "README"], [chunk])] == [8]
