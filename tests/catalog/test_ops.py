"""Each operation does what it says, or leaves nothing."""

from typing import Any

import pytest

from latewood.catalog import Catalog
from latewood.catalog.ops import (
    BumpGeneration,
    DeletePendingIndex,
    PutGate,
    PutJob,
    PutRuntimeState,
    RequireGeneration,
    SetFlushGate,
    UpsertPendingIndex,
)
from latewood.catalog.tables import (
    CHUNK,
    DB,
    Cancelled,
    ChunkKey,
    Completed,
    Component,
    DbTombstoned,
    FlushGateState,
    GateKey,
    GateRecord,
    JobKind,
    MetricDelta,
    MetricKey,
    Pending,
    PendingJobKey,
    RuntimeRecord,
    WalStateKey,
    WalStateRecord,
)
from latewood.errors import ConflictError, NotFoundError, UniqueJobAlreadyPending, UsageError
from tests.catalog.desk import acquire, chunk, db, enqueue, job, job_of, put_chunks, put_database, write

DEAD = DbTombstoned(tombstoned_at_ms=1)


# -- databases --------------------------------------------------------------------------------------------


def test_a_database_is_found_by_id_and_by_name(catalog: Catalog) -> None:
    write(catalog, lambda txn: txn.put_db(7, db("clicks")))
    assert catalog.read(lambda view: view.db(7)) == db("clicks")
    assert catalog.read(lambda view: view.db_by_name("clicks")) == (7, db("clicks"))
    assert catalog.read(lambda view: list(view.dbs())) == [(7, db("clicks"))]


def test_no_two_living_databases_have_one_name(catalog: Catalog) -> None:
    write(catalog, lambda txn: txn.put_db(1, db("clicks")))
    with pytest.raises(ConflictError, match="database 1 is called 'clicks'"):
        write(catalog, lambda txn: txn.put_db(2, db("clicks")))
    assert catalog.read(lambda view: view.db(2)) is None


def test_a_tombstoned_database_gives_its_name_up(catalog: Catalog) -> None:
    write(catalog, lambda txn: txn.put_db(1, db("clicks")))
    write(catalog, lambda txn: txn.put_db(1, db("clicks", status=DEAD)))
    write(catalog, lambda txn: txn.put_db(2, db("clicks")))
    write(catalog, lambda txn: txn.put_db(1, db("clicks", status=DEAD, wal_shards=3)))
    assert catalog.read(lambda view: view.db_by_name("clicks")) == (2, db("clicks"))


def test_a_renamed_database_is_found_by_its_new_name_alone(catalog: Catalog) -> None:
    write(catalog, lambda txn: txn.put_db(1, db("clicks")))
    write(catalog, lambda txn: txn.put_db(1, db("taps")))
    assert catalog.read(lambda view: view.db_by_name("clicks")) is None
    assert catalog.read(lambda view: view.db_by_name("taps")) == (1, db("taps"))


def test_a_living_database_is_not_forgotten(catalog: Catalog) -> None:
    write(catalog, lambda txn: txn.put_db(1, db()))
    with pytest.raises(UsageError, match="tombstone it first"):
        write(catalog, lambda txn: txn.delete_db(1))
    write(catalog, lambda txn: txn.put_db(1, db(status=DEAD)))
    write(catalog, lambda txn: txn.delete_db(1))
    assert list(catalog.scan(DB)) == []


# -- shards and chunks ------------------------------------------------------------------------------------


def test_shards_come_in_order_and_by_database(catalog: Catalog) -> None:
    for key in (WalStateKey(2, 0), WalStateKey(1, 256), WalStateKey(1, 1)):
        write(catalog, lambda txn, key=key: txn.put_wal_state(key, WalStateRecord(restart_epoch=key.shard)))  # type: ignore[misc]
    assert catalog.read(lambda view: [key for key, _ in view.wal_states(1)]) == [WalStateKey(1, 1), WalStateKey(1, 256)]
    write(catalog, lambda txn: txn.delete_wal_state(WalStateKey(1, 1)))
    assert catalog.read(lambda view: view.wal_state(1, 1)) is None


