"""A reader of a database that begins while retention is at work, or that begins at the end of what is written."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from latewood.errors import JobFailed, Locked
from latewood.queue.cursor import store_cursor
from latewood.runtime import Store
from latewood.runtime.reader import DatabaseReader
from latewood.runtime.shard import Shard
from latewood.segment import SegmentReader
from tests.forking import in_child


@pytest.fixture
def root(home: Path) -> Path:
    return home / "lake"


def retained_between(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have retention run whenever a reader has chosen where to begin in a shard; return what was left each time."""
    choose, left = DatabaseReader._start, list[int]()

    def choose_and_retain(shard: Shard, start: object, stored: int | None) -> int:
        sequence = choose(shard, start, stored)
        store.run_job("retain", "clicks", grace_ms=0)
        left.append(shard.first())
        return sequence

    monkeypatch.setattr(DatabaseReader, "_start", staticmethod(choose_and_retain))
    return left


def expiring(root: Path) -> Store:
    """A store whose database has ten records in chunks that the next retention lets go, and three in its log."""
    store = Store.open(root)
    db = store.create_database("clicks", retention_max_bytes=0)
    db.append_many([b"old"] * 10)
    store.run_job("flush", "clicks", seal=True)
    store.run_job("checkpoint", "clicks")
    db.append_many([b"new"] * 3)
    return store


@pytest.mark.parametrize("start", ["resume", "earliest", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], ids=str)
def test_a_new_reader_begins_at_the_oldest_record_that_retention_leaves(
    root: Path, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    with expiring(root) as store:
        left = retained_between(store, monkeypatch)
        with store.database("clicks").reader("new", start) as reader:
            assert left == [10]
            assert [(record.sequence, record.payload) for record in reader] == [(n, b"new") for n in (10, 11, 12)]


def test_retention_waits_for_a_reader_that_begins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.queue.holding._TRIES_MAX", 1)
    with expiring(root) as store:
        db, refusals = store.database("clicks"), []

        def store_and_look(*arguments: Any) -> Any:
            with pytest.raises(Locked, match="cleaning") as refused, store.site_of(db.db_id).readers_held():
                pass
            refusals.append(refused)
            return store_cursor(*arguments)

        monkeypatch.setattr("latewood.runtime.reader.store_cursor", store_and_look)
        reader = db.reader("new")
        assert refusals
        store.run_job("retain", "clicks", grace_ms=0)
        assert len(list(reader)) == 13


def test_retention_lets_nothing_go_while_a_reader_begins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.queue.holding._TRIES_MAX", 1)
    with expiring(root) as store:
        db = store.database("clicks")
        with (
            store.site_of(db.db_id).readers_held(),
            pytest.raises(JobFailed, match="claiming old records; try again"),
        ):
            store.run_job("retain", "clicks", grace_ms=0)
        assert len(list(db.scan())) == 13


def test_a_reader_of_a_store_opened_to_read_makes_what_it_stands_behind_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut would take the records, and those that get their numbers would be skipped."""
    with Store.open(root) as store:
        store.create_database("clicks").append(b"written")

        def work() -> int:
            synced: list[Path] = []
            sync = SegmentReader.sync

            def note(segment: SegmentReader) -> None:
                synced.append(segment.path)
                sync(segment)

            monkeypatch.setattr(SegmentReader, "sync", note)
            with Store.open(root, mode="r") as mine:
                mine.database("clicks").reader("r", "latest").close()
            return len(synced)

        assert in_child(work) > 0
