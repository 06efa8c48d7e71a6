"""Compact: small neighbours become one chunk; the old ones stay for those who read them."""

from pathlib import Path

from msgspec.structs import replace

from latewood.archive.options import ChunkOptions
from latewood.catalog.tables import Component, JobKind, Local
from latewood.jobs import Outcome
from latewood.jobs.handlers.chunks import MARKS_MAX, merged_marks
from latewood.jobs.handlers.retain import RETAIN
from tests.jobs.handlers.damage import break_file
from tests.jobs.handlers.lake import DB, Lake


def test_neighbours_become_one_in_one_commit(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11, 12)
        before = lake.catalog.generation(Component.CHUNKS)
        assert lake.run(JobKind.COMPACT) is Outcome.COMPLETED
        assert lake.catalog.generation(Component.CHUNKS) == before + 2
        (new,) = lake.live(0)
        assert new.record.wal_range == (0, 32)
        parents = [row for row in lake.rows() if row.record.superseded_by == new.chunk_id]
        assert new.record.supersedes == tuple(row.chunk_id for row in parents)
        assert (new.record.segment_min, new.record.segment_max) == (0, 2)
        assert new.record.generation > before
        lake.check()


def test_the_old_ones_stay_until_their_grace_is_over(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11)
        lake.run(JobKind.COMPACT, {"grace_ms": 60_000})
        old = [row for row in lake.rows() if row.record.superseded_by]
        lake.clock.advance(ms=59_000)
        lake.run(RETAIN)
        assert all(lake.fs.exists(lake.database(DB).chunk_path(row.record)) for row in old)
        lake.clock.advance(ms=1_000)
        lake.run(RETAIN)
        assert len(lake.files()) == len(lake.rows()) == 2
        lake.check()


def test_the_grace_is_the_databases_unless_the_payload_says_another(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11)
        lake.run(JobKind.COMPACT)
        now_ms = lake.clock.now_ns() // 1_000_000
        graces = {row.record.purge_after_ms for row in lake.rows() if row.record.superseded_by}
        assert graces == {now_ms + 15 * 60 * 1000}


def test_a_compaction_remembers_when_its_records_came(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11, 12)
        marks = [mark for row in lake.live(0) for mark in row.record.marks]
        lake.run(JobKind.COMPACT)
        assert lake.live(0)[0].record.marks == marks
        lake.flush(40)
        lake.run(JobKind.COMPACT, {"eager": True})
        (row,) = lake.live(0)
        assert [sequence for _, sequence in row.record.marks] == [9, 20, 32, 72]


def test_the_marks_of_a_row_are_bounded(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        (row,) = lake.live(0)
    marks = merged_marks([replace(row.record, columns={"marks": [[n, n]]}) for n in range(2 * MARKS_MAX)])
    assert len(marks) == MARKS_MAX
    assert marks[-1] == (2 * MARKS_MAX - 1, 2 * MARKS_MAX - 1)


def test_chunks_of_the_target_size_are_left_alone(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", chunk_options=ChunkOptions(chunk_bytes=2000, row_group_rows=8)) as lake:
        lake.flush(40)
        rows = lake.rows()
        assert lake.run(JobKind.COMPACT) is Outcome.COMPLETED
        assert lake.rows() == rows


def test_what_is_only_remote_is_read_from_the_tier(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11)
        lake.run(JobKind.ARCHIVE)
        lake.run(JobKind.EVICT, {"now": True})
        assert lake.files() == []
        assert lake.run(JobKind.COMPACT) is Outcome.COMPLETED
        assert {type(row.record.residency) for row in lake.live()} == {Local}
        lake.check()


def test_a_damaged_chunk_does_not_keep_others_from_being_joined(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11)
        break_file(lake, lake.live(0)[0])
        assert lake.run(JobKind.COMPACT) is Outcome.FAILED
        assert len(lake.live(0)) == 2
        assert len(lake.live(1)) == 1
        lake.check_no_orphan()


def test_a_parent_that_retention_took_meanwhile_undoes_the_compaction(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11)
        rows = lake.live(0)

        def expire(step: str) -> None:
            if step == "durable" and lake.live(0) == rows:
                lake.change(rows[0], purging=True)

        lake.on_step = expire
        assert lake.run(JobKind.COMPACT) is Outcome.COMPLETED
        assert lake.live(0) == rows[1:]
        lake.check_no_orphan()
