"""Rekey: chunks of another key are written anew with the database's; the old ones stay for those who read them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from latewood.archive.compact import compact_chunks
from latewood.archive.crypt import HEADER_SIZE, decode_header
from latewood.archive.keys import KeyRing
from latewood.catalog.tables import ChunkRecord, Component, JobKind, Local
from latewood.jobs import Outcome
from latewood.jobs.handlers import rekey as rekey_module
from latewood.jobs.handlers.rekey import REKEY, needs_rekey
from latewood.jobs.handlers.retain import RETAIN
from latewood.jobs.handlers.store import STEPS
from tests.jobs.handlers.damage import break_file
from tests.jobs.handlers.lake import DB, FORK, Lake, prove

OLD, NEW = bytes(range(32)), bytes(range(100, 132))
BOTH = {"k": OLD, "new": NEW}
STEP_NAMES = {"written", "synced", "renamed", "durable", "commit rekeyed"}


def rotate(lake: Lake, key_id: str | None = "new") -> None:
    """Have the database's new chunks encrypted with another key, or not at all."""
    lake.keys_to_read = KeyRing(BOTH, "k")
    lake.keys = None if key_id is None else KeyRing(BOTH, key_id)


def keys_of(lake: Lake, shard: int | None = None) -> list[str | None]:
    return [row.record.key_id for row in lake.live(shard)]


def key_in_file(lake: Lake, record: ChunkRecord) -> str:
    """What the file itself says, whatever its row does."""
    path = lake.database(DB).chunk_path(record)
    file = lake.fs.open(path)
    try:
        return decode_header(file.pread(HEADER_SIZE, 0), path).key_id
    finally:
        file.close()


def rotated(lake: Lake) -> None:
    lake.flush(20, 21)
    rotate(lake)


def rotated_archived(lake: Lake) -> None:
    lake.flush(20, 21)
    lake.run(JobKind.ARCHIVE)
    rotate(lake)


def rotated_evicted(lake: Lake) -> None:
    lake.flush(20, 21)
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})
    rotate(lake)


@pytest.mark.parametrize("prepare", [rotated, rotated_archived, rotated_evicted])
def test_every_chunk_gets_the_key_of_the_database(tmp_path: Path, prepare: Callable[[Lake], None]) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        prepare(lake)
        before = {row.chunk_id: row.record for row in lake.live()}
        assert lake.run(REKEY) is Outcome.COMPLETED
        assert keys_of(lake) == ["new"] * 4
        for row in lake.live():
            (old,) = row.record.supersedes
            assert row.record.wal_range == before[old].wal_range
            assert row.record.marks == before[old].marks
            assert isinstance(row.record.residency, Local)
            assert key_in_file(lake, row.record) == "new"
        lake.check()


