"""Everything that is done to jobs is one commit, and shows its lease."""

import threading
from typing import TYPE_CHECKING, Any

import pytest

from latewood.catalog import Catalog, Lease
from latewood.catalog.tables import Component, InFlight, JobError, JobKind, JobRecord, Pending
from latewood.errors import ConflictError, GateClosed, LeaseLost, NotFoundError, UniqueJobAlreadyPending, UsageError
from latewood.jobs import Backoff, JobManager
from latewood.testing import FakeClock
from tests.jobs.kit import DB, DB_2, KIND, OTHER, check_sound, manager_of, reborn, state, states

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR = JobError(at_ms=0, attempt=1, kind="OSError", message="no")


def claimed(manager: JobManager, worker: str = "a", kinds: tuple[int, ...] = (KIND, OTHER)) -> tuple[JobRecord, Lease]:
    job = manager.claim(worker, kinds)
    assert job is not None
    assert isinstance(job.state, InFlight)
    return job, Lease(worker, job.attempts)


def test_a_second_job_of_a_database_and_kind_is_refused_with_the_first_ones_id(manager: JobManager) -> None:
    first = manager.enqueue(KIND, db_id=DB)
    with pytest.raises(UniqueJobAlreadyPending) as caught:
        manager.enqueue(KIND, db_id=DB)
    assert caught.value.job_id == first
    manager.enqueue(KIND, db_id=DB_2)
    manager.enqueue(OTHER, db_id=DB)
    manager.enqueue(KIND, db_id=DB, unique=False)
    manager.enqueue(KIND)
    manager.enqueue(KIND)
    assert len(states(manager)) == 6


def test_a_refused_job_leaves_nothing_behind_not_even_the_rest_of_its_batch(
    manager: JobManager, catalog: Catalog
) -> None:
    manager.enqueue(KIND, db_id=DB)
    before = catalog.generation(Component.JOBS)
    txn = catalog.begin_write()
    manager.enqueue_in(txn, OTHER)
    manager.enqueue_in(txn, KIND, db_id=DB)
    with pytest.raises(UniqueJobAlreadyPending):
        txn.commit()
    assert len(states(manager)) == 1
    assert catalog.generation(Component.JOBS) == before


def test_a_job_for_a_database_that_is_not_there_is_refused(manager: JobManager) -> None:
    with pytest.raises(NotFoundError, match="no database 77"):
        manager.enqueue(KIND, db_id=77)