def test_chunks_are_put_changed_and_deleted(catalog: Catalog) -> None:
    put_chunks(catalog, 3)
    write(catalog, lambda txn: txn.upsert_chunk(ChunkKey(1, 2), chunk(2, size_bytes=7)))
    write(catalog, lambda txn: txn.delete_chunk(ChunkKey(1, 3)))
    assert [(key.chunk_id, record.size_bytes) for key, record in catalog.scan_chunks(1)] == [(1, 1000), (2, 7)]


def test_a_chunk_that_ends_before_it_begins_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="before it begins"):
        write(catalog, lambda txn: txn.upsert_chunk(ChunkKey(1, 1), chunk(sequence_min=2, sequence_max=1)))


def test_a_scan_pages_through_more_chunks_than_one_page_has(catalog: Catalog) -> None:
    put_chunks(catalog, 2500)
    assert [key.chunk_id for key, _ in catalog.scan_chunks(1)] == list(range(1, 2501))
    assert list(catalog.scan_chunks(2)) == []


def test_a_scan_holds_no_transaction_between_its_rows(catalog: Catalog) -> None:
    put_chunks(catalog, 2500)
    scan = catalog.scan(CHUNK)
    next(scan)
    assert catalog._env._readers._count == 0
    write(catalog, lambda txn: txn.delete_chunk(ChunkKey(1, 2400)))
    assert ChunkKey(1, 2400) not in dict(scan)


def test_a_transaction_scans_what_is_committed(catalog: Catalog) -> None:
    put_chunks(catalog, 1)
    txn = catalog.begin_write(batch_hint=2)
    txn.upsert_chunk(ChunkKey(1, 2), chunk(2))
    assert [key.chunk_id for key, _ in txn.scan_chunks(1)] == [1]


# -- jobs -------------------------------------------------------------------------------------------------


def test_a_job_id_of_zero_is_replaced_with_a_reserved_one(catalog: Catalog) -> None:
    first, second = enqueue(catalog, db_id=1), enqueue(catalog, db_id=2)
    assert 0 < first < second
    assert job_of(catalog, first).job_id == first


def test_an_id_that_is_taken_is_refused(catalog: Catalog) -> None:
    job_id = enqueue(catalog)
    with pytest.raises(ConflictError, match="already"):
        write(catalog, lambda txn: txn.enqueue_job(job(job_id, db_id=9)))


def test_a_second_pending_job_of_a_database_and_kind_is_refused_with_the_first_ones_id(catalog: Catalog) -> None:
    first = enqueue(catalog)
    with pytest.raises(UniqueJobAlreadyPending) as caught:
        enqueue(catalog)
    assert (caught.value.db_id, caught.value.kind, caught.value.job_id) == (1, JobKind.FLUSH, first)
    enqueue(catalog, JobKind.COMPACT)
    enqueue(catalog, db_id=2)


@pytest.mark.parametrize("free", [{"db_id": None}, {"unique": False}])
def test_any_number_of_jobs_without_a_gate_may_wait(catalog: Catalog, free: dict[str, Any]) -> None:
    assert len({enqueue(catalog, **free) for _ in range(3)}) == 3


def test_a_finished_job_can_be_removed_and_one_under_way_cannot(catalog: Catalog) -> None:
    job_id = enqueue(catalog)
    lease = acquire(catalog, job_id)
    with pytest.raises(ConflictError, match="let it finish"):
        write(catalog, lambda txn: txn.remove_job(job_id))
    write(catalog, lambda txn: txn.complete_job(job_id, lease))
    write(catalog, lambda txn: txn.remove_job(job_id))
    write(catalog, lambda txn: txn.remove_job(job_id))
    assert catalog.read(lambda view: view.job(job_id)) is None


