"""The pool, one step at a time: a fake clock, no threads, no sleep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from latewood.catalog import Catalog
from latewood.catalog.tables import Component, JobKind
from latewood.errors import (
    ClosedError,
    CorruptError,
    DiskFull,
    JobCancelled,
    JobFailed,
    JobStopped,
    LeaseLost,
    UnavailableError,
    UsageError,
)
from latewood.jobs import CATALOG_CHECK, Handlers, JobContext, JobManager, Outcome, Result, WorkerPool
from latewood.jobs.lease import LeaseState
from latewood.testing import FakeClock
from tests.jobs.kit import DB, KIND, OTHER, Killed, check_sound, manager_of, pool_of, reborn, state, states


def raising(error: BaseException) -> Callable[[JobContext], Result]:
    def handler(_: JobContext) -> Result:
        raise error

    return handler


def nothing(_: JobContext) -> Result:
    return None


def silence(pool: WorkerPool, clock: FakeClock) -> None:
    """Let a whole lease go by under the eyes of the keeper."""
    for _ in range(8):
        pool.tick()
        clock.advance(seconds=5)
    pool.tick()


def test_a_handler_gets_what_was_enqueued_and_its_job_is_completed(manager: JobManager) -> None:
    seen = []
    pool = pool_of(manager, custom=lambda context: seen.append(context.payload))
    job_id = manager.enqueue(KIND, {"path": "a", "n": [1, 2]})
    assert pool.run_next() is Outcome.COMPLETED
    assert seen == [{"path": "a", "n": [1, 2]}]
    assert state(manager.get(job_id)) == "Completed"
    assert pool.run_next() is None


def test_what_a_handler_returns_is_committed_with_the_completion(manager: JobManager, catalog: Catalog) -> None:
    def handler(context: JobContext) -> Result:
        txn = context.begin_write()
        manager.enqueue_in(txn, OTHER)
        return txn._taken()

    manager.enqueue(KIND, db_id=DB)
    before = catalog.generation()
    pool_of(manager, custom=handler).run_next()
    assert catalog.generation() == before + 2, "one claim, one completion"
    assert sorted(states(manager).values()) == ["Completed", "Pending"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (OSError("disk"), Outcome.RETRIED),
        (UnavailableError("later"), Outcome.RETRIED),
        (SystemExit(3), Outcome.RETRIED),
        (JobCancelled("nobody did"), Outcome.RETRIED),
        (JobStopped("nobody does"), Outcome.RETRIED),
        (JobFailed("never"), Outcome.FAILED),
        (UsageError("never"), Outcome.FAILED),
        (CorruptError("bad", Path("x"), 0), Outcome.FAILED),
    ],
)
def test_errors_are_sorted_by_whether_another_attempt_would_help(
    manager: JobManager, error: BaseException, outcome: Outcome
) -> None:
    job_id = manager.enqueue(KIND, db_id=DB)
    assert pool_of(manager, custom=raising(error)).run_next() is outcome
    job = manager.get(job_id)
    assert state(job) == ("FailedPermanent" if outcome is Outcome.FAILED else "Pending")
    assert job.last_error is not None
    assert job.last_error.kind == type(error).__name__
    assert "Traceback" in job.last_error.traceback


def test_an_error_snapshot_is_bounded_and_can_always_be_stored(manager: JobManager) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    job_id = manager.enqueue(KIND, attempts_max=1)
    pool_of(manager, custom=raising(OSError("\udcff" + "x" * 100_000))).run_next()
    error = manager.get(job_id).last_error
    assert error is not None
    assert error.message.startswith("\\udcffxx")
    assert len(error.message) == len(error.traceback) == 4096
    odd_id = manager.enqueue(KIND, attempts_max=1)
    pool_of(manager, custom=raising(Odd())).run_next()
    assert state(manager.get(odd_id)) == "FailedPermanent"


def test_attempts_are_bounded_and_backed_off(manager: JobManager, clock: FakeClock) -> None:
    runs: list[int] = []

    def handler(context: JobContext) -> None:
        runs.append(context.lease.attempt)
        raise OSError

    job_id = manager.enqueue(KIND, attempts_max=3)
    pool = pool_of(manager, custom=handler)
    for _ in range(10):
        pool.run_next()
        assert pool.run_next() is None
        clock.advance(seconds=300)
    assert runs == [1, 2, 3]
    assert state(manager.get(job_id)) == "FailedPermanent"


def test_a_result_that_cannot_be_applied_fails_the_attempt(manager: JobManager) -> None:
    def handler(context: JobContext) -> Result:
        txn = context.begin_write()
        txn.bump_generation(Component.CATALOG)
        return txn._taken()

    job_id = manager.enqueue(KIND, db_id=DB)
    assert pool_of(manager, custom=handler).run_next() is Outcome.FAILED
    assert state(manager.get(job_id)) == "FailedPermanent"


def test_cancelling_reaches_the_handler_and_ends_the_job(manager: JobManager, catalog: Catalog) -> None:
    def handler(context: JobContext) -> None:
        context.check()
        manager.cancel(context.job.job_id)
        flags = [context.cancelled]
        pool.tick()
        assert [*flags, context.cancelled] == [False, True]
        context.progress(1, 2)
        raise AssertionError("progress must raise")

    pool = pool_of(manager, custom=handler)
    job_id = manager.enqueue(KIND, db_id=DB)
    assert pool.run_next() is Outcome.CANCELLED
    assert state(manager.get(job_id)) == "Cancelled"
    assert catalog.read(lambda view: view.gate(DB, KIND)).is_open
    check_sound(catalog)


def test_a_handler_that_finishes_all_the_same_has_completed(manager: JobManager) -> None:
    def handler(context: JobContext) -> None:
        manager.cancel(context.job.job_id)
        pool.tick()

    pool = pool_of(manager, custom=handler)
    job_id = manager.enqueue(KIND)
    assert pool.run_next() is Outcome.COMPLETED
    assert not manager.get(job_id).cancel_requested


def test_a_stop_gives_the_job_back_without_costing_an_attempt(manager: JobManager, catalog: Catalog) -> None:
    def handler(context: JobContext) -> None:
        assert pool.stop(wait_ms=0) == [context.job.job_id]
        context.wait(60_000)
        raise AssertionError("wait must raise")

    pool = pool_of(manager, custom=handler)
    job_id = manager.enqueue(KIND, db_id=DB, attempts_max=1)
    assert pool.run_next() is Outcome.RELEASED
    assert state(manager.get(job_id)) == "Pending"
    assert pool.run_next() is None, "a pool that stops claims nothing"
    assert pool_of(manager, custom=nothing).run_next() is Outcome.COMPLETED
    check_sound(catalog)


def test_heartbeats_keep_a_long_job(manager: JobManager, clock: FakeClock) -> None:
    other = pool_of(manager, custom=nothing)

    def handler(context: JobContext) -> None:
        for _ in range(100):
            clock.advance(seconds=5)
            pool.tick()
            other.tick()
        assert not context.lost

    pool = pool_of(manager, custom=handler)
    manager.enqueue(KIND, db_id=DB)
    assert pool.run_next() is Outcome.COMPLETED


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
def test_no_jump_of_the_clock_takes_a_job_from_a_worker_that_lives(
    manager: JobManager, clock: FakeClock, jump_s: int
) -> None:
    other = pool_of(manager, custom=nothing)
    other.tick()

    def handler(context: JobContext) -> None:
        for _ in range(10):
            clock.advance(seconds=jump_s + 5)
            other.tick()  # The others look first, when the lease seems long over.
            pool.tick()
            clock.advance(seconds=5)
        context.check()

    pool = pool_of(manager, custom=handler)
    manager.enqueue(KIND, db_id=DB)
    assert pool.run_next() is Outcome.COMPLETED


@pytest.mark.parametrize("jump_s", [0, 86_400, -86_400])
def test_a_silent_worker_loses_its_job_whatever_the_clock_does(
    manager: JobManager, clock: FakeClock, catalog: Catalog, jump_s: int
) -> None:
    other = pool_of(manager, custom=nothing)
    claims: list[Outcome | None] = []

    def handler(context: JobContext) -> None:
        if context.lease.attempt == 1:
            other.tick()
            clock.advance(seconds=jump_s)
            silence(other, clock)
            claims.append(other.run_next())
            txn = context.begin_write()
            txn.bump_generation(Component.WAL)
            with pytest.raises(LeaseLost):
                context.commit(txn)
            assert context.lost

    pool = pool_of(manager, custom=handler)
    job_id = manager.enqueue(KIND)
    assert pool.run_next() is Outcome.LOST
    assert claims == [Outcome.COMPLETED]
    assert state(manager.get(job_id)) == "Completed"
    assert catalog.generation(Component.WAL) == 0, "what the loser wanted to commit must not be there"
    check_sound(catalog)


def test_a_handler_that_hangs_is_given_up(manager: JobManager, clock: FakeClock) -> None:
    manager = manager_of(manager.catalog, clock, run_ms_max=60_000)

    def handler(context: JobContext) -> None:
        for _ in range(40):
            pool.tick()
            clock.advance(seconds=5)
        assert state(manager.get(context.job.job_id)) == "Pending"
        context.heartbeat()

    pool = pool_of(manager, custom=handler)
    manager.enqueue(KIND)
    assert pool.run_next() is Outcome.LOST


def test_progress_is_durable_now_and_then_and_at_the_end(
    manager: JobManager, catalog: Catalog, clock: FakeClock
) -> None:
    shown = []

    def handler(context: JobContext) -> None:
        before = catalog.generation()
        for done in range(101):
            context.progress(done, 100)
            job = manager.get(context.job.job_id)
            shown.append((job.progress_done, job.progress_total))
            clock.advance(ms=50)
        assert catalog.generation() - before <= 13

    pool = pool_of(manager, custom=handler)
    manager.enqueue(KIND)
    assert pool.run_next() is Outcome.COMPLETED
    assert shown[0] == (0, 100)
    assert shown[-1] == (100, 100)
    assert 5 < len(set(shown)) < 15


@pytest.mark.parametrize("gated", [True, False])
def test_a_killed_worker_leaves_a_job_that_another_process_finishes(
    catalog: Catalog, clock: FakeClock, *, gated: bool
) -> None:
    manager = manager_of(catalog, clock)
    job_id = manager.enqueue(KIND, db_id=DB if gated else None)
    with pytest.raises(Killed):
        pool_of(manager, custom=raising(Killed())).run_next()
    catalog = reborn(catalog, clock)
    try:
        manager = manager_of(catalog, clock)
        pool = pool_of(manager, custom=nothing)
        outcomes = [pool.run_next() for _ in range(3)]
        assert outcomes == [Outcome.COMPLETED, Outcome.COMPLETED if gated else None, None]
        assert state(manager.get(job_id)) == "Completed"
        check_sound(catalog)
    finally:
        catalog.close()


def test_a_repair_runs_the_repair_of_the_kind_and_then_the_job_again(manager: JobManager, clock: FakeClock) -> None:
    ran: list[tuple[str, Any]] = []
    handlers = Handlers()
    handlers.register(
        KIND,
        lambda context: ran.append(("run", context.payload)),
        repair=lambda context: ran.append(("repair", context.payload)),
    )
    pool = WorkerPool(manager, handlers)
    job_id = manager.enqueue(KIND, {"x": 1}, db_id=DB)
    assert manager.claim("dead", (KIND,)) is not None
    silence(pool, clock)
    assert [pool.run_next() for _ in range(3)] == [Outcome.COMPLETED, Outcome.COMPLETED, None]
    assert ran == [("repair", {"job_id": job_id, "kind": KIND, "payload": {"x": 1}}), ("run", {"x": 1})]


def test_a_job_that_kills_every_worker_is_given_up(catalog: Catalog, clock: FakeClock) -> None:
    manager = manager_of(catalog, clock)
    job_id = manager.enqueue(KIND, db_id=DB, attempts_max=3)
    deaths = 0
    for _ in range(20):
        try:
            if pool_of(manager, custom=raising(Killed())).run_next() is None:
                break
        except Killed:
            deaths += 1
            catalog = reborn(catalog, clock)
            manager = manager_of(catalog, clock)
    try:
        assert deaths == 3
        assert state(manager.get(job_id)) == "FailedPermanent"
        assert catalog.read(lambda view: view.gate(DB, KIND)).is_open
        check_sound(catalog)
    finally:
        catalog.close()


def test_an_outcome_waits_for_a_disk_that_is_full_for_a_moment(manager: JobManager) -> None:
    job_id = manager.enqueue(KIND)
    finish, tries = manager.finish, []

    def full_at_first(*arguments: Any) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise DiskFull
        finish(*arguments)

    pool = pool_of(manager, custom=nothing)
    with mock.patch.object(manager, "finish", full_at_first), mock.patch.object(pool.bell, "wait"):
        assert pool.run_next() is Outcome.COMPLETED
    assert state(manager.get(job_id)) == "Completed"


def test_an_outcome_that_cannot_be_noted_leaves_the_lease_to_run_out(manager: JobManager, clock: FakeClock) -> None:
    job_id = manager.enqueue(KIND)
    pool = pool_of(manager, custom=nothing)
    with mock.patch.object(manager, "finish", side_effect=DiskFull), mock.patch.object(pool.bell, "wait"):
        assert pool.run_next() is Outcome.LEFT
    assert state(manager.get(job_id)) == "InFlight"
    silence(pool, clock)
    assert state(manager.get(job_id)) == "Pending"


def test_a_break_off_that_comes_too_late_changes_nothing(manager: JobManager) -> None:
    job_id = manager.enqueue(KIND)
    pool = pool_of(manager, custom=nothing)
    lease = LeaseState(job_id, 1, 0, 1)
    pool.run_next()
    with mock.patch.object(pool._keeper._watch, "look", return_value=[lease]):
        pool.tick()
    assert state(manager.get(job_id)) == "Completed"


def test_a_closed_catalog_is_told(manager: JobManager, catalog: Catalog) -> None:
    pool = pool_of(manager, custom=nothing)
    catalog.close()
    with pytest.raises(ClosedError):
        pool.run_next()


def test_a_kind_has_one_handler_and_repairs_have_none_of_their_own() -> None:
    handlers = Handlers()
    handlers.handler(KIND)(nothing)
    for kind in (KIND, JobKind.REPAIR):
        with pytest.raises(UsageError):
            handlers.register(kind, nothing)
    more = Handlers()
    more.register(OTHER, nothing)
    handlers.update(more)
    assert set(handlers) == {KIND, OTHER}
    assert CATALOG_CHECK not in handlers
    with pytest.raises(UsageError):
        handlers.update(more)


@pytest.mark.parametrize("workers", [0, 257])
def test_a_pool_has_a_sensible_number_of_workers(manager: JobManager, workers: int) -> None:
    with pytest.raises(UsageError):
        WorkerPool(manager, Handlers(), workers=workers)
