"""Recovery: what the session before left is put right, once."""

import os
import sys

import pytest

from latewood.catalog import Catalog, RecoveryReport, recover
from latewood.catalog.ops import PutGate, PutJob, RemoveJob
from latewood.catalog.rows import RowReader
from latewood.catalog.tables import (
    CHUNK,
    AwaitingRepair,
    Cancelled,
    ChunkKey,
    Component,
    DbTombstoned,
    Evicted,
    FailedPermanent,
    GateKey,
    GateRecord,
    InFlight,
    JobKind,
    LocalAndRemote,
    MetricDelta,
    MetricKey,
    Pending,
    RemoteArchived,
    RemoteObject,
)
from latewood.errors import CatalogCorrupted
from tests.catalog.desk import Desk, acquire, chunk, db, enqueue, job_of, put_chunks, put_database, run_python, write


def recovered(desk: Desk, catalog: Catalog) -> RecoveryReport:
    return recover(catalog, desk.clock)


def test_a_new_catalog_has_nothing_to_recover(desk: Desk) -> None:
    report = recovered(desk, desk.open())
    assert report.was_clean
    assert (report.databases, report.shards, report.chunks, report.reenqueued) == ({}, {}, {}, 0)


def test_the_report_tells_of_everything(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog, shards=2)
    put_chunks(catalog, 3)
    where = RemoteObject(tier="s3", key="k")
    write(
        catalog,
        lambda txn: txn.upsert_chunk(ChunkKey(1, 4), chunk(4, residency=RemoteArchived(object=where, verified=True))),
        lambda txn: txn.upsert_chunk(ChunkKey(1, 5), chunk(5, residency=LocalAndRemote(object=where, verified=False))),
        lambda txn: txn.upsert_chunk(ChunkKey(1, 6), chunk(6, residency=Evicted())),
        lambda txn: txn.merge_metric(MetricKey(0, 1), MetricDelta.of(1.0)),
        lambda txn: txn.bump_generation(Component.WAL, 7),
    )
    enqueue(catalog, JobKind.COMPACT)
    catalog.register_waiter(Component.CATALOG, 10_000)
    catalog.sync()
    write(catalog, lambda txn: txn.bump_generation(Component.WAL))
    report = recovered(desk, catalog)
    assert report.databases[1].name == "clicks"
    assert len(report.shards) == 2
    assert report.chunks[1].by_residency == {"Local": 3, "RemoteArchived": 1, "LocalAndRemote": 1, "Evicted": 1}
    assert (report.chunks[1].size_bytes, report.chunks[1].unverified) == (5000, 1)
    assert (report.reenqueued, report.metrics, report.stale_waiters) == (1, 1, 1)
    assert report.generations[Component.WAL] == 8
    assert "1 waiting" in report.summary