def test_a_pending_job_that_is_removed_leaves_its_place(catalog: Catalog) -> None:
    write(catalog, lambda txn: txn.remove_job(enqueue(catalog)))
    enqueue(catalog)
    assert catalog.read(lambda view: len(list(view.live_jobs()))) == 1


def test_the_state_of_a_job_can_be_set_with_its_places_in_step(catalog: Catalog) -> None:
    job_id = enqueue(catalog)
    write(catalog, lambda txn: txn.update_job_state(job_id, Cancelled(finished_at_ms=1)))
    assert catalog.read(lambda view: (view.pending_job(1, JobKind.FLUSH), list(view.live_jobs()))) == (None, [])
    write(catalog, lambda txn: txn.update_job_state(job_id, Pending()))
    assert catalog.read(lambda view: view.pending_job(1, JobKind.FLUSH)) == job_id


def test_setting_a_job_in_flight_to_completed_opens_its_gate(catalog: Catalog) -> None:
    job_id = enqueue(catalog)
    acquire(catalog, job_id)
    write(catalog, lambda txn: txn.update_job_state(job_id, Completed(finished_at_ms=1)))
    assert catalog.read(lambda view: view.gate(1, JobKind.FLUSH).is_open)


def test_a_job_that_is_not_there_cannot_be_moved(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError, match="no job 9"):
        write(catalog, lambda txn: txn.cancel_job(9))


def test_due_jobs_come_by_priority_then_by_time_and_not_early(catalog: Catalog) -> None:
    rows = [(1, 100, 50), (2, 100, 10), (3, 5, 70), (4, 5, 200), (5, 300, 0)]
    for job_id, priority, not_before_ms in rows:
        record = job(job_id, unique=False, priority=priority, not_before_ms=not_before_ms)
        catalog.apply(PutJob(record))
    assert catalog.read(lambda view: [key.job_id for key, _ in view.due_jobs(100)]) == [3, 2, 1, 5]
    assert catalog.read(lambda view: view.next_due_ms()) == 0
    assert catalog.read(lambda view: [key.job_id for key, _ in view.due_jobs(0)]) == [5]


def test_indices_and_gates_can_be_mended_by_hand(catalog: Catalog) -> None:
    key = PendingJobKey(1, JobKind.FLUSH)
    catalog.apply(UpsertPendingIndex(key, 9))
    assert catalog.read(lambda view: view.pending_job(*key)) == 9
    catalog.apply(DeletePendingIndex(key))
    assert catalog.read(lambda view: view.pending_job(*key)) is None
    catalog.apply(PutGate(GateKey(1, 1), GateRecord(active_job_id=9)))
    assert not catalog.read(lambda view: view.gate(1, 1).is_open)


def test_the_flush_gate_shows_in_every_shard(catalog: Catalog) -> None:
    put_database(catalog, shards=3)
    catalog.apply(SetFlushGate(1, FlushGateState(active_job_id=4)))
    shown = catalog.read(lambda view: [record.flush_gate_state.active_job_id for _, record in view.wal_states(1)])
    assert shown == [4, 4, 4]


# -- metrics, generations, state --------------------------------------------------------------------------


def test_measurements_add_up(catalog: Catalog) -> None:
    key, bounds = MetricKey(0, 1), (1.0, 10.0)
    write(catalog, lambda txn: txn.merge_metric(key, MetricDelta.of(0.5, 20.0, bucket_bounds=bounds)))
    write(catalog, lambda txn: txn.merge_metric(key, MetricDelta.of(-3.0, 5.0, bucket_bounds=bounds)))
    found = catalog.read(lambda view: view.metric(*key))
    assert found is not None
    assert (found.sum, found.count, found.min, found.max, found.bucket_counts) == (22.5, 4, -3.0, 20.0, (2, 1, 1))


