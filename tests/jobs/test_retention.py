"""Finished jobs are kept for a while, and not too many of them; what somebody still needs stays."""

from itertools import pairwise
from typing import Any

import pytest

from latewood.catalog import Catalog, CheckReport, Lease, Problem
from latewood.catalog.tables import CHANGE_LOG, JobError
from latewood.errors import JobFailed, UsageError
from latewood.jobs import (
    CATALOG_CHECK,
    CATALOG_PRUNE,
    JobManager,
    JobOptions,
    JobRetention,
    Outcome,
    WorkerPool,
    kind_name,
    kind_of,
    prune,
    upkeep_handlers,
)
from latewood.jobs.handlers import upkeep
from latewood.testing import FakeClock
from tests.jobs.kit import DB, KIND, check_sound, states

ERROR = JobError(at_ms=0, attempt=1, kind="OSError", message="no")
ALL = JobRetention(finished_max=0)


def finish(manager: JobManager, count: int = 1, *, badly: bool = False) -> list[int]:
    found = []
    for _ in range(count):
        found.append(manager.enqueue(KIND))
        job = manager.claim("w", (KIND,))
        assert job is not None
        if badly:
            manager.fail(job.job_id, Lease("w", job.attempts), ERROR, for_good=True)
        else:
            manager.finish(job.job_id, Lease("w", job.attempts))
    return found


def test_the_newest_are_kept_and_what_is_not_finished_always(manager: JobManager, catalog: Catalog) -> None:
    waiting = manager.enqueue(KIND, delay_ms=10_000)
    old = finish(manager, 3)
    new = finish(manager, 2)
    pruned = prune(catalog, JobRetention(finished_max=2), manager.now_ms())
    assert (pruned.jobs, pruned.kept) == (3, 2)
    assert states(manager).keys() == {waiting, *new}
    assert not states(manager).keys() & set(old)
    assert prune(catalog, JobRetention(finished_max=2), manager.now_ms()).jobs == 0
    check_sound(catalog)


def test_failures_are_kept_for_longer(manager: JobManager, catalog: Catalog, clock: FakeClock) -> None:
    finish(manager)
    (failed,) = finish(manager, badly=True)
    cancelled = manager.enqueue(KIND)
    manager.cancel(cancelled)
    clock.advance(seconds=8 * 86_400)
    assert prune(catalog, JobRetention(), manager.now_ms()).jobs == 2
    assert states(manager) == {failed: "FailedPermanent"}
    clock.advance(seconds=23 * 86_400)
    assert prune(catalog, JobRetention(), manager.now_ms()).jobs == 1


def test_a_clock_that_was_set_back_forgets_nothing(manager: JobManager, catalog: Catalog, clock: FakeClock) -> None:
    finish(manager)
    clock.advance(seconds=-1_000_000_000)
    assert prune(catalog, JobRetention(), manager.now_ms()).jobs == 0


def test_a_repair_that_failed_is_kept_for_its_gate(manager: JobManager, catalog: Catalog) -> None:
    broken = manager.enqueue(KIND, db_id=DB)
    manager.claim("w", (KIND,))
    manager.break_off(manager.leases()[0])
    repair = manager.claim("w", (KIND,))
    assert repair is not None
    manager.fail(repair.job_id, Lease("w", 1), ERROR, for_good=True)
    assert prune(catalog, ALL, manager.now_ms()).jobs == 0
    assert states(manager) == {broken: "AwaitingRepair", repair.job_id: "FailedPermanent"}


@pytest.mark.slow
def test_silent_cursors_go_only_when_asked_and_changes_go_with_them(
    manager: JobManager, catalog: Catalog, clock: FakeClock
) -> None:
    catalog.feed.create("silent")
    clock.advance(seconds=100)
    catalog.feed.create("fresh")
    finish(manager, 700)
    assert prune(catalog, JobRetention(), manager.now_ms()).cursors == []
    pruned = prune(catalog, JobRetention(cursors_silent_ms=50_000), manager.now_ms())
    assert pruned.cursors == ["silent"]
    assert catalog.read(lambda view: view.count(CHANGE_LOG)) > 0, "the other still needs them"
    catalog.feed.remove("fresh")
    assert prune(catalog, JobRetention(), manager.now_ms()).changes > 1_000
    assert catalog.read(lambda view: view.count(CHANGE_LOG)) == 0


def test_the_jobs_that_come_along_check_and_prune(manager: JobManager) -> None:
    finish(manager, 5)
    pool = WorkerPool(manager, upkeep_handlers())
    manager.enqueue(CATALOG_PRUNE, {"finished_max": 1})
    check = manager.enqueue(CATALOG_CHECK)
    assert [pool.run_next(), pool.run_next()] == [Outcome.COMPLETED, Outcome.COMPLETED]
    assert len(states(manager)) == 3
    assert manager.get(check).progress_done > 10


def test_a_policy_that_cannot_be_fails_its_job_at_once(manager: JobManager) -> None:
    manager.enqueue(CATALOG_PRUNE, {"finished_max": -1})
    assert WorkerPool(manager, upkeep_handlers()).run_next() is Outcome.FAILED


def test_a_damaged_catalog_fails_its_check(manager: JobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    report = CheckReport({}, [Problem("db", "00", "the checksum does not match")])
    monkeypatch.setattr(upkeep, "check_file", lambda _: report)
    job_id = manager.enqueue(CATALOG_CHECK)
    assert WorkerPool(manager, upkeep_handlers()).run_next() is Outcome.FAILED
    error = manager.get(job_id).last_error
    assert error is not None
    assert (error.kind, "first db: the checksum" in error.message) == (JobFailed.__name__, True)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (JobRetention, {"finished_max": -1}),
        (JobRetention, {"failed_age_max_ms": True}),
        (JobOptions, {"lease_ms": 0}),
        (JobOptions, {"heartbeats_in_lease": 1}),
        (JobOptions, {"attempts_max": 0}),
        (JobOptions, {"poll_ms": 0}),
        (JobOptions, {"run_ms_max": 0}),
        (JobOptions, {"progress_ms": -1}),
    ],
)
def test_options_that_cannot_be_are_refused(options: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(fields))):
        options(**fields)


def test_kinds_have_names_both_ways() -> None:
    for kind in (1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 1024, 32_767):
        assert kind_of(kind_name(kind)) == kind
    assert (kind_name(1), kind_of("catalog-prune")) == ("flush", CATALOG_PRUNE)
    for name in ("x", "0", "32768", "-1", "²"):
        with pytest.raises(UsageError):
            kind_of(name)


def test_heartbeats_come_within_the_lease() -> None:
    options = [JobOptions(lease_ms=lease_ms) for lease_ms in (3, 100, 30_000)]
    assert [one.heartbeat_ms for one in options] == [1, 33, 10_000]
    assert all(before.heartbeat_ms <= after.heartbeat_ms for before, after in pairwise(options))
