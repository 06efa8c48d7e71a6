"""Forks share files and objects: whoever lets go last removes them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from latewood.catalog.tables import JobKind
from latewood.jobs import Outcome
from latewood.jobs.handlers.hydrate import HYDRATE
from latewood.jobs.handlers.retain import RETAIN
from tests.jobs.handlers.lake import DB, FORK, Lake

NO_GRACE = {"grace_ms": 0}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as found:
        found.flush(10, 11)
        found.run(JobKind.ARCHIVE)
        found.fork()
        yield found


def expire(lake: Lake, db_id: int) -> None:
    lake.keep(db_id, max_bytes=0)
    assert lake.run(RETAIN, NO_GRACE, db_id) is Outcome.COMPLETED


def is_whole(lake: Lake, db_id: int) -> bool:
    return all(lake.content(shard, db_id) == dict(enumerate(lake.model[shard])) for shard in (0, 1))


def test_what_one_database_lets_go_the_other_still_has(lake: Lake) -> None:
    expire(lake, DB)
    assert lake.rows(DB) == []
    assert len(lake.files()) == len(lake.keys_in_tier()) == 4
    assert is_whole(lake, FORK)
    lake.run(JobKind.FLUSH, {"seal": True})
    assert is_whole(lake, FORK), "the sweep takes nothing that the fork names"


@pytest.mark.parametrize("order", [(DB, FORK), (FORK, DB)])
def test_the_last_to_let_go_removes_them(lake: Lake, order: tuple[int, int]) -> None:
    for db_id in order:
        expire(lake, db_id)
    assert lake.files() == []
    assert lake.keys_in_tier() == []
    assert lake.rows(DB) == lake.rows(FORK) == []


def test_two_that_let_go_at_the_same_time_leave_nothing(lake: Lake) -> None:
    lake.keep(DB, max_bytes=0)
    lake.keep(FORK, max_bytes=0)
    lake.run(RETAIN, {"grace_ms": 1000}, DB)
    lake.run(RETAIN, {"grace_ms": 1000}, FORK)
    lake.clock.advance(ms=1000)
    lake.run(RETAIN, {}, DB)
    lake.run(RETAIN, {}, FORK)
    assert lake.files() == lake.keys_in_tier() == []


def test_a_file_that_the_other_claims_is_not_evicted(lake: Lake) -> None:
    lake.run(JobKind.EVICT, {"now": True}, DB)
    assert len(lake.files()) == 4
    assert is_whole(lake, FORK)
    lake.run(JobKind.EVICT, {"now": True}, FORK)
    assert lake.files() == []
    assert is_whole(lake, FORK)
    assert is_whole(lake, DB)


def test_a_fork_brings_back_what_it_needs(lake: Lake) -> None:
    lake.run(JobKind.EVICT, {"now": True}, DB)
    lake.run(JobKind.EVICT, {"now": True}, FORK)
    assert lake.run(HYDRATE, {}, FORK) is Outcome.COMPLETED
    assert len(lake.files()) == 4
    assert is_whole(lake, FORK)


def test_a_fork_compacts_for_itself(lake: Lake) -> None:
    assert lake.run(JobKind.COMPACT, NO_GRACE, FORK) is Outcome.COMPLETED
    lake.run(JobKind.ARCHIVE, {}, FORK)
    lake.run(RETAIN, {}, FORK)
    assert len(lake.files()) == 4
    assert is_whole(lake, DB)
    assert is_whole(lake, FORK)
    lake.check()


def test_a_chunk_that_was_not_archived_at_the_fork_is_archived_once(tmp_path: Path) -> None:
    with Lake(tmp_path / "late") as lake:
        lake.flush(10)
        lake.fork()
        assert lake.run(JobKind.ARCHIVE, {}, DB) is Outcome.COMPLETED
        expire(lake, DB)
        assert len(lake.keys_in_tier()) == 2
        assert lake.run(JobKind.ARCHIVE, {}, FORK) is Outcome.COMPLETED
        assert len(lake.keys_in_tier()) == 2
        assert is_whole(lake, FORK)
        expire(lake, FORK)
        assert lake.keys_in_tier() == lake.files() == []
