"""Forks: two databases that share what they had in common, and nothing else."""

from pathlib import Path

import pytest

from latewood.catalog.tables import JobKind
from latewood.errors import NotFoundError, UsageError
from latewood.jobs.handlers.retain import RETAIN
from latewood.runtime import Database, Store
from tests.runtime.pond import NAME, Pond, pond


def payloads(db: Database) -> list[bytes]:
    return [record.payload for record in db.scan(merged=True)]


def run(pond: Pond, kind: int, name: str, **payload: object) -> None:
    job_id = pond.store.enqueue(kind, name, **payload)
    pond.settle()
    job = pond.store.jobs.get(job_id)
    assert type(job.state).__name__ == "Completed", job


def flushed(pond: Pond) -> None:
    pond.fill(30)
    pond.run("flush")
    pond.fill(30)
    pond.run("flush")


def test_a_fork_begins_as_the_other_one_is(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        before = payloads(lake.db)
        files = lake.files()
        fork = lake.store.fork(NAME, "copy")
        assert payloads(fork) == before
        assert lake.files() == files, "it shares files, and has none of its own"
        lake.check_no_orphans()


def test_a_fork_and_its_origin_part_ways(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        before = payloads(lake.db)
        lake.append(b"not flushed", b"key")
        fork = lake.store.fork(NAME, "copy")
        fork.append(b"of the fork", b"key")
        lake.append(b"of the origin", b"key")
        run(lake, JobKind.FLUSH, "copy", seal=True)
        lake.run("flush")
        assert payloads(fork) == [*before, b"of the fork"]
        assert payloads(lake.db) == [*before, b"not flushed", b"of the origin"]
        for name in ("copy", NAME):
            run(lake, JobKind.CHECKPOINT, name)
            run(lake, JobKind.COMPACT, name, eager=True)
            run(lake, RETAIN, name)
        lake.reopen()
        lake.check()
        assert payloads(lake.store.database("copy")) == [*before, b"of the fork"]
        lake.check_no_orphans()


@pytest.mark.parametrize("other", [NAME, "copy"])
@pytest.mark.parametrize("archived", [None, NAME, "copy", "before"])
def test_what_one_lets_go_the_other_keeps(home: Path, other: str, archived: str | None) -> None:
    """One of the two compacts, evicts and retains as much as it can; the other must not notice."""
    keeper = "copy" if other == NAME else NAME
    with pond(home) as lake:
        flushed(lake)
        before = payloads(lake.db)
        if archived == "before":
            lake.run("archive")
        lake.store.fork(NAME, "copy")
        if archived in (NAME, "copy"):
            run(lake, JobKind.ARCHIVE, archived)
        for kind, payload in (
            (JobKind.CHECKPOINT, {}),
            (JobKind.EVICT, {"now": True}),
            (JobKind.COMPACT, {"eager": True}),
            (JobKind.ARCHIVE, {}),
            (RETAIN, {}),
            (JobKind.EVICT, {"now": True}),
        ):
            run(lake, kind, other, **payload)
            assert payloads(lake.store.database(keeper)) == before
            assert payloads(lake.store.database(other)) == before
        run(lake, JobKind.VERIFY, keeper)
        run(lake, JobKind.COMPACT, keeper, eager=True)
        run(lake, JobKind.CHECKPOINT, keeper)
        run(lake, RETAIN, keeper)
        assert payloads(lake.store.database(keeper)) == before
        run(lake, RETAIN, other)
        lake.check_no_orphans()


def test_retention_of_one_leaves_the_other(home: Path) -> None:
    with pond(home, retention_max_age_ms=50_000) as lake:
        flushed(lake)
        lake.run("checkpoint")
        lake.run("archive")
        before = payloads(lake.db)
        lake.store.fork(NAME, "copy")
        lake.clock.advance(seconds=100)
        lake.run("retain")
        assert payloads(lake.db) == []
        fork = lake.store.database("copy")
        assert payloads(fork) == before
        run(lake, JobKind.VERIFY, "copy")
        run(lake, RETAIN, "copy")
        assert payloads(fork) == []
        lake.check_no_orphans()
        assert lake.files() == []
        assert lake.keys_in_tier() == []


def test_a_dropped_origin_leaves_its_fork_whole(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        before = payloads(lake.db)
        fork = lake.store.fork(NAME, "copy")
        lake.store.drop(NAME)
        assert payloads(fork) == before
        run(lake, JobKind.ARCHIVE, "copy")
        run(lake, JobKind.EVICT, "copy", now=True)
        lake.reopen()
        assert payloads(lake.store.database("copy")) == before


def test_a_fork_of_a_fork_shares_with_the_first(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        before = payloads(lake.db)
        second = lake.store.fork(NAME, "second")
        second.append(b"second", b"key")
        run(lake, JobKind.FLUSH, "second", seal=True)
        third = lake.store.fork("second", "third")
        third.append(b"third", b"key")
        assert payloads(third) == [*before, b"second", b"third"]
        for name in (NAME, "second", "third"):
            run(lake, JobKind.COMPACT, name, eager=True)
            run(lake, RETAIN, name)
        assert payloads(third) == [*before, b"second", b"third"]
        assert payloads(second) == [*before, b"second"]
        lake.check_no_orphans()


def test_a_fork_needs_a_new_name_and_an_origin(store: Store) -> None:
    store.create_database(NAME)
    with pytest.raises(UsageError, match="already"):
        store.fork(NAME, NAME)
    with pytest.raises(NotFoundError):
        store.fork("nowhere", "copy")
    assert [record.name for _, record in store.databases()] == [NAME]


def test_a_fork_of_what_was_never_flushed_is_empty(store: Store) -> None:
    db = store.create_database(NAME, shards=2)
    db.append(b"x", b"key")
    fork = store.fork(NAME, "copy")
    assert payloads(fork) == []
    fork.append(b"y", b"key")
    assert payloads(fork) == [b"y"]