@pytest.mark.parametrize(
    "delta",
    [
        MetricDelta(sum=float("nan"), count=1, min=0, max=0),
        MetricDelta(sum=0, count=-1, min=0, max=0),
        MetricDelta(sum=0, count=1, min=0, max=0, bucket_counts=(1,)),
        MetricDelta(sum=0, count=1, min=0, max=0, bucket_counts=(0,) * 65),
    ],
)
def test_what_is_no_measurement_is_refused(catalog: Catalog, delta: MetricDelta) -> None:
    write(catalog, lambda txn: txn.merge_metric(MetricKey(0, 1), MetricDelta.of(1.0)))
    with pytest.raises(UsageError):
        write(catalog, lambda txn: txn.merge_metric(MetricKey(0, 1), delta))


def test_every_commit_raises_the_catalogs_generation_by_one(catalog: Catalog) -> None:
    before = catalog.generation()
    receipts = [write(catalog, lambda txn: txn.put_db(1, db())) for _ in range(3)]
    assert [receipt.generation for receipt in receipts] == [before + 1, before + 2, before + 3]
    assert catalog.read(lambda view: view.generation(Component.CATALOG)) == before + 3


def test_a_component_is_raised_by_what_is_asked_and_the_receipt_tells(catalog: Catalog) -> None:
    assert write(catalog, lambda txn: txn.bump_generation(Component.WAL, 5)).generations[Component.WAL] == 5
    receipt = catalog.apply(BumpGeneration(Component.WAL), BumpGeneration(Component.WAL, 2))
    assert receipt.generations[Component.WAL] == catalog.generation(Component.WAL) == 8


@pytest.mark.parametrize(("component", "increment"), [(Component.CATALOG, 1), (Component.WAL, 0), (Component.WAL, -1)])
def test_generations_never_go_back_and_the_catalogs_is_its_own(
    catalog: Catalog, component: int, increment: int
) -> None:
    with pytest.raises(UsageError, match="cannot be raised"):
        catalog.apply(BumpGeneration(component, increment))


def test_ids_are_consecutive_and_never_given_out_again(catalog: Catalog) -> None:
    first = catalog.reserve_ids(Component.CHUNK_IDS, 300)
    second = catalog.reserve_ids(Component.CHUNK_IDS, 300)
    assert list(first) == list(range(first[0], first[0] + 300))
    assert second[0] > first[-1]
    with pytest.raises(UsageError, match="gives no ids out"):
        catalog.reserve_ids(Component.WAL)
    with pytest.raises(UsageError, match="at a time"):
        catalog.reserve_ids(Component.DB_IDS, 0)


def test_a_row_about_the_catalog_itself_can_be_stored(catalog: Catalog) -> None:
    catalog.apply(PutRuntimeState("note", RuntimeRecord(pid=3)))
    assert catalog.read(lambda view: view.runtime_state("note")) == RuntimeRecord(pid=3)


# -- conditions -------------------------------------------------------------------------------------------


def test_a_generation_that_moved_fails_the_batch(catalog: Catalog) -> None:
    generation = catalog.sync()
    txn = catalog.begin_write()
    txn.require(RequireGeneration(Component.CATALOG, generation))
    txn.put_db(1, db())
    txn.commit()
    with pytest.raises(ConflictError, match=f"at generation {generation + 1}, not {generation}"):
        write(catalog, lambda txn: txn.require_generation(Component.CATALOG, generation))


def test_a_row_that_changed_fails_the_batch(catalog: Catalog) -> None:
    write(catalog, lambda txn: txn.require_record(DB, 1, None), lambda txn: txn.put_db(1, db()))
    with pytest.raises(ConflictError, match="has changed"):
        write(catalog, lambda txn: txn.require_record(DB, 1, None), lambda txn: txn.put_db(1, db("other")))
    write(catalog, lambda txn: txn.require_record(DB, 1, db()), lambda txn: txn.put_db(1, db("taps")))
    assert catalog.read(lambda view: view.db(1)) == db("taps")
