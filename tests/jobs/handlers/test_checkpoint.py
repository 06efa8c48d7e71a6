"""Checkpoint: only what is in chunks that verify leaves the log."""

from pathlib import Path

import pytest

from latewood.archive.keys import KeyRing
from latewood.catalog.tables import Component, JobKind, Pending
from latewood.errors import NotFoundError
from latewood.jobs import Outcome
from latewood.jobs.handlers.checkpoint import verified_end
from latewood.jobs.handlers.chunks import Row
from latewood.jobs.handlers.repair import MEND
from latewood.jobs.handlers.site import FLUSH_READER
from tests.jobs.handlers.damage import break_file
from tests.jobs.handlers.lake import DB, Lake


def test_what_is_in_sound_chunks_leaves_the_log(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20, 20)
        generation = lake.catalog.generation(Component.CHUNKS)
        assert lake.run(JobKind.CHECKPOINT) is Outcome.COMPLETED
        assert [lake.logs[DB, shard].first_sequence for shard in (0, 1)] == [40, 40]
        assert lake.state(0).last_checkpoint_generation == generation
        lake.check()


def test_what_no_chunk_has_stays_in_the_log(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.append(100)
        assert lake.run(JobKind.CHECKPOINT) is Outcome.COMPLETED
        assert lake.logs[DB, 0].first_sequence == 0
        lake.run(JobKind.FLUSH)
        lake.append(50)
        lake.run(JobKind.CHECKPOINT)
        assert lake.logs[DB, 0].first_sequence == lake.last_applied(0) == 96
        lake.check()


def test_a_chunk_that_is_not_sound_keeps_the_log_and_is_mended_from_it(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20, 20, 20)
        break_file(lake, lake.live(0)[1])
        lake.manager.enqueue(JobKind.CHECKPOINT, db_id=DB)
        assert lake._pool.run_next() is Outcome.COMPLETED
        assert lake.logs[DB, 0].first_sequence == 20
        assert lake.logs[DB, 1].first_sequence == 60
        (job,) = [job for job in lake.manager.jobs() if job.kind == MEND]
        assert isinstance(job.state, Pending)
        assert job.payload == {"chunk_ids": [lake.live(0)[1].chunk_id]}
        assert lake.drain() is Outcome.COMPLETED
        lake.run(JobKind.CHECKPOINT)
        assert lake.logs[DB, 0].first_sequence == 60
        lake.check()


def test_a_chunk_behind_one_that_is_broken_is_not_asked_about(tmp_path: Path) -> None:
    """Its key is missing, which would fail the job; but what is behind a broken chunk stays in the log anyway."""
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20)
        lake.keys = lake.keys_to_read = KeyRing({"k": bytes(range(32))}, "k")
        lake.flush(20)
        lake.keys = lake.keys_to_read = None
        break_file(lake, lake.live(0)[0])
        break_file(lake, lake.live(1)[0])
        lake.manager.enqueue(JobKind.CHECKPOINT, db_id=DB)
        assert lake._pool.run_next() is Outcome.COMPLETED
        (job,) = [job for job in lake.manager.jobs() if job.kind == MEND]
        assert job.payload == {"chunk_ids": [lake.live(shard)[0].chunk_id for shard in (0, 1)]}


def test_a_verified_object_is_proof_enough(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20)
        lake.run(JobKind.ARCHIVE)
        lake.run(JobKind.EVICT, {"now": True})
        lake.run(JobKind.CHECKPOINT)
        assert lake.logs[DB, 0].first_sequence == 20
        lake.check()


def test_other_readers_of_the_log_hold_it_back(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.logs[DB, 0].reader("slow").close()
        lake.flush(20)
        lake.run(JobKind.CHECKPOINT)
        assert [lake.logs[DB, shard].first_sequence for shard in (0, 1)] == [0, 20]


def test_the_flush_reader_is_made_if_it_is_missing_before_anything_goes(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.append(20)
        log = lake.logs[DB, 0]
        log.remove_reader(FLUSH_READER)
        log.roll()
        with log.reader("quick", start="latest"):
            lake.run(JobKind.CHECKPOINT)
        assert log.first_sequence == 0, "no chunk has it"
        assert {reader.name: reader.sequence for reader in log.readers()} == {FLUSH_READER: 0, "quick": 20}


def row(chunk_id: int, first: int, last: int, like: Row) -> Row:
    from msgspec.structs import replace  # noqa: PLC0415 - only here

    return Row(chunk_id, replace(like.record, sequence_min=first, sequence_max=last))


@pytest.mark.parametrize(
    ("ranges", "log_first", "last_applied", "bad", "end"),
    [
        ([], 0, 0, [], 0),
        ([], 5, 9, [], 9),
        ([(0, 9), (10, 19)], 0, 20, [], 20),
        ([(0, 9), (10, 19)], 0, 20, [1], 10),
        ([(0, 9), (10, 19)], 0, 20, [0], 0),
        ([(0, 9), (10, 19)], 10, 20, [0], 20),
        ([(0, 9), (20, 29)], 0, 30, [], 10),
        ([(10, 19)], 0, 20, [], 20),
        ([(0, 9)], 5, 10, [], 10),
    ],
    ids=[
        "nothing",
        "all expired",
        "sound",
        "the second is broken",
        "the first is broken",
        "a broken one that the log is past",
        "a gap",
        "expired before",
        "the log begins within a chunk",
    ],
)
def test_the_log_is_let_go_up_to_the_first_doubt(
    tmp_path: Path, ranges: list[tuple[int, int]], log_first: int, last_applied: int, bad: list[int], end: int
) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(1)
        like = lake.live()[0]
    rows = [row(index, *span, like) for index, span in enumerate(ranges)]
    assert verified_end(rows, log_first, last_applied, lambda found: found.chunk_id not in bad) == end


def test_a_log_never_forgets_what_its_reader_of_flushes_needs(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.append(40)
        lake.logs[DB, 0].cleanup()
        assert lake.logs[DB, 0].first_sequence == 0
        with pytest.raises(NotFoundError):
            lake.logs[DB, 0].read(40)
