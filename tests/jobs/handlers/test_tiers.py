"""Archive, evict, hydrate: chunks on their way between the disk and the tier."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from latewood.catalog.tables import JobKind, Local, LocalAndRemote, RemoteArchived
from latewood.errors import TierUnavailable
from latewood.jobs import Outcome
from latewood.jobs.handlers.evict import is_due
from latewood.jobs.handlers.hydrate import HYDRATE
from tests.jobs.handlers.damage import break_file, break_object, remove_file
from tests.jobs.handlers.lake import DB, Lake

HOUR_MS = 3600 * 1000


def residencies(lake: Lake) -> set[str]:
    return {type(row.record.residency).__name__ for row in lake.live()}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as found:
        found.flush(10, 11)
        yield found


def test_every_live_chunk_is_archived_and_verified(lake: Lake) -> None:
    assert lake.run(JobKind.ARCHIVE) is Outcome.COMPLETED
    for row in lake.live():
        residency = row.record.residency
        assert isinstance(residency, LocalAndRemote)
        assert residency.verified
        assert residency.object.key == lake.database(DB).object_key(row.record)
        assert residency.object.tier == lake.tier.name
        assert row.record.uploaded_at_ms == lake.clock.now_ns() // 1_000_000
    assert len(lake.keys_in_tier()) == 4
    (job,) = [job for job in lake.manager.jobs() if job.kind == JobKind.ARCHIVE]
    size = sum(row.record.size_bytes for row in lake.live())
    assert (job.progress_done, job.progress_total) == (size, size)


def test_an_archived_chunk_is_not_sent_again(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.tier.asked.clear()
    lake.run(JobKind.ARCHIVE)
    assert set(lake.tier.asked) == {"sweep", "head", "get"}, "no more than the archive's identity is read"
    assert lake.tier.asked.count("get") == 1


def test_what_a_compaction_replaced_is_not_archived(lake: Lake) -> None:
    lake.run(JobKind.COMPACT)
    lake.run(JobKind.ARCHIVE)
    assert len(lake.keys_in_tier()) == 2


def test_a_damaged_file_is_not_archived_and_others_are(lake: Lake) -> None:
    broken = lake.live()[0]
    break_file(lake, broken)
    assert lake.run(JobKind.ARCHIVE) is Outcome.FAILED
    kinds = {row.chunk_id: type(row.record.residency) for row in lake.live()}
    assert [kind for chunk_id, kind in kinds.items() if chunk_id != broken.chunk_id] == [LocalAndRemote] * 3
    assert kinds[broken.chunk_id] is Local


def test_a_tier_that_is_away_leaves_all_as_it_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise TierUnavailable("it does not answer")

    rows = lake.rows()
    monkeypatch.setattr(lake.tier, "put", away, raising=False)
    lake.manager.enqueue(JobKind.ARCHIVE, db_id=DB)
    assert lake.drain() is Outcome.RETRIED
    assert lake.rows() == rows
    monkeypatch.undo()
    lake.clock.advance(ms=HOUR_MS)
    assert lake.drain() is Outcome.COMPLETED
    assert residencies(lake) == {"LocalAndRemote"}


def test_without_a_tier_these_jobs_fail_for_good(lake: Lake) -> None:
    lake.tier = None
    for kind in (JobKind.ARCHIVE, JobKind.EVICT, HYDRATE):
        assert lake.run(kind) is Outcome.FAILED


def test_an_object_with_other_bytes_under_the_key_is_left_alone(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    row = lake.live()[0]
    break_object(lake, row)
    lake.change(row, residency=Local())
    lake.run(JobKind.ARCHIVE)
    assert isinstance(lake.live()[0].record.residency, Local)


def test_evicted_chunks_are_read_from_the_tier(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    assert lake.run(JobKind.EVICT, {"now": True}) is Outcome.COMPLETED
    assert lake.files() == []
    assert residencies(lake) == {"RemoteArchived"}
    lake.check()


def test_what_is_not_verified_is_never_evicted(lake: Lake) -> None:
    assert lake.run(JobKind.EVICT, {"now": True}) is Outcome.COMPLETED
    assert residencies(lake) == {"Local"}
    assert len(lake.files()) == 4


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_an_object_that_is_gone_or_cut_keeps_the_file(lake: Lake, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.run(JobKind.ARCHIVE)
    row = lake.live()[0]
    key = lake.database(DB).object_key(row.record)
    if damage == "missing":
        lake.tier.delete(key)
    else:
        head = lake.tier.head
        short = lambda name: head(name)._replace(size=1) if name == key else head(name)  # noqa: E731
        monkeypatch.setattr(lake.tier, "head", short, raising=False)
    lake.run(JobKind.EVICT, {"now": True})
    assert isinstance(lake.live()[0].record.residency, LocalAndRemote)
    assert lake.files() == [row.record.file_name]


def test_eviction_waits_as_long_as_the_policy_says(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT)
    assert residencies(lake) == {"LocalAndRemote"}, "without a policy nothing goes by itself"
    lake.keep(evict_local_after_ms=HOUR_MS)
    lake.clock.advance(ms=HOUR_MS - 1)
    lake.run(JobKind.EVICT)
    assert residencies(lake) == {"LocalAndRemote"}
    lake.clock.advance(ms=1)
    lake.run(JobKind.EVICT)
    assert residencies(lake) == {"RemoteArchived"}


def test_what_was_brought_back_is_not_evicted_at_once(lake: Lake) -> None:
    lake.keep(evict_local_after_ms=HOUR_MS)
    lake.run(JobKind.ARCHIVE)
    lake.clock.advance(ms=HOUR_MS)
    lake.run(JobKind.EVICT)
    lake.run(HYDRATE)
    lake.run(JobKind.EVICT)
    assert residencies(lake) == {"LocalAndRemote"}
    assert not is_due(lake.live()[0].record, lake.clock.now_ns() // 1_000_000, HOUR_MS)
    lake.clock.advance(ms=HOUR_MS)
    lake.run(JobKind.EVICT)
    assert residencies(lake) == {"RemoteArchived"}


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        ({}, {(0, 0), (0, 10), (1, 0), (1, 10)}),
        ({"shard": 1}, {(1, 0), (1, 10)}),
        ({"start": 10, "stop": 12}, {(0, 10), (1, 10)}),
        ({"stop": 10}, {(0, 0), (1, 0)}),
        ({"start": 9, "stop": 11, "shard": 0}, {(0, 0), (0, 10)}),
    ],
)
def test_hydration_brings_back_what_is_wanted(
    lake: Lake, payload: dict[str, int], wanted: set[tuple[int, int]]
) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})
    assert lake.run(HYDRATE, payload) is Outcome.COMPLETED
    back = [row.record for row in lake.live() if isinstance(row.record.residency, LocalAndRemote)]
    assert {(record.shard, record.sequence_min) for record in back} == wanted
    assert len(lake.files()) == len(wanted)
    lake.check()


def test_hydration_of_chosen_chunks(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})
    chosen = lake.live()[1].chunk_id
    lake.run(HYDRATE, {"chunk_ids": [chosen]})
    assert [row.chunk_id for row in lake.live() if isinstance(row.record.residency, LocalAndRemote)] == [chosen]


def test_a_damaged_object_does_not_come_back(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})
    broken = lake.live()[0]
    break_object(lake, broken)
    assert lake.run(HYDRATE) is Outcome.FAILED
    assert isinstance(lake.live()[0].record.residency, RemoteArchived)
    assert len(lake.files()) == 3


def test_hydration_replaces_a_damaged_file_that_no_row_claims(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})
    path = lake.database(DB).chunk_path(lake.live()[0].record)
    file = lake.fs.open(path, create=True)
    file.pwrite(b"something else", 0)
    file.close()
    assert lake.run(HYDRATE) is Outcome.COMPLETED
    lake.check()
    lake.check_no_orphan()


def test_an_eviction_during_a_hydration_leaves_rows_that_tell_the_truth(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})

    def evict(step: str) -> None:
        if step == "commit hydrated":
            for name in lake.files():
                lake.fs.remove(lake.database(DB).chunk_dir / name)

    lake.on_step = evict
    lake.run(HYDRATE)
    assert residencies(lake) == {"RemoteArchived"}
    lake.check()


def test_a_hydration_during_an_eviction_leaves_rows_that_tell_the_truth(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    hydrated = list[int]()

    def hydrate(step: str) -> None:
        if step == "remove file":
            row = next(row for row in lake.live() if isinstance(row.record.residency, RemoteArchived))
            if row.chunk_id not in hydrated:
                hydrated.append(row.chunk_id)
                assert isinstance(row.record.residency, RemoteArchived)
                lake.change(row, residency=LocalAndRemote(object=row.record.residency.object, verified=True))

    lake.on_step = hydrate
    assert lake.run(JobKind.EVICT, {"now": True}) is Outcome.COMPLETED
    assert hydrated
    lake.check()


def test_a_missing_file_of_an_archived_chunk_is_read_from_the_tier(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    remove_file(lake, lake.live()[0])
    assert lake.content(0) == dict(enumerate(lake.model[0]))


def test_a_chunk_that_is_retired_while_it_is_sent_leaves_no_object(lake: Lake) -> None:
    row = lake.live()[0]

    def retire(step: str) -> None:
        if step == "put" and lake.live()[0] == row:
            lake.change(row, purging=True)

    lake.on_step = retire
    assert lake.run(JobKind.ARCHIVE) is Outcome.COMPLETED
    assert len(lake.keys_in_tier()) == 3


def test_a_chunk_that_is_retired_while_it_comes_back_leaves_no_file(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.run(JobKind.EVICT, {"now": True})
    row = lake.live()[0]

    def retire(step: str) -> None:
        if step == "renamed" and lake.live()[0] == row:
            lake.change(row, purging=True)

    lake.on_step = retire
    assert lake.run(HYDRATE) is Outcome.COMPLETED
    assert len(lake.files()) == 3


def test_an_error_with_a_chunk_that_was_moved_meanwhile_is_none(lake: Lake) -> None:
    row = lake.live()[0]

    def move(step: str) -> None:
        if step == "put" and lake.live()[0] == row:
            lake.change(row, created_at_ms=1)
            lake.tier.delete(lake.database(DB).object_key(row.record))

    lake.on_step = move
    assert lake.run(JobKind.ARCHIVE) is Outcome.COMPLETED
    assert isinstance(lake.live()[0].record.residency, Local)
    lake.run(JobKind.ARCHIVE)
    assert residencies(lake) == {"LocalAndRemote"}


# -- an object that is not the one that was verified ---------------------------------------------------------


def test_an_object_that_was_replaced_by_as_many_bytes_keeps_the_file_and_is_repaired(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    row = lake.live()[0]
    break_object(lake, row)
    lake.manager.enqueue(JobKind.EVICT, {"now": True}, db_id=DB)
    assert lake._pool.run_next() is Outcome.COMPLETED
    assert lake.files() == [row.record.file_name]
    assert isinstance(lake.live()[0].record.residency, LocalAndRemote)
    assert lake.drain() is Outcome.COMPLETED
    assert lake.run(JobKind.EVICT, {"now": True}) is Outcome.COMPLETED
    assert residencies(lake) == {"RemoteArchived"}
    lake.check()


def test_an_object_that_the_tier_says_is_the_same_is_not_read_again(lake: Lake) -> None:
    lake.run(JobKind.ARCHIVE)
    lake.tier.asked.clear()
    lake.run(JobKind.EVICT, {"now": True})
    assert lake.tier.asked.count("get") == 1, "of the archive's identity"
    assert residencies(lake) == {"RemoteArchived"}


@pytest.mark.parametrize("is_sound", [True, False])
def test_an_object_of_an_older_row_is_read_back_before_its_file_goes(lake: Lake, *, is_sound: bool) -> None:
    lake.run(JobKind.ARCHIVE)
    row = lake.live()[0]
    residency = row.record.residency
    assert isinstance(residency, LocalAndRemote)
    older = replace(residency, object=replace(residency.object, etag=None, version_id=None))
    lake.change(row, residency=older)
    if not is_sound:
        break_object(lake, row)
    lake.tier.asked.clear()
    lake.manager.enqueue(JobKind.EVICT, {"now": True}, db_id=DB)
    assert lake._pool.run_next() is Outcome.COMPLETED
    assert lake.tier.asked.count("get") > 1
    assert lake.files() == ([] if is_sound else [row.record.file_name])
    found = lake.live()[0].record.residency
    assert isinstance(found, RemoteArchived) is is_sound
    if isinstance(found, RemoteArchived):
        assert found.object.etag == lake.tier.head(found.object.key).etag, "the row keeps what the tier says now"
