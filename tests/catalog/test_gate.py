"""UniqueJobGate: the scenario file, and what it does not tell."""

import os
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest

from latewood.catalog import Catalog, CatalogTxn, Lease, UniqueJobGate
from latewood.catalog.job_ops import BreakOffJob
from latewood.catalog.ops import PutGate, PutJob, SetFlushGate
from latewood.catalog.tables import (
    Cancelled,
    Component,
    FailedPermanent,
    GateKey,
    GateRecord,
    InFlight,
    JobError,
    JobKind,
    JobPhase,
    JobRecord,
    Pending,
)
from latewood.errors import ConflictError, GateClosed, LatewoodError, LeaseLost, UniqueJobAlreadyPending, UsageError
from tests.catalog.desk import LEASE_MS, Desk, acquire, enqueue, job, job_of, put_database, write
from tests.scenarios.runner import Line, ScenarioError, run

if TYPE_CHECKING:
    from collections.abc import Callable

RULES: Final = Path(__file__).with_name("gate_rules.txt")
KINDS: Final = {"flush": JobKind.FLUSH, "compact": JobKind.COMPACT}
ERROR: Final = JobError(at_ms=1, attempt=1, kind="OSError", message="no")


class Stage:
    """Plays the lines of one case on a catalog."""

    def __init__(self, catalog: Catalog, now_ms: int) -> None:
        self._catalog, self._now_ms = catalog, now_ms
        self._ids: dict[str, int] = {}
        self._leases: dict[str, Lease] = {}
        self._numbers = count(1)

    def play(self, line: Line) -> list[str]:
        if line.words == ["show"]:
            return self._shown()
        verb, name = line.words[:2]
        txn = self._catalog.begin_write()
        try:
            self._fill(txn, line)
            txn.commit()
        except UniqueJobAlreadyPending as error:
            outcome = f"UniqueJobAlreadyPending {self._name(error.job_id)}"
        except GateClosed as error:
            outcome = f"GateClosed {self._name(error.active_job_id)}"
        except LatewoodError as error:
            outcome = type(error).__name__
        else:
            outcome = "ok"
            if verb == "acquire":
                self._leases[name] = Lease(f"w-{name}", job_of(self._catalog, self._ids[name]).attempts)
        return [f"{verb} {name}: {outcome}"]

    def _fill(self, txn: CatalogTxn, line: Line) -> None:
        verb, name, *rest = line.words
        if verb == "enqueue":
            self._ids[name] = next(self._numbers)
            attempts, free = line.number("attempts", 5), line.number("free", 0)
            txn.enqueue_job(job(self._ids[name], KINDS[rest[0]], attempts_max=attempts, unique=not free))
            line.check_all_used()
            return
        job_id = self._ids[name]
        if verb == "break":
            self._ids[rest[1]] = next(self._numbers)
            attempt = job_of(self._catalog, job_id).attempts
            txn.add(BreakOffJob(job_id, attempt, self._now_ms, self._ids[rest[1]]))
            return
        lease = self._leases.get(name, Lease("nobody", 0))
        moves: dict[str, Callable[[], None]] = {
            "acquire": lambda: txn.acquire_job(job_id, f"w-{name}", LEASE_MS),
            "renew": lambda: txn.renew_job(job_id, lease, LEASE_MS),
            "complete": lambda: txn.complete_job(job_id, lease),
            "retry": lambda: txn.retry_job(job_id, lease, ERROR, 0),
            "fail": lambda: txn.fail_job(job_id, lease, ERROR),
            "abort": lambda: txn.abort_job(job_id, lease),
            "cancel": lambda: txn.cancel_job(job_id),
            "revive": lambda: txn.revive_job(job_id),
        }
        if verb not in moves:
            raise ScenarioError(f"no such move: {line.text}")
        moves[verb]()

    def _shown(self) -> list[str]:
        jobs = [self._said(record) for _, record in self._catalog.scan_jobs()]
        closed = self._catalog.read(lambda view: [pair for pair in view.gates() if not pair[1].is_open])
        names = {kind: name for name, kind in KINDS.items()}
        gates = [f"{names[JobKind(key.kind)]} closed by {self._holders(gate)}" for key, gate in closed]
        return [", ".join(jobs), ", ".join(gates) or "gates open"]

    def _said(self, record: JobRecord) -> str:
        called_off = " (called off)" if record.cancel_requested and not record.is_finished else ""
        return f"{self._name(record.job_id)} {type(record.state).__name__}{called_off}"

    def _holders(self, gate: GateRecord) -> str:
        assert gate.active_job_id is not None
        repair = "" if gate.repair_job_id is None else f", repair {self._name(gate.repair_job_id)}"
        return self._name(gate.active_job_id) + repair

    def _name(self, job_id: int) -> str:
        return next(name for name, known in self._ids.items() if known == job_id)


