"""Flush: what is sealed becomes chunks, once."""

from pathlib import Path

import pytest

from latewood.archive.names import parse_file_name
from latewood.archive.options import ChunkOptions
from latewood.catalog.tables import Component, JobKind
from latewood.jobs import Outcome
from latewood.jobs.handlers.attempt import job_of_token
from tests.jobs.handlers.lake import DB, NAME, Lake


def test_a_flush_takes_what_is_sealed_and_leaves_the_open_segment(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.append(40)
        assert lake.run(JobKind.FLUSH) is Outcome.COMPLETED
        assert [row.record.wal_range for row in lake.live(0)] == [(0, 31)]
        assert lake.last_applied(0) == 32
        assert lake.state(0).last_sealed_segment == 1
        lake.check()


def test_a_flush_with_seal_takes_everything(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.append(5)
        assert lake.run(JobKind.FLUSH, {"seal": True}) is Outcome.COMPLETED
        assert [lake.last_applied(shard) for shard in (0, 1)] == [5, 5]
        lake.check()


def test_a_flush_of_nothing_makes_nothing(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        assert lake.run(JobKind.FLUSH, {"seal": True}) is Outcome.COMPLETED
        assert lake.rows() == []
        assert lake.catalog.generation(Component.CHUNKS) == 0


def test_a_row_says_what_the_chunk_holds(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20, 20)
        rows = lake.live(1)
        for row in rows:
            with lake.database(DB).open_chunk(row.record) as reader:
                meta = reader.verify()
            record = row.record
            assert (meta.database, meta.shard, meta.row_count) == (NAME, 1, 20)
            assert (meta.sequence_min, meta.sequence_max) == record.wal_range
            assert (meta.segment_min, meta.segment_max) == (record.segment_min, record.segment_max)
            assert (meta.timestamp_min_ns, meta.timestamp_max_ns) == (record.timestamp_min_ns, record.timestamp_max_ns)
        assert [(row.record.segment_min, row.record.segment_max) for row in rows] == [(0, 1), (2, 3)]
        assert [row.record.columns for row in rows] == [
            {"marks": [[row.record.generation, row.record.sequence_max]]} for row in rows
        ]


def test_the_token_of_a_chunk_begins_with_its_job(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(5)
        (job,) = lake.manager.jobs()
        names = [parse_file_name(name) for name in lake.files()]
        assert {job_of_token(name.token) for name in names if name} == {job.job_id}
        assert len({name.token for name in names if name}) == 2


def test_every_commit_raises_the_generation_of_chunks_by_one(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", chunk_options=ChunkOptions(chunk_bytes=2000, row_group_rows=8)) as lake:
        lake.flush(40)
        assert len(lake.rows()) > 2
        generations = sorted(row.record.generation for row in lake.rows())
        assert generations == list(range(1, len(lake.rows()) + 1))
        assert lake.catalog.generation(Component.CHUNKS) == generations[-1]
        lake.check()


def test_progress_counts_records(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20)
        (job,) = lake.manager.jobs()
        assert (job.progress_done, job.progress_total) == (40, 40)


def test_chunks_are_encrypted_if_there_is_a_key(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        lake.flush(20)
        assert {(row.record.encrypted, row.record.key_id) for row in lake.rows()} == {(True, "k")}
        assert all(name.endswith(".parquet.enc") for name in lake.files())
        lake.check()


def test_a_payload_too_short_for_its_key_is_damage(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.logs[DB, 0].append(b"\xff\0\0\0")
        assert lake.run(JobKind.FLUSH, {"seal": True}) is Outcome.FAILED
        (job,) = lake.manager.jobs()
        assert job.last_error
        assert job.last_error.kind == "CorruptError"
        assert lake.rows() == []


@pytest.mark.parametrize("kind", [JobKind.FLUSH, JobKind.ARCHIVE, JobKind.VERIFY])
def test_a_job_of_no_database_fails_for_good(tmp_path: Path, kind: JobKind) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.manager.enqueue(kind)
        assert lake.drain() is Outcome.FAILED