def test_a_job_that_was_in_flight_leaves_its_gate_closed_and_gets_a_repair(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    acquire(catalog, job_id := enqueue(catalog))
    report = recovered(desk, catalog)
    (compensation,) = report.compensated
    assert compensation.job_id == job_id
    assert compensation.repair_job_id is not None
    assert isinstance(job_of(catalog, job_id).state, AwaitingRepair)
    assert job_of(catalog, compensation.repair_job_id).state == Pending()
    gate = report.closed_gates[GateKey(1, JobKind.FLUSH)]
    assert (gate.active_job_id, gate.repair_job_id) == (job_id, compensation.repair_job_id)
    assert [record.flush_gate_state.active_job_id for record in report.shards.values()] == [job_id, job_id]


def test_running_it_again_changes_nothing(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    acquire(catalog, enqueue(catalog))
    acquire(catalog, enqueue(catalog, db_id=None))
    recovered(desk, catalog)
    jobs, generation = list(catalog.scan_jobs()), catalog.sync()
    report = recovered(desk, catalog)
    assert (report.compensated, report.dropped, report.mended_gates) == ([], [], [])
    assert (list(catalog.scan_jobs()), catalog.sync()) == (jobs, generation)


def test_a_job_without_a_gate_just_waits_again_or_fails_at_its_last_attempt(desk: Desk) -> None:
    catalog = desk.open()
    acquire(catalog, again := enqueue(catalog, db_id=None))
    acquire(catalog, over := enqueue(catalog, db_id=None, attempts_max=1))
    report = recovered(desk, catalog)
    assert [(c.job_id, c.repair_job_id) for c in report.compensated] == [(again, None), (over, None)]
    assert job_of(catalog, again).state == Pending()
    assert isinstance(job_of(catalog, over).state, FailedPermanent)


def test_a_worker_that_lives_keeps_its_job_until_the_lease_ends(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    acquire(catalog, job_id := enqueue(catalog), "spark-1")
    report = recover(catalog, desk.clock, is_alive=lambda worker: worker == "spark-1")
    assert (report.resumed, report.compensated) == ([job_id], [])
    assert isinstance(job_of(catalog, job_id).state, InFlight)
    desk.clock.advance(seconds=1)
    report = recover(catalog, desk.clock, is_alive=lambda worker: worker == "spark-1")
    assert [c.job_id for c in report.compensated] == [job_id]


def test_jobs_of_a_database_that_is_gone_are_dropped_and_its_gates_opened(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    acquire(catalog, working := enqueue(catalog))
    waiting = enqueue(catalog)
    orphan = enqueue(catalog, db_id=9)
    write(catalog, lambda txn: txn.put_db(1, db(status=DbTombstoned(tombstoned_at_ms=1))))
    report = recovered(desk, catalog)
    assert sorted(report.dropped) == [working, waiting, orphan]
    assert all(isinstance(job_of(catalog, job_id).state, Cancelled) for job_id in report.dropped)
    assert report.closed_gates == {}


def test_a_gate_whose_job_is_not_under_way_is_opened(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    catalog.apply(PutGate(GateKey(1, JobKind.FLUSH), GateRecord(active_job_id=77, closed_since_ms=1)))
    report = recovered(desk, catalog)
    assert report.mended_gates == [GateKey(1, JobKind.FLUSH)]
    assert report.closed_gates == {}


def test_a_job_that_awaits_a_repair_that_is_lost_gets_another(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    acquire(catalog, job_id := enqueue(catalog))
    repair_id = recovered(desk, catalog).compensated[0].repair_job_id
    assert repair_id is not None
    lost = job_of(catalog, repair_id)
    write(catalog, lambda txn: txn.update_job_state(repair_id, Cancelled(finished_at_ms=1)))
    catalog.apply(RemoveJob(repair_id))
    report = recovered(desk, catalog)
    assert report.mended_gates == [GateKey(1, JobKind.FLUSH)]
    state = job_of(catalog, job_id).state
    assert isinstance(state, AwaitingRepair)
    assert state.repair_job_id != repair_id
    assert job_of(catalog, state.repair_job_id).payload == lost.payload


def test_a_process_that_died_in_flight_is_recovered_from(desk: Desk) -> None:
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[2])\n"
        "from latewood.catalog import Catalog\n"
        "from tests.catalog.desk import acquire, enqueue, put_database\n"
        "c = Catalog.open(sys.argv[1]); put_database(c); acquire(c, enqueue(c)); os._exit(9)\n"
    )
    assert run_python(script, desk.path, os.getcwd()).returncode == 9, sys.path  # noqa: PTH109
    catalog = desk.open()
    report = recovered(desk, catalog)
    assert not report.was_clean
    assert len(report.compensated) == len(report.closed_gates) == 1


def test_a_damaged_page_that_hides_rows_stops_recovery(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = desk.open()
    put_chunks(catalog, 3)
    count = RowReader.count
    monkeypatch.setattr(RowReader, "count", lambda rows, table: count(rows, table) + (table is CHUNK))
    with pytest.raises(CatalogCorrupted, match="3 rows, but LMDB counted 4"):
        recovered(desk, catalog)


def test_many_jobs_are_settled_in_batches(desk: Desk) -> None:
    catalog = desk.open()
    txn = catalog.begin_write()
    ids = catalog.reserve_ids(Component.JOB_IDS, 600)
    for job_id in ids:
        state = InFlight(worker_id="w", leased_at_ms=1, expires_at_ms=2, heartbeat_at_ms=1)
        from tests.catalog.desk import job  # noqa: PLC0415 - shadows nothing here

        txn.add(PutJob(job(job_id, db_id=None, state=state, attempts=1)))
    txn.commit()
    before = catalog.generation()
    report = recovered(desk, catalog)
    assert len(report.compensated) == report.reenqueued == 600
    assert catalog.generation() - before < 20


@pytest.mark.parametrize("jump_s", [-100_000, 100_000])
def test_a_clock_that_jumped_makes_no_job_be_lost(desk: Desk, jump_s: int) -> None:
    catalog = desk.open()
    put_database(catalog)
    acquire(catalog, job_id := enqueue(catalog))
    desk.clock.advance(seconds=jump_s)
    (compensation,) = recovered(desk, catalog).compensated
    assert compensation.repair_job_id is not None
    lease = acquire(catalog, compensation.repair_job_id)
    write(catalog, lambda txn: txn.complete_job(compensation.repair_job_id, lease))  # type: ignore[arg-type]
    assert job_of(catalog, job_id).state == Pending()