def play(lines: list[Line]) -> list[str]:
    """`gate`: what becomes of the jobs of one database; and the file is sound afterwards."""
    with TemporaryDirectory() as directory, Desk(Path(directory)) as desk:
        catalog = desk.open()
        put_database(catalog)
        stage = Stage(catalog, desk.now_ms)
        said = [text for line in lines[1:] for text in stage.play(line)]
        assert catalog._env.read(unsound) == []
        return said


def unsound(rows: object) -> list[object]:
    from latewood.catalog.check import Problem  # noqa: PLC0415 - what a child process loads
    from latewood.catalog.examine import examine  # noqa: PLC0415

    return [item for item in examine(rows) if isinstance(item, Problem)]  # type: ignore[arg-type]


def test_the_gates_are_as_the_file_says() -> None:
    run(RULES, {"gate": play}, os.environ)


# -- pure -------------------------------------------------------------------------------------------------


def test_acquiring_is_job_gate_and_shards_in_one_batch() -> None:
    ops = UniqueJobGate(job(7)).acquire("w", 1000, LEASE_MS)
    state = InFlight(worker_id="w", leased_at_ms=1000, expires_at_ms=2000, heartbeat_at_ms=1000)
    assert ops[0] == PutJob(job(7, state=state, attempts=1, updated_at_ms=1000))
    assert ops[1] == PutGate(GateKey(1, JobKind.FLUSH), GateRecord(active_job_id=7, closed_since_ms=1000))
    assert isinstance(ops[2], SetFlushGate)


def test_a_job_that_is_not_due_yet_is_not_given_out() -> None:
    gate = UniqueJobGate(job(7, not_before_ms=1001))
    with pytest.raises(ConflictError, match="not pending and due"):
        gate.acquire("w", 1000, LEASE_MS)
    assert gate.acquire("w", 1001, LEASE_MS)


def test_a_clock_set_back_never_shortens_a_lease() -> None:
    state = InFlight(worker_id="w", leased_at_ms=9000, expires_at_ms=10_000, heartbeat_at_ms=9000)
    (op,) = UniqueJobGate(job(7, state=state, attempts=1)).renew(Lease("w", 1), 500, LEASE_MS)
    assert isinstance(op, PutJob)
    assert isinstance(op.record.state, InFlight)
    assert op.record.state.expires_at_ms == 10_000


@pytest.mark.parametrize("lease", [Lease("other", 1), Lease("w", 2), Lease("w", 0)])
def test_a_lease_is_of_one_worker_and_one_attempt(lease: Lease) -> None:
    state = InFlight(worker_id="w", leased_at_ms=0, expires_at_ms=1, heartbeat_at_ms=0)
    with pytest.raises(LeaseLost):
        UniqueJobGate(job(7, state=state, attempts=1)).check_lease(lease)


def test_a_new_job_must_be_pending() -> None:
    state = InFlight(worker_id="w", leased_at_ms=0, expires_at_ms=1, heartbeat_at_ms=0)
    with pytest.raises(UsageError, match="pending"):
        UniqueJobGate(job(7, state=state)).enqueue()


# -- stored -----------------------------------------------------------------------------------------------


def test_a_heartbeat_carries_progress_and_moves_the_end_of_the_lease(desk: Desk) -> None:
    catalog = desk.open()
    job_id = enqueue(catalog)
    lease = acquire(catalog, job_id)
    desk.clock.advance(ms=500)
    write(catalog, lambda txn: txn.renew_job(job_id, lease, LEASE_MS, done=3, total=9))
    found = job_of(catalog, job_id)
    assert (found.progress_done, found.progress_total) == (3, 9)
    assert isinstance(found.state, InFlight)
    assert found.state.expires_at_ms == desk.now_ms + LEASE_MS
    due = catalog.read(lambda view: [key.due_ms for key, _ in view.live_jobs(JobPhase.IN_FLIGHT)])
    assert due == [desk.now_ms + LEASE_MS]


