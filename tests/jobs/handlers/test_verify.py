"""Verify and repair: what is broken is found in every tier, mended from where it is whole, and never lost silently."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.catalog.tables import FailedPermanent, JobKind, LocalAndRemote, RemoteArchived
from latewood.jobs import Outcome
from latewood.jobs.handlers.repair import MEND
from latewood.jobs.handlers.report import ScrubReport, load_report
from tests.jobs.handlers.damage import break_file, break_object, remove_file
from tests.jobs.handlers.lake import DB, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as found:
        found.flush(10, 11)
        yield found


def scrub(lake: Lake) -> ScrubReport:
    """Run one scrub, and not the repair that it enqueues."""
    lake.manager.enqueue(JobKind.VERIFY, db_id=DB)
    assert lake._pool.run_next() is Outcome.COMPLETED
    return load_report(lake.fs, lake.database(DB).report_dir)


def problems(report: ScrubReport) -> list[tuple[str, int | None]]:
    return [(finding.severity, finding.chunk_id) for finding in report.findings]


def test_a_sound_database_is_sound(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    report = scrub(lake)
    assert report.is_sound
    assert report.findings == ()
    assert (report.files, report.objects, report.mend_job_id) == (4, 4, None)
    assert report.records == 42
    assert report.bytes == 2 * sum(row.record.size_bytes for row in lake.live())


def test_a_flipped_bit_in_a_file_is_found_and_mended_from_the_object(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.CHECKPOINT)
    row = lake.live()[0]
    break_file(lake, row)
    report = scrub(lake)
    assert problems(report) == [("damage", row.chunk_id)]
    assert lake.drain() is Outcome.COMPLETED
    assert scrub(lake).is_sound
    assert lake.live()[0] == row
    lake.check()
    lake.check_no_orphan()


def test_a_missing_file_of_an_archived_chunk_is_a_warning_and_comes_back(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    row = lake.live()[0]
    remove_file(lake, row)
    assert problems(scrub(lake)) == [("warning", row.chunk_id)]
    lake.drain()
    assert scrub(lake).findings == ()
    lake.check()


def test_a_flipped_bit_in_an_object_is_found_doubted_at_once_and_mended_from_the_file(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    row = lake.live()[0]
    break_object(lake, row)
    assert problems(scrub(lake)) == [("damage", row.chunk_id)]
    doubted = lake.live()[0].record.residency
    assert isinstance(doubted, LocalAndRemote)
    assert not doubted.verified
    lake.manager.cancel(load_report(lake.fs, lake.database(DB).report_dir).mend_job_id or 0)
    lake.run(JobKind.EVICT, {"now": True, "chunk_ids": [row.chunk_id]})
    assert row.record.file_name in lake.files(), "it is the only copy"
    assert lake.run(MEND) is Outcome.COMPLETED
    assert scrub(lake).is_sound
    lake.check()


def test_an_object_that_is_gone_is_sent_again(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.tier.delete(lake.keys_in_tier()[0])
    assert not scrub(lake).is_sound
    lake.drain()
    assert scrub(lake).is_sound
    assert len(lake.keys_in_tier()) == 4


def test_a_broken_local_chunk_is_made_again_from_the_log(lake: Lake) -> None:
    rows = lake.live(0)
    break_file(lake, rows[0])
    report = scrub(lake)
    assert problems(report) == [("damage", rows[0].chunk_id)]
    assert lake.drain() is Outcome.COMPLETED
    new, after = lake.live(0)
    assert after == rows[1]
    assert new.record.supersedes == (rows[0].chunk_id,)
    assert new.record.wal_range == rows[0].record.wal_range
    assert new.record.columns == rows[0].record.columns
    lake.check()


def test_a_chunk_that_is_nowhere_whole_is_lost_loudly(lake: Lake) -> None:
    lake.run(JobKind.CHECKPOINT)
    row = lake.live(0)[0]
    break_file(lake, row)
    report = scrub(lake)
    assert problems(report) == [("damage", row.chunk_id)]
    assert lake.drain() is Outcome.FAILED
    (job,) = [job for job in lake.manager.jobs() if job.kind == MEND]
    assert job.job_id == report.mend_job_id
    assert isinstance(job.state, FailedPermanent)
    assert job.last_error
    assert row.record.file_name in job.last_error.message
    assert "0 to 9" in job.last_error.message
    assert lake.live(0)[0] == row, "nothing of it is thrown away"
    assert row.record.file_name in lake.files()


def test_a_broken_object_of_an_evicted_chunk_is_lost_loudly_and_others_are_mended(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True, "chunk_ids": [row.chunk_id for row in lake.live(0)]})
    lake.run(JobKind.CHECKPOINT)
    lost, mended = lake.live(0)[0], lake.live(1)[0]
    break_object(lake, lost)
    break_file(lake, mended)
    assert sorted(problems(scrub(lake))) == sorted([("damage", lost.chunk_id), ("damage", mended.chunk_id)])
    assert lake.drain() is Outcome.FAILED
    assert isinstance(lake.live(0)[0].record.residency, RemoteArchived)
    assert problems(scrub(lake)) == [("damage", lost.chunk_id)]


def test_a_broken_object_of_an_evicted_chunk_is_made_again_from_the_log(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})
    break_object(lake, lake.live(0)[0])
    scrub(lake)
    assert lake.drain() is Outcome.COMPLETED
    lake.check()


def test_an_encrypted_chunk_whose_key_is_missing_is_told_and_not_mended(tmp_path: Path) -> None:
    with Lake(tmp_path / "encrypted", has_keys=True) as lake:
        lake.flush(10)
        lake.keys = None
        report = scrub(lake)
        assert report.damaged == 2
        assert report.mend_job_id is None


def test_a_damaged_segment_is_found(lake: Lake) -> None:
    log = lake.logs[DB, 0]
    path = log.path / log.view().manifest.entries[0].path
    file = lake.fs.open(path, write=True)
    file.pwrite(b"\xff\xff", 100)
    file.close()
    report = scrub(lake)
    assert not report.is_sound
    assert {finding.shard for finding in report.findings} == {0}


def test_a_row_that_is_gone_shows_as_a_gap(lake: Lake) -> None:
    txn = lake.catalog.begin_write()
    txn.delete_chunk((DB, lake.live(0)[1].chunk_id))  # type: ignore[arg-type]
    txn.commit()
    report = scrub(lake)
    assert any("10 to 20" in finding.problem for finding in report.findings)


def test_an_object_that_no_row_names_is_told_and_stays(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    row = lake.live(0)[0]
    key = lake.database(DB).object_key(row.record)
    txn = lake.catalog.begin_write()
    txn.delete_chunk((DB, row.chunk_id))  # type: ignore[arg-type]
    txn.commit()
    report = scrub(lake)
    assert ("warning", key) in [(finding.severity, finding.where) for finding in report.findings]
    assert key in lake.keys_in_tier()


def test_a_scrub_that_is_run_again_enqueues_one_repair(lake: Lake) -> None:
    break_file(lake, lake.live(0)[0])
    scrub(lake)
    scrub(lake)
    assert len([job for job in lake.manager.jobs() if job.kind == MEND]) == 1


def test_a_chunk_that_is_moved_while_it_is_looked_at_is_not_called_lost(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.CHECKPOINT)
    evicted = list[int]()
    open_file = lake.fs._inner.open

    def open_and_evict(path: Path, **mode: bool) -> object:
        row = next((row for row in lake.live() if row.record.file_name == path.name), None)
        if row is not None and row.chunk_id not in evicted and isinstance(row.record.residency, LocalAndRemote):
            evicted.append(row.chunk_id)
            lake.change(row, residency=RemoteArchived(object=row.record.residency.object, verified=True))
            lake.fs.remove(path)
        return open_file(path, **mode)

    lake.fs._inner.open = open_and_evict
    assert scrub(lake).findings == ()
    assert len(evicted) == 4


def test_a_repair_of_a_chunk_that_was_replaced_meanwhile_leaves_nothing(lake: Lake) -> None:
    row = lake.live(0)[0]
    break_file(lake, row)

    def retire(step: str) -> None:
        if step == "durable" and lake.live(0)[0] == row:
            lake.change(row, purging=True)

    lake.on_step = retire
    assert lake.run(MEND) is Outcome.COMPLETED
    assert len(lake.files()) == 4
