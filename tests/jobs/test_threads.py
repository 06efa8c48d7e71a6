"""The pool with its threads: they wake each other, and stop without leaving anything half done."""

import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import pytest

from latewood.catalog import Catalog
from latewood.errors import UniqueJobAlreadyPending
from latewood.jobs import Handlers, JobContext, JobManager, JobOptions, WorkerPool
from tests.jobs.kit import DB, DB_2, KIND, OPTIONS, OTHER, check_sound, make_databases, state, states
from tests.patience import SECONDS_MAX, wait_until

PATIENT: Final = JobOptions(poll_ms=SECONDS_MAX * 1_000)
"""Nobody looks by himself: a wake-up that is missing shows."""


@pytest.fixture
def manager(tmp_path: Path) -> JobManager:
    catalog = Catalog.open(tmp_path / "catalog.mdb", OPTIONS)
    make_databases(catalog)
    return JobManager(catalog, PATIENT)


def test_idle_workers_are_woken_by_a_new_job(manager: JobManager) -> None:
    done = threading.Event()
    handlers = Handlers()
    handlers.register(KIND, lambda _: done.set())
    with manager.catalog, WorkerPool(manager, handlers, workers=2):
        for _ in range(20):
            done.clear()
            manager.enqueue(KIND)
            assert done.wait(SECONDS_MAX)


def test_of_a_database_and_kind_only_one_job_runs_at_a_time(manager: JobManager) -> None:
    at_work: Counter[int | None] = Counter()
    most: Counter[int | None] = Counter()
    lock = threading.Lock()

    def handler(context: JobContext) -> None:
        with lock:
            at_work[context.job.db_id] += 1
            most[context.job.db_id] = max(most[context.job.db_id], at_work[context.job.db_id])
        context.heartbeat()
        with lock:
            at_work[context.job.db_id] -= 1

    handlers = Handlers()
    handlers.register(KIND, handler)
    with manager.catalog, WorkerPool(manager, handlers, workers=6) as pool:
        for _ in range(15):
            for db_id in (DB, DB_2):
                with suppress(UniqueJobAlreadyPending):
                    manager.enqueue(KIND, db_id=db_id)
        pool.wait_until_idle()
        assert most == {DB: 1, DB_2: 1}
        assert set(states(manager).values()) == {"Completed"}


def test_a_cancellation_reaches_a_handler_that_waits(manager: JobManager) -> None:
    begun = threading.Event()

    def handler(context: JobContext) -> None:
        begun.set()
        context.wait(SECONDS_MAX * 1_000)

    handlers = Handlers()
    handlers.register(KIND, handler)
    with manager.catalog, WorkerPool(manager, handlers, workers=1) as pool:
        job_id = manager.enqueue(KIND)
        assert begun.wait(SECONDS_MAX)
        manager.cancel(job_id)
        pool.wait_until_idle()
        assert state(manager.get(job_id)) == "Cancelled"


def test_a_stop_ends_what_heeds_it_and_waits_for_the_rest(manager: JobManager) -> None:
    begun, go_on = threading.Barrier(3), threading.Event()

    def heeds(context: JobContext) -> None:
        begun.wait(SECONDS_MAX)
        context.wait(SECONDS_MAX * 1_000)

    def ignores(_: JobContext) -> None:
        begun.wait(SECONDS_MAX)
        assert go_on.wait(SECONDS_MAX)

    handlers = Handlers()
    handlers.register(KIND, heeds)
    handlers.register(OTHER, ignores)
    with manager.catalog:
        heeding, ignoring = manager.enqueue(KIND, db_id=DB), manager.enqueue(OTHER, db_id=DB)
        pool = WorkerPool(manager, handlers, workers=2).start()
        begun.wait(SECONDS_MAX)
        stopper = threading.Thread(target=pool.stop)
        stopper.start()
        wait_until(lambda: state(manager.get(heeding)) == "Pending")
        assert state(manager.get(ignoring)) == "InFlight"
        go_on.set()
        stopper.join(SECONDS_MAX)
        assert states(manager) == {heeding: "Pending", ignoring: "Completed"}
        assert not [thread for thread in (*pool._threads, pool._keeping) if thread.is_alive()]
        check_sound(manager.catalog)


def test_a_stop_that_runs_out_of_patience_names_what_it_leaves(manager: JobManager) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def ignores(_: JobContext) -> None:
        begun.set()
        assert go_on.wait(SECONDS_MAX)

    handlers = Handlers()
    handlers.register(KIND, ignores)
    with manager.catalog:
        job_id = manager.enqueue(KIND)
        pool = WorkerPool(manager, handlers, workers=1).start()
        assert begun.wait(SECONDS_MAX)
        assert pool.stop(wait_ms=0) == [job_id]
        assert state(manager.get(job_id)) == "InFlight"
        go_on.set()
        wait_until(lambda: state(manager.get(job_id)) == "Completed")  # within its lease, so it counts
        pool._threads[0].join(SECONDS_MAX)


def test_a_pool_ends_with_its_catalog(manager: JobManager) -> None:
    pool = WorkerPool(manager, Handlers(), workers=2).start()
    manager.catalog.close()
    pool.wait_until_idle()
    for thread in (*pool._threads, pool._keeping):
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
    assert pool.stop() == []


def test_whoever_is_woken_sees_every_change_that_nobody_listened_for(
    manager: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is enqueued between the bell and the next listening would wait for the next look, however late."""
    order: list[str] = []
    pool = WorkerPool(manager, Handlers(), workers=1)
    monkeypatch.setattr(pool, "_listen", lambda: order.append("listen"))
    monkeypatch.setattr(pool.bell, "ring", lambda: order.append("ring"))
    pool._hear(cast("Any", None))
    assert order == ["listen", "ring"]
    manager.catalog.close()


def test_what_is_no_exception_does_not_cost_the_pool_a_worker(manager: JobManager) -> None:
    ran = threading.Event()
    handlers = Handlers()

    def dies(_: JobContext) -> None:
        raise GeneratorExit

    handlers.register(KIND, dies)
    handlers.register(OTHER, lambda _: ran.set())
    with manager.catalog, WorkerPool(manager, handlers, workers=1):
        broken = manager.enqueue(KIND)
        manager.enqueue(OTHER)
        assert ran.wait(SECONDS_MAX)
        assert state(manager.get(broken)) == "InFlight", "its lease runs out, as if the process had died"
