"""Jobs, gates and leases against a model, with restarts and jumps of the clock among the steps; and planted bugs."""

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latewood import errors
from latewood.catalog import Catalog, Lease, UniqueJobGate, recover
from latewood.catalog import ops as catalog_ops
from latewood.catalog.check import Problem
from latewood.catalog.examine import examine
from latewood.catalog.tables import InFlight, JobError
from latewood.jobs import Backoff, JobManager, JobOptions
from latewood.jobs import manager as manager_module
from latewood.jobs.lease import LeaseState
from latewood.testing import FakeClock
from tests.jobs.kit import DB, DB_2, KIND, OPTIONS, OTHER, make_databases
from tests.model.effort import search, search_planted
from tests.model.jobs_model import PAUSE_MS, Gate, Job, JobsModel, Refused, Token

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a disk that needs no sync; where it is missing, any will do
BOTH: Final = frozenset({KIND, OTHER})
ATTEMPTS: Final = 3
ERROR: Final = JobError(at_ms=0, attempt=1, kind="OSError", message="no")
_OPTIONS: Final = JobOptions(attempts_max=ATTEMPTS, backoff=Backoff(first_ms=PAUSE_MS, max_ms=PAUSE_MS, jitter=0))


class JobsMachine(RuleBasedStateMachine):
    """Does the same to a catalog and to the model."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.directory = tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        self.clock = FakeClock()
        self.catalog = Catalog.open(Path(self.directory.name) / "catalog.mdb", OPTIONS, clock=self.clock)
        make_databases(self.catalog)
        self.manager = JobManager(self.catalog, _OPTIONS, clock=self.clock)
        self.model = JobsModel(self.manager.now_ms())
        self.tokens: list[Token] = []
        self.generation = 0

    def teardown(self) -> None:
        self.catalog.close()
        self.directory.cleanup()
        logging.disable(logging.NOTSET)

    # -- rules ------------------------------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from((KIND, KIND, KIND, OTHER)),
        db_id=st.sampled_from((DB, DB, DB, None, DB_2)),
        priority=st.sampled_from((100, 100, 1, 200)),
        attempts_max=st.sampled_from((2, 3, 1)),
    )
    def enqueue(self, kind: int, db_id: int | None, priority: int, attempts_max: int) -> None:
        txn = self.catalog.begin_write()
        job_id = self.manager.enqueue_in(txn, kind, db_id=db_id, priority=priority, attempts_max=attempts_max)
        job = Job(job_id, kind, db_id, priority, attempts_max)
        self.same(lambda: self.model.enqueue(job), txn.commit)

    @rule(worker=st.sampled_from("ab"), kinds=st.sampled_from((BOTH, BOTH, frozenset({KIND}))))
    def claim(self, worker: str, kinds: frozenset[int]) -> None:
        wanted = self.model.claimable(kinds)
        found = self.manager.claim(worker, kinds)
        assert (found and found.job_id) == wanted
        if found is not None and wanted is not None:
            token = self.model.claim(wanted, worker)
            assert token == (found.job_id, worker, found.attempts)
            assert token not in self.tokens, "two leases cannot be told apart"
            self.tokens.append(token)

    @precondition(lambda self: self.tokens)
    @rule(
        data=st.data(),
        action=st.sampled_from(("renew", "finish", "finish", "fail", "fail", "fail for good", "release", "abort")),
    )
    def use_lease(self, data: st.DataObject, action: str) -> None:
        live = [token for token in self.tokens if self.model.is_held(token)]
        contested = [
            token for token in self.tokens if token not in live and self.model.jobs[token.job_id].state == "InFlight"
        ]
        token = data.draw(st.sampled_from(contested * 3 + live * 3 + self.tokens))
        job_id, lease = token.job_id, Lease(token.worker, token.attempt)
        model, manager = self.model, self.manager
        steps: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "renew": (lambda: model.renew(token), lambda: manager.heartbeat(job_id, lease)),
            "finish": (lambda: model.finish(token), lambda: manager.finish(job_id, lease)),
            "fail": (lambda: model.fail(token, for_good=False), lambda: manager.fail(job_id, lease, ERROR)),
            "fail for good": (
                lambda: model.fail(token, for_good=True),
                lambda: manager.fail(job_id, lease, ERROR, for_good=True),
            ),
            "release": (lambda: model.release(token), lambda: manager.release(job_id, lease, ERROR)),
            "abort": (lambda: model.abort(token), lambda: manager.abort(job_id, lease)),
        }
        self.same(*steps[action])

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data(), action=st.sampled_from(("cancel", "retry", "retry")))
    def ask(self, data: st.DataObject, action: str) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.model.jobs)))
        if action == "cancel":
            self.same(lambda: self.model.cancel(job_id), lambda: self.manager.cancel(job_id))
        else:
            self.same(lambda: self.model.retry(job_id, ATTEMPTS), lambda: self.manager.retry(job_id))

    @precondition(lambda self: any(self.model.is_held(token) for token in self.tokens))
    @rule(data=st.data())
    def break_off(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from([token for token in self.tokens if self.model.is_held(token)]))
        before = {job.job_id for job in self.manager.jobs()}
        self.manager.break_off(LeaseState(token.job_id, token.attempt, 0, 0))
        self.model.break_off(token.job_id, self._new_job(before))
        if data.draw(st.booleans()):
            self.claim("b" if token.worker == "a" else "a", BOTH)

    @rule()
    def restart(self) -> None:
        before = {job.job_id for job in self.manager.jobs()}
        path = self.catalog.path
        self.catalog.close()
        self.catalog = Catalog.open(path, OPTIONS, clock=self.clock)
        self.manager = JobManager(self.catalog, _OPTIONS, clock=self.clock)
        report = recover(self.catalog, self.clock)
        in_flight = [job.job_id for job in self.model.jobs.values() if job.state == "InFlight"]
        assert sorted(one.job_id for one in report.compensated) == sorted(in_flight)
        assert not report.mended_gates
        for one in report.compensated:
            self.model.break_off(one.job_id, one.repair_job_id or 0)
        assert {job.job_id for job in self.manager.jobs()} >= before

    @rule(ms=st.sampled_from((1, PAUSE_MS, PAUSE_MS, 3_600_000, -1, -PAUSE_MS, -3_600_000)))
    def move_clock(self, ms: int) -> None:
        self.clock.advance(ms=ms)
        self.model.now_ms = self.manager.now_ms()

    @rule()
    def redate(self) -> None:
        assert self.manager.redate() == self.model.redate()

    # -- invariants -------------------------------------------------------------------------------------------

    @invariant()
    def the_catalog_is_as_the_model(self) -> None:
        found = {job.job_id: job for job in self.manager.jobs()}
        assert found.keys() == self.model.jobs.keys(), "a job was lost, or came from nowhere"
        for job_id, wanted in self.model.jobs.items():
            job = found[job_id]
            assert (type(job.state).__name__, job.attempts, job.attempts_max, job.cancel_requested) == (
                wanted.state,
                wanted.attempts,
                wanted.attempts_max,
                wanted.cancel_requested,
            ), wanted
            assert job.state.worker_id == wanted.worker if isinstance(job.state, InFlight) else True
        gates = self.catalog.read(lambda view: dict(view.gates()))
        assert {
            key: Gate(gate.active_job_id, gate.repair_job_id) for key, gate in gates.items() if not gate.is_open
        } == {key: gate for key, gate in self.model.gates.items() if gate.active is not None}

    @invariant()
    def every_row_agrees_with_the_others(self) -> None:
        problems = self.catalog._env.read(lambda rows: [one for one in examine(rows) if isinstance(one, Problem)])
        assert not problems

    @invariant()
    def nobody_works_beside_another(self) -> None:
        at_work = [
            (job.db_id, job.gate_kind)
            for job in self.manager.jobs()
            if isinstance(job.state, InFlight) and job.is_gated
        ]
        assert len(at_work) == len(set(at_work))

    @invariant()
    def the_generation_never_goes_back(self) -> None:
        now = self.catalog.generation()
        assert now >= self.generation
        self.generation = now

    # -- inside -----------------------------------------------------------------------------------------------

    def same(self, model: Callable[[], object], real: Callable[[], object]) -> None:
        try:
            model()
        except Refused as refusal:
            with pytest.raises(getattr(errors, str(refusal))):
                real()
        else:
            try:
                real()
            except errors.LatewoodError as error:
                raise AssertionError(f"refused: {error}") from error

    def _new_job(self, before: set[int]) -> int:
        new = [job.job_id for job in self.manager.jobs() if job.job_id not in before]
        return new[0] if new else 0


@pytest.mark.slow
def test_jobs_do_what_the_model_does(*, campaign: bool) -> None:
    search(JobsMachine, campaign=campaign)


# -- planted bugs ---------------------------------------------------------------------------------------------


def finish_without_fencing() -> Any:
    """Whoever holds the job, anybody who once did may end it."""

    def check(self: UniqueJobGate, lease: Lease) -> InFlight:
        if isinstance(self.job.state, InFlight):
            return self.job.state
        raise errors.LeaseLost(str(lease))

    return mock.patch.object(UniqueJobGate, "check_lease", check)


def leave_the_gate_open() -> Any:
    """A job goes through the gate and does not close it."""
    return mock.patch.object(UniqueJobGate, "_closed", return_value=[])


def leave_the_gate_closed() -> Any:
    """A job that failed does not open the gate."""
    return mock.patch.object(UniqueJobGate, "_errored", return_value=[])


def leave_an_index_row() -> Any:
    """The place of a job that is not pending any more stays taken."""
    put = catalog_ops._put_in_pending_index

    def forget(rows: Any, old: Any, new: Any) -> None:
        put(rows, None, new)
        del old

    return mock.patch.object(catalog_ops, "_put_in_pending_index", forget)


def leave_out_the_repair() -> Any:
    """A job that broke off opens its gate by itself."""

    def break_off(self: UniqueJobGate, attempt: int, at_ms: int, repair_job_id: int) -> Any:
        del repair_job_id
        return self.retry(Lease(self.job.state.worker_id, attempt), at_ms, ERROR, 0)  # type: ignore[union-attr]

    return mock.patch.object(UniqueJobGate, "break_off", break_off)


def crowd_out_nobody() -> Any:
    """A job that comes back does not look whether another waits in its place."""
    back = UniqueJobGate._back

    def crowd(self: UniqueJobGate, *arguments: Any) -> Any:
        return back(self._replace(pending_job_id=None), *arguments)

    return mock.patch.object(UniqueJobGate, "_back", crowd)


def overlook_the_gate() -> Any:
    """A claim does not look whether the gate is open, and gives up at the first that is not."""
    return mock.patch.object(manager_module, "_may_pass", return_value=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        finish_without_fencing,
        leave_the_gate_open,
        leave_the_gate_closed,
        leave_an_index_row,
        leave_out_the_repair,
        crowd_out_nobody,
        overlook_the_gate,
    ],
)
def test_the_machine_finds_a_bug_that_is_planted(plant: Callable[[], Any]) -> None:
    with plant(), pytest.raises((AssertionError, pytest.fail.Exception)):
        search_planted(JobsMachine)