def test_chunks_that_have_the_key_are_left_alone(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        lake.flush(10)
        rotate(lake)
        lake.flush(11)
        (kept,) = [row for row in lake.live(0) if row.record.key_id == "new"]
        assert lake.run(REKEY) is Outcome.COMPLETED
        assert kept in lake.live(0)
        rows, generation = lake.rows(), lake.catalog.generation(Component.CHUNKS)
        assert lake.run(REKEY) is Outcome.COMPLETED
        assert (lake.rows(), lake.catalog.generation(Component.CHUNKS)) == (rows, generation)


def test_encryption_can_begin_and_end(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        assert keys_of(lake) == [None, None]
        for key_id in ("new", "k", None):
            rotate(lake, key_id)
            assert lake.run(REKEY) is Outcome.COMPLETED
            assert keys_of(lake) == [key_id, key_id]
            assert {row.record.encrypted for row in lake.live()} == {key_id is not None}
            lake.check()
            assert lake.run(JobKind.VERIFY) is Outcome.COMPLETED


def test_after_the_grace_nothing_needs_the_old_key(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        rotated_archived(lake)
        lake.run(REKEY, {"grace_ms": 1000})
        lake.clock.advance(ms=1001)
        lake.run(RETAIN)
        assert len(lake.rows()) == 8, "the old ones are archived, and the new ones are not yet"
        lake.run(JobKind.ARCHIVE)
        lake.run(RETAIN)
        assert {row.record.key_id for row in lake.rows()} == {"new"}
        assert len(lake.files()) == len(lake.keys_in_tier()) == 4
        lake.keys_to_read = KeyRing({"new": NEW}, "new")
        lake.check()
        lake.check_no_orphan()


def test_without_the_old_key_nothing_is_lost_and_the_job_says_so(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        rotated(lake)
        lake.keys_to_read = KeyRing({"new": NEW}, "new")
        assert lake.run(REKEY) is Outcome.FAILED
        job = next(job for job in lake.manager.jobs() if job.kind == REKEY)
        assert job.last_error is not None
        assert "key 'k' is not among those given: new" in job.last_error.message
        assert keys_of(lake) == ["k"] * 4
        rotate(lake)
        lake.check()
        lake.check_no_orphan()


def test_a_damaged_chunk_does_not_keep_others_from_their_new_key(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        rotated(lake)
        break_file(lake, lake.live(0)[0])
        assert lake.run(REKEY) is Outcome.FAILED
        assert sorted(map(str, keys_of(lake))) == ["k", "new", "new", "new"]
        lake.check_no_orphan()


def test_a_chunk_that_retention_took_meanwhile_is_not_written_anew(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        rotated(lake)
        first, second = lake.live(0)

        def expire(step: str) -> None:
            if step == "durable" and lake.live(0) == [first, second]:
                lake.change(first, purging=True)

        lake.on_step = expire
        assert lake.run(REKEY) is Outcome.COMPLETED
        assert lake.live(0)[0].record.wal_range == second.record.wal_range
        assert "drop rekeyed" in lake.steps
        lake.check_no_orphan()


def test_a_fork_keeps_what_it_shares(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        lake.flush(20)
        lake.fork()
        rotate(lake)
        lake.run(REKEY, {"grace_ms": 0})
        lake.run(RETAIN)
        assert {row.record.key_id for row in lake.live(db_id=FORK)} == {"k"}
        assert lake.content(0, FORK) == dict(enumerate(lake.model[0]))
        lake.run(REKEY, {"grace_ms": 0}, db_id=FORK)
        assert {row.record.key_id for row in lake.live(db_id=FORK)} == {"new"}
        assert lake.content(0, FORK) == dict(enumerate(lake.model[0]))


def test_what_an_older_program_did_not_note_is_written_anew(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", has_keys=True) as lake:
        lake.flush(5)
        record = lake.live(0)[0].record
    assert not needs_rekey(record, "k")
    assert needs_rekey(record, None)
    assert needs_rekey(replace(record, key_id=None), None)


# -- kills ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [rotated, rotated_archived, rotated_evicted])
def test_a_rekey_killed_at_any_step_ends_in_the_same_state(tmp_path: Path, prepare: Callable[[Lake], None]) -> None:
    steps = prove(tmp_path, prepare, REKEY, {}, has_keys=True)
    assert set(steps) == STEP_NAMES == set(STEPS[REKEY]) - {"drop rekeyed"}


@pytest.mark.slow
def test_a_rekey_killed_a_second_time_while_orphans_go_ends_in_the_same_state(tmp_path: Path) -> None:
    steps = prove(tmp_path, rotated, REKEY, {}, has_keys=True, second_cut="remove orphan")
    assert set(steps) == STEP_NAMES


# -- bugs that must show ----------------------------------------------------------------------------------------


def _with_old_key(site: Any, readers: Any) -> Any:
    return compact_chunks(dataclasses.replace(site, keys=KeyRing(BOTH, "k")), readers)


def test_a_rekey_that_forgets_the_new_key_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rekey_module, "compact_chunks", _with_old_key)
    with pytest.raises(AssertionError):
        test_every_chunk_gets_the_key_of_the_database(tmp_path, rotated)


def test_a_rekey_that_forgets_the_marks_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rekey_module, "merged_marks", lambda _: None)
    with pytest.raises(AssertionError):
        test_every_chunk_gets_the_key_of_the_database(tmp_path, rotated)