@pytest.mark.parametrize("fields", [{"payload": {"x": object()}}, {"delay_ms": -1}, {"priority": 1 << 16}])
def test_what_cannot_be_stored_is_refused(manager: JobManager, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        manager.enqueue(KIND, **fields)
    assert states(manager) == {}


def test_claiming_is_one_commit_of_state_gate_and_index(manager: JobManager, catalog: Catalog) -> None:
    job_id = manager.enqueue(KIND, db_id=DB)
    before = catalog.generation()
    claimed(manager)
    assert catalog.generation() == before + 1
    gate, waiting = catalog.read(lambda view: (view.gate(DB, KIND), view.pending_job(DB, KIND)))
    assert (gate.active_job_id, waiting) == (job_id, None)
    check_sound(catalog)


def test_finishing_is_one_commit_with_the_results(manager: JobManager, catalog: Catalog) -> None:
    manager.enqueue(KIND, db_id=DB)
    job, lease = claimed(manager)
    before = catalog.generation()
    txn = catalog.begin_write()
    manager.enqueue_in(txn, OTHER)
    manager.finish(job.job_id, lease, txn._taken())
    assert catalog.generation() == before + 1
    assert catalog.read(lambda view: view.gate(DB, KIND)).is_open
    assert sorted(states(manager).values()) == ["Completed", "Pending"]
    check_sound(catalog)


def test_the_most_urgent_job_is_claimed_first_then_the_oldest(manager: JobManager) -> None:
    usual, also, urgent = manager.enqueue(KIND), manager.enqueue(OTHER), manager.enqueue(KIND, priority=3)
    assert [claimed(manager)[0].job_id for _ in range(3)] == [urgent, usual, also]
    assert manager.claim("a", (KIND, OTHER)) is None


def test_only_kinds_that_are_handled_are_claimed(manager: JobManager) -> None:
    manager.enqueue(OTHER, priority=0)
    wanted = manager.enqueue(KIND)
    assert claimed(manager, kinds=(KIND,))[0].job_id == wanted
    assert manager.claim("a", (KIND,)) is None


def test_a_job_is_not_claimed_before_it_is_due(manager: JobManager, clock: FakeClock) -> None:
    manager.enqueue(KIND, delay_ms=5_000, priority=0)
    assert manager.claim("a", (KIND,)) is None
    clock.advance(ms=5_000)
    assert manager.claim("a", (KIND,)) is not None


def test_the_next_job_of_a_kind_waits_until_the_gate_opens(manager: JobManager) -> None:
    manager.enqueue(KIND, db_id=DB)
    first, lease = claimed(manager)
    second = manager.enqueue(KIND, db_id=DB)
    other_db = manager.enqueue(KIND, db_id=DB_2, priority=200)
    assert claimed(manager)[0].job_id == other_db
    assert manager.claim("a", (KIND,)) is None
    manager.finish(first.job_id, lease)
    assert claimed(manager)[0].job_id == second


def test_who_lost_the_lease_can_do_nothing_any_more(manager: JobManager, catalog: Catalog) -> None:
    manager.enqueue(KIND)
    job, stale = claimed(manager, "a")
    manager.break_off(manager.leases()[0])
    again, lease = claimed(manager, "b")
    assert again.job_id == job.job_id
    attempts: tuple[Callable[[], None], ...] = (
        lambda: manager.heartbeat(job.job_id, stale),
        lambda: manager.progress(job.job_id, stale, 1, 2),
        lambda: manager.finish(job.job_id, stale),
        lambda: manager.fail(job.job_id, stale, ERROR),
        lambda: manager.fail(job.job_id, stale, ERROR, for_good=True),
        lambda: manager.abort(job.job_id, stale),
        lambda: manager.release(job.job_id, stale, ERROR),
    )
    for attempt in attempts:
        with pytest.raises(LeaseLost):
            attempt()
    assert manager.get(job.job_id) == again
    manager.finish(job.job_id, lease)
    check_sound(catalog)


def test_the_same_worker_with_an_older_attempt_is_fenced_too(manager: JobManager) -> None:
    manager.enqueue(KIND)
    job, stale = claimed(manager, "a")
    manager.break_off(manager.leases()[0])
    claimed(manager, "a")
    with pytest.raises(LeaseLost):
        manager.finish(job.job_id, stale)


def test_a_failure_backs_off_and_the_last_one_is_final(manager: JobManager, clock: FakeClock) -> None:
    manager = manager_of(manager.catalog, clock, backoff=Backoff(first_ms=1_000, max_ms=1_500, jitter=0))
    job_id = manager.enqueue(KIND, attempts_max=3, db_id=DB)
    pauses = []
    for _ in range(2):
        job, lease = claimed(manager)
        manager.fail(job_id, lease, ERROR)
        pauses.append(manager.get(job_id).not_before_ms - manager.now_ms())
        assert manager.claim("a", (KIND,)) is None
        clock.advance(ms=pauses[-1])
    job, lease = claimed(manager)
    manager.fail(job_id, lease, ERROR)
    assert pauses == [1_000, 1_500]
    job = manager.get(job_id)
    assert (state(job), job.attempts, job.last_error) == ("FailedPermanent", 3, ERROR)
    assert manager.catalog.read(lambda view: view.gate(DB, KIND)).is_open


def test_a_job_that_failed_comes_back_with_new_attempts_and_leases_that_are_told_apart(
    manager: JobManager, catalog: Catalog
) -> None:
    job_id = manager.enqueue(KIND, db_id=DB, attempts_max=1)
    _, lease = claimed(manager)
    manager.fail(job_id, lease, ERROR)
    revived = manager.retry(job_id)
    assert (revived.state, revived.attempts, revived.attempts_max) == (Pending(), 1, 6)
    with pytest.raises(ConflictError):
        manager.retry(job_id)
    with pytest.raises(UniqueJobAlreadyPending):
        manager.enqueue(KIND, db_id=DB)
    check_sound(catalog)


def test_a_pending_job_is_cancelled_at_once_and_one_at_work_is_asked(manager: JobManager, catalog: Catalog) -> None:
    waiting = manager.enqueue(KIND, db_id=DB)
    assert state(manager.cancel(waiting)) == "Cancelled"
    working = manager.enqueue(KIND, db_id=DB)
    _, lease = claimed(manager)
    assert manager.cancel(working).cancel_requested
    manager.abort(working, lease)
    assert state(manager.get(working)) == "Cancelled"
    assert state(manager.cancel(working)) == "Cancelled"
    with pytest.raises(NotFoundError):
        manager.cancel(99_999)
    check_sound(catalog)


def test_a_job_that_is_given_back_loses_no_attempt(manager: JobManager, catalog: Catalog) -> None:
    job_id = manager.enqueue(KIND, db_id=DB, attempts_max=1)
    leases = set()
    for _ in range(3):
        _, lease = claimed(manager)
        leases.add(lease)
        manager.release(job_id, lease, ERROR)
        assert manager.get(job_id).state == Pending()
        assert catalog.read(lambda view: view.gate(DB, KIND)).is_open
    assert len(leases) == 3, "leases must be told apart"
    _, lease = claimed(manager)
    manager.fail(job_id, lease, ERROR)
    assert state(manager.get(job_id)) == "FailedPermanent"
    check_sound(catalog)


def test_a_job_that_is_given_back_gives_way_to_one_in_its_place(manager: JobManager, catalog: Catalog) -> None:
    first = manager.enqueue(KIND, db_id=DB)
    _, lease = claimed(manager)
    second = manager.enqueue(KIND, db_id=DB)
    manager.release(first, lease, ERROR)
    assert states(manager) == {first: "Cancelled", second: "Pending"}
    check_sound(catalog)


def test_a_job_that_was_cancelled_is_not_given_back_but_ended(manager: JobManager) -> None:
    job_id = manager.enqueue(KIND)
    _, lease = claimed(manager)
    manager.cancel(job_id)
    manager.release(job_id, lease, ERROR)
    assert state(manager.get(job_id)) == "Cancelled"


def test_a_crash_mid_flight_leaves_the_gate_to_its_repair_alone(catalog: Catalog, clock: FakeClock) -> None:
    manager = manager_of(catalog, clock)
    broken = manager.enqueue(KIND, db_id=DB)
    claimed(manager)
    waiting = manager.enqueue(KIND, db_id=DB)
    catalog = reborn(catalog, clock)
    try:
        manager = manager_of(catalog, clock)
        assert not catalog.read(lambda view: view.gate(DB, KIND)).is_open
        with pytest.raises(GateClosed):
            manager._acquire(waiting, "a")
        repair, lease = claimed(manager, kinds=(KIND,))
        assert (repair.kind, repair.repairs_job_id) == (JobKind.REPAIR, broken)
        assert manager.claim("b", (KIND,)) is None
        with pytest.raises(UsageError):
            manager.cancel(repair.job_id)
        manager.finish(repair.job_id, lease)
        assert catalog.read(lambda view: view.gate(DB, KIND)).is_open
        assert states(manager) == {broken: "Cancelled", waiting: "Pending", repair.job_id: "Completed"}
        check_sound(catalog)
    finally:
        catalog.close()


def test_a_repair_that_failed_keeps_the_gate_closed_until_it_is_retried(manager: JobManager, catalog: Catalog) -> None:
    manager.enqueue(KIND, db_id=DB)
    claimed(manager)
    manager.break_off(manager.leases()[0])
    repair, lease = claimed(manager)
    manager.fail(repair.job_id, lease, ERROR, for_good=True)
    assert not catalog.read(lambda view: view.gate(DB, KIND)).is_open
    manager.retry(repair.job_id)
    again, lease = claimed(manager)
    assert again.job_id == repair.job_id
    manager.finish(repair.job_id, lease)
    assert catalog.read(lambda view: view.gate(DB, KIND)).is_open
    check_sound(catalog)


def test_a_retry_does_not_wait_for_a_clock_that_was_set_back(manager: JobManager, clock: FakeClock) -> None:
    job_id = manager.enqueue(KIND)
    chosen = manager.enqueue(OTHER, delay_ms=1_000)
    _, lease = claimed(manager)
    manager.fail(job_id, lease, ERROR)
    pause_ms = manager.get(job_id).not_before_ms - manager.now_ms()
    clock.advance(seconds=-86_400)
    assert manager.redate() == 1
    clock.advance(ms=pause_ms)
    assert claimed(manager)[0].job_id == job_id
    assert manager.get(chosen).not_before_ms > manager.now_ms() + 80_000_000, "a time that was chosen stays"
    assert manager.redate() == 0


def test_many_threads_claim_each_job_once(manager: JobManager) -> None:
    job_ids = {manager.enqueue(KIND) for _ in range(40)}
    found: list[int] = []

    def work(name: str) -> None:
        own = JobManager(manager.catalog, clock=manager.clock)  # Each with a lock of its own: only the catalog decides.
        while job := own.claim(name, (KIND,)):
            found.append(job.job_id)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(job_ids)