def test_a_repair_knows_the_job_it_repairs(desk: Desk) -> None:
    catalog = desk.open()
    job_id = enqueue(catalog, payload={"upto": 7})
    acquire(catalog, job_id)
    txn = catalog.begin_write()
    repair_id = txn.break_off_job(job_id, 1)
    txn.commit()
    repair = job_of(catalog, repair_id)
    assert (repair.kind, repair.repairs_job_id, repair.repairs_kind) == (JobKind.REPAIR, job_id, JobKind.FLUSH)
    assert repair.payload == {"job_id": job_id, "kind": 1, "payload": {"upto": 7}}
    assert repair.state == Pending()


def test_a_batch_with_a_condition_on_a_lease_fails_when_it_is_lost(desk: Desk) -> None:
    catalog = desk.open()
    lease = acquire(catalog, job_id := enqueue(catalog))
    write(catalog, lambda txn: txn.require_lease(job_id, lease))
    write(catalog, lambda txn: txn.complete_job(job_id, lease))
    with pytest.raises(LeaseLost):
        write(catalog, lambda txn: txn.require_lease(job_id, lease))
    with pytest.raises(LeaseLost):
        write(catalog, lambda txn: txn.require_lease(99, lease))


def test_a_lease_from_before_a_job_was_revived_is_not_one_of_after(desk: Desk) -> None:
    catalog = desk.open()
    stale = acquire(catalog, job_id := enqueue(catalog, attempts_max=1))
    write(catalog, lambda txn: txn.update_job_state(job_id, FailedPermanent(finished_at_ms=1)))
    write(catalog, lambda txn: txn.revive_job(job_id, attempts_more=2))
    assert (job_of(catalog, job_id).attempts, job_of(catalog, job_id).attempts_max) == (1, 3)
    fresh = acquire(catalog, job_id)
    assert fresh != stale
    with pytest.raises(LeaseLost):
        write(catalog, lambda txn: txn.complete_job(job_id, stale))
    write(catalog, lambda txn: txn.complete_job(job_id, fresh))


def test_a_job_that_is_given_back_waits_again_and_its_attempt_does_not_count(desk: Desk) -> None:
    catalog = desk.open()
    lease = acquire(catalog, job_id := enqueue(catalog))
    write(catalog, lambda txn: txn.release_job(job_id, lease, ERROR))
    found = job_of(catalog, job_id)
    assert (found.state, found.attempts, found.attempts_max) == (Pending(), 1, 6)
    assert catalog.read(lambda view: view.gate(1, JobKind.FLUSH)).is_open


def test_a_job_that_is_given_back_gives_way_to_one_that_waits_or_to_a_cancellation(desk: Desk) -> None:
    catalog = desk.open()
    lease = acquire(catalog, job_id := enqueue(catalog))
    enqueue(catalog)
    write(catalog, lambda txn: txn.release_job(job_id, lease, ERROR))
    assert isinstance(job_of(catalog, job_id).state, Cancelled)
    lease = acquire(catalog, other := enqueue(catalog, JobKind.COMPACT))
    write(catalog, lambda txn: txn.cancel_job(other))
    write(catalog, lambda txn: txn.release_job(other, lease, ERROR))
    assert isinstance(job_of(catalog, other).state, Cancelled)


def test_whoever_waits_for_jobs_is_told_of_all_but_claims_and_heartbeats(desk: Desk) -> None:
    catalog = desk.open()

    def rang(*fills: "Callable[[CatalogTxn], object]") -> bool:
        return Component.JOBS in write(catalog, *fills).generations

    assert rang(lambda txn: txn.enqueue_job(job(1)))
    assert not rang(lambda txn: txn.acquire_job(1, "w", LEASE_MS))
    assert not rang(lambda txn: txn.renew_job(1, Lease("w", 1), LEASE_MS))
    assert rang(lambda txn: txn.cancel_job(1))
    assert not rang(lambda txn: txn.renew_job(1, Lease("w", 1), LEASE_MS))
    assert rang(lambda txn: txn.abort_job(1, Lease("w", 1)))
