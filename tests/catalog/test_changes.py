"""The change log: what a cursor sees, and what is kept for it."""

import threading

import pytest

from latewood.catalog import Catalog
from latewood.catalog.tables import CHANGE_LOG, CHUNK, DB, ChangeKind, ChangePosition, ChunkKey, Component, JobKind
from latewood.errors import BadName, ChangesLost, NotFoundError, ReadOnlyError, UsageError, WaitExpired
from tests.catalog.desk import Desk, acquire, db, enqueue, put_chunks, put_database, write
from tests.patience import wait_until


def kept(catalog: Catalog) -> int:
    return catalog.read(lambda view: view.count(CHANGE_LOG))


def test_without_a_cursor_nothing_is_kept(catalog: Catalog) -> None:
    put_chunks(catalog, 10)
    assert kept(catalog) == 0


def test_a_cursor_sees_what_changed_since_it_was_made_in_order(catalog: Catalog) -> None:
    put_chunks(catalog, 1)
    catalog.feed.create("etl")
    first = write(catalog, lambda txn: txn.put_db(1, db()))
    second = write(catalog, lambda txn: txn.put_db(1, db("taps")), lambda txn: txn.delete_chunk(ChunkKey(1, 1)))
    found = list(catalog.changes("etl"))
    assert [(entry.position, entry.table, entry.kind) for entry in found] == [
        (ChangePosition(first.generation, 0), "db", ChangeKind.PUT),
        (ChangePosition(second.generation, 0), "db", ChangeKind.PUT),
        (ChangePosition(second.generation, 1), "chunk_catalog", ChangeKind.DELETE),
    ]
    assert found[2].key == CHUNK.pack_key(ChunkKey(1, 1))


def test_what_was_not_there_was_not_deleted(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    write(catalog, lambda txn: txn.delete_chunk(ChunkKey(1, 1)))
    assert list(catalog.changes("etl")) == []


def test_a_transition_of_a_job_shows_job_place_and_gate(catalog: Catalog) -> None:
    put_database(catalog, shards=1)
    catalog.feed.create("etl")
    acquire(catalog, enqueue(catalog))
    tables = [entry.table for entry in catalog.changes("etl")]
    assert tables == ["job_pending_index", "job_queue", "job_pending_index", "job_queue", "job_gate", "wal_state"]


def test_what_is_acknowledged_by_all_is_dropped_and_not_seen_again(catalog: Catalog) -> None:
    for cursor in ("fast", "slow"):
        catalog.feed.create(cursor)
    for number in (1, 2, 3):
        write(catalog, lambda txn, number=number: txn.put_db(number, db(f"d{number}")))  # type: ignore[misc]
    entries = list(catalog.changes("fast"))
    catalog.acknowledge("fast", entries[-1].position)
    assert list(catalog.changes("fast")) == []
    assert kept(catalog) == 3
    catalog.acknowledge("slow", entries[1].position)
    assert kept(catalog) == 1
    assert [entry.key for entry in catalog.changes("slow")] == [DB.pack_key(3)]


def test_a_generation_acknowledges_all_of_its_changes(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    put_chunks(catalog, 5)
    catalog.acknowledge("etl", catalog.generation())
    assert list(catalog.changes("etl")) == []
    assert kept(catalog) == 0


def test_a_cursor_never_goes_back(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    put_chunks(catalog, 2)
    entries = list(catalog.changes("etl"))
    catalog.acknowledge("etl", entries[1].position)
    catalog.acknowledge("etl", entries[0].position)
    catalog.feed.create("etl")
    assert list(catalog.changes("etl")) == []


def test_what_has_not_come_cannot_be_acknowledged(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    with pytest.raises(UsageError, match="has not come yet"):
        catalog.acknowledge("etl", catalog.generation() + 5)


def test_a_cursor_outlives_the_process(desk: Desk) -> None:
    catalog = desk.open()
    catalog.feed.create("etl")
    put_chunks(catalog, 3)
    catalog.acknowledge("etl", next(catalog.changes("etl")).position)
    catalog.close()
    assert len(list(desk.open().changes("etl"))) == 2


def test_a_cursor_that_is_not_there_is_said_so(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError, match="no cursor 'etl'"):
        list(catalog.changes("etl"))
    with pytest.raises(NotFoundError):
        catalog.acknowledge("etl", 0)
    with pytest.raises(NotFoundError):
        catalog.wait_for_changes("etl")
    with pytest.raises(BadName):
        catalog.feed.create("No/Name")


def test_removing_the_last_cursor_drops_what_it_kept(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    put_chunks(catalog, 5)
    catalog.feed.remove("etl")
    catalog.feed.remove("etl")
    assert kept(catalog) == 0


def test_a_long_log_is_dropped_over_several_commits(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    put_chunks(catalog, 2500)
    catalog.acknowledge("etl", catalog.generation())
    assert kept(catalog) == 2500 - 1024
    catalog.acknowledge("etl", catalog.generation())
    catalog.acknowledge("etl", catalog.generation())
    assert kept(catalog) == 0


def test_a_cursor_that_was_left_behind_is_told(desk: Desk) -> None:
    catalog = desk.open(changes_max=10)
    catalog.feed.create("dead")
    catalog.feed.create("alive")
    put_chunks(catalog, 6)
    generation = catalog.generation()
    catalog.acknowledge("alive", generation)
    put_chunks(catalog, 8)
    assert kept(catalog) == 10
    assert len(list(catalog.changes("alive"))) == 8
    catalog.wait_for_changes("dead")
    with pytest.raises(ChangesLost) as caught:
        list(catalog.changes("dead"))
    assert caught.value.stop - 1 == generation
    catalog.acknowledge("dead", caught.value.stop - 1)
    assert len(list(catalog.changes("dead"))) == 8


def test_bad_batches_leave_no_changes(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    job_id = enqueue(catalog)
    seen = len(list(catalog.changes("etl")))
    for attempt in (1, 2):
        txn = catalog.begin_write()
        txn.put_db(attempt, db())
        txn.enqueue_job(catalog.read(lambda view: view.job(job_id)))  # type: ignore[arg-type]
        assert txn.commit_async().exception(60) is not None
    assert len(list(catalog.changes("etl"))) == seen


def test_who_waits_for_changes_goes_on_when_one_comes(catalog: Catalog) -> None:
    catalog.feed.create("etl")
    seen: list[str] = []

    def follow() -> None:
        catalog.wait_for_changes("etl")
        seen.extend(entry.table for entry in catalog.changes("etl"))

    thread = threading.Thread(target=follow)
    thread.start()
    wait_until(lambda: catalog._room._handles)
    write(catalog, lambda txn: txn.bump_generation(Component.WAL))  # a commit, but no change
    put_chunks(catalog, 1)
    thread.join(60)
    assert seen == ["chunk_catalog"]


def test_waiting_for_changes_has_an_end(desk: Desk) -> None:
    catalog = desk.open()
    catalog.feed.create("etl")
    with pytest.raises(WaitExpired):
        catalog.wait_for_changes("etl", desk.now_ms)


def test_who_reads_only_reads_changes_and_acknowledges_none(desk: Desk) -> None:
    catalog = desk.open()
    catalog.feed.create("etl")
    enqueue(catalog, JobKind.COMPACT)
    catalog.close()
    reader = desk.open("r")
    assert len(list(reader.changes("etl"))) == 2
    reader.wait_for_changes("etl")
    with pytest.raises(ReadOnlyError):
        reader.acknowledge("etl", 1)
