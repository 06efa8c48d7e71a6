"""Catalog and gates do what a small model in memory does, restarts and recoveries among the steps."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latewood.catalog import Catalog, CatalogOptions, CatalogTxn, Lease, recover
from latewood.catalog.check import Problem
from latewood.catalog.examine import examine
from latewood.catalog.job_ops import BreakOffJob
from latewood.catalog.tables import ChunkKey, Component, JobError, JobKind, JobRecord
from latewood.errors import ConflictError, GateClosed, LatewoodError, LeaseLost, UniqueJobAlreadyPending, UsageError
from latewood.limits import KiB
from latewood.testing import FakeClock
from tests.catalog.desk import chunk, put_database
from tests.model.effort import search

pytestmark = pytest.mark.slow

DATABASES: Final = (1,)
KINDS: Final = (JobKind.FLUSH, JobKind.COMPACT)
ATTEMPTS_MAX: Final = 3
LEASE_MS: Final = 1000
PENDING, FLIGHT, BROKEN = "Pending", "InFlight", "AwaitingRepair"
DONE, FAILED, CANCELLED = "Completed", "FailedPermanent", "Cancelled"
FINISHED: Final = (DONE, FAILED, CANCELLED)


@dataclass
class ModelJob:
    """A job, as simply as can be."""

    job_id: int
    db_id: int
    kind: int
    state: str = PENDING
    attempts: int = 0
    attempts_max: int = ATTEMPTS_MAX
    called_off: bool = False
    repairs: "ModelJob | None" = None


@dataclass
class ModelGate:
    """Who closed it, and who alone may pass."""

    holder: ModelJob | None = None
    repair: ModelJob | None = None


@dataclass
class Model:
    """What the catalog should hold."""

    jobs: dict[int, ModelJob] = field(default_factory=dict)
    gates: dict[tuple[int, int], ModelGate] = field(default_factory=dict)
    chunks: dict[tuple[int, int], int] = field(default_factory=dict)
    wal_generation: int = 0

    def gate(self, job: ModelJob) -> ModelGate:
        return self.gates.setdefault((job.db_id, (job.repairs or job).kind), ModelGate())

    def waiting(self, job: ModelJob) -> ModelJob | None:
        """Who waits in a job's place."""
        same = (job.db_id, job.kind, None if job.repairs is None else job.repairs.kind)
        for other in self.jobs.values():
            place = (other.db_id, other.kind, None if other.repairs is None else other.repairs.kind)
            if other is not job and other.state == PENDING and place == same:
                return other
        return None

    def enqueue(self, job: ModelJob) -> type[LatewoodError] | None:
        if self.waiting(job):
            return UniqueJobAlreadyPending
        self.jobs[job.job_id] = job
        return None

    def acquire(self, job: ModelJob) -> type[LatewoodError] | None:
        gate = self.gate(job)
        if job.state != PENDING:
            return ConflictError
        if gate.holder and gate.repair is not job:
            return GateClosed
        gate.holder = gate.holder or job
        job.state, job.attempts = FLIGHT, job.attempts + 1
        return None

    def complete(self, job: ModelJob) -> None:
        gate = self.gate(job)
        gate.holder = gate.repair = None
        job.state, job.called_off = DONE, False
        if job.repairs and job.repairs.state == BROKEN:
            self._again(job.repairs)

    def retry(self, job: ModelJob) -> None:
        if job.attempts >= job.attempts_max:
            self.fail(job)
            return
        self._open(job)
        self._back(job)

    def fail(self, job: ModelJob) -> None:
        self._open(job)
        job.state = FAILED

    def abort(self, job: ModelJob) -> None:
        self._open(job)
        job.state = CANCELLED

    def cancel(self, job: ModelJob) -> type[LatewoodError] | None:
        if job.state in FINISHED:
            return None
        if job.repairs:
            return UsageError
        if job.state == PENDING:
            job.state = CANCELLED
        else:
            job.called_off = True
        return None

    def break_off(self, job: ModelJob, repair_id: int) -> None:
        if job.repairs:
            self._again(job)
            return
        repair = ModelJob(repair_id, job.db_id, JobKind.REPAIR, attempts_max=job.attempts_max, repairs=job)
        self.jobs[repair_id] = repair
        gate = self.gate(job)
        gate.holder, gate.repair, job.state = job, repair, BROKEN

    def revive(self, job: ModelJob) -> type[LatewoodError] | None:
        if job.state not in (FAILED, CANCELLED):
            return ConflictError
        if self.waiting(job):
            return UniqueJobAlreadyPending
        job.state, job.attempts_max, job.called_off = PENDING, job.attempts + ATTEMPTS_MAX, False
        return None

    def _open(self, job: ModelJob) -> None:
        gate = self.gate(job)
        if gate.holder is job:
            gate.holder = gate.repair = None

    def _again(self, job: ModelJob) -> None:
        if job.attempts >= job.attempts_max and not job.called_off:
            job.state = FAILED
        else:
            self._back(job)

    def _back(self, job: ModelJob) -> None:
        job.state = CANCELLED if job.called_off or self.waiting(job) else PENDING


class CatalogMachine(RuleBasedStateMachine):
    """Everything that is done to jobs, gates, chunks and generations."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock, self.model = FakeClock(), Model()
        self.catalog = self._open()
        for db_id in DATABASES:
            put_database(self.catalog, db_id, f"d{db_id}")
        self.generation = self.catalog.generation()

    def teardown(self) -> None:
        self.catalog.close()
        shutil.rmtree(self.directory)

    def _open(self) -> Catalog:
        options = CatalogOptions(map_bytes=256 * KiB, map_headroom_bytes=64 * KiB)
        return Catalog.open(self.directory / "c", options, clock=self.clock)

    def _commit(self, txn: CatalogTxn, expected: type[LatewoodError] | None) -> None:
        if expected is None:
            txn.commit()
            return
        with pytest.raises(expected):
            txn.commit()

    def _pick(self, data: st.DataObject, *states: str) -> ModelJob | None:
        jobs = [job for job in self.model.jobs.values() if not states or job.state in states]
        return data.draw(st.sampled_from(jobs)) if jobs else None

    @rule(db_id=st.sampled_from(DATABASES), kind=st.sampled_from(KINDS))
    def enqueue(self, db_id: int, kind: int) -> None:
        txn = self.catalog.begin_write()
        record = JobRecord(job_id=0, created_at_ms=1, kind=kind, db_id=db_id, attempts_max=ATTEMPTS_MAX)
        job_id = txn.enqueue_job(record)
        assert job_id not in self.model.jobs
        self._commit(txn, self.model.enqueue(ModelJob(job_id, db_id, kind)))

    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        if job := self._pick(data, PENDING) or self._pick(data):
            txn = self.catalog.begin_write()
            txn.acquire_job(job.job_id, f"w{job.job_id}", LEASE_MS)
            self._commit(txn, self.model.acquire(job))

    @rule(data=st.data(), how=st.sampled_from(["complete", "retry", "fail", "abort", "renew"]), luck=st.integers(0, 4))
    def end(self, data: st.DataObject, how: str, luck: int) -> None:
        job, stale = self._pick(data, FLIGHT), luck == 4
        if job is None:
            return
        lease = Lease(f"w{job.job_id}", job.attempts - stale)
        error = JobError(at_ms=1, attempt=job.attempts, kind="E", message="e")
        txn = self.catalog.begin_write()
        if how == "complete":
            txn.complete_job(job.job_id, lease)
        elif how == "retry":
            txn.retry_job(job.job_id, lease, error, 0)
        elif how == "fail":
            txn.fail_job(job.job_id, lease, error)
        elif how == "abort":
            txn.abort_job(job.job_id, lease)
        else:
            txn.renew_job(job.job_id, lease, LEASE_MS, done=1)
        if not stale and how != "renew":
            getattr(self.model, how)(job)
        self._commit(txn, LeaseLost if stale else None)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if job := self._pick(data):
            txn = self.catalog.begin_write()
            txn.cancel_job(job.job_id)
            self._commit(txn, self.model.cancel(job))

    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        if job := self._pick(data):
            txn = self.catalog.begin_write()
            txn.revive_job(job.job_id, ATTEMPTS_MAX)
            self._commit(txn, self.model.revive(job))

    @rule(data=st.data())
    def break_off(self, data: st.DataObject) -> None:
        if job := self._pick(data, FLIGHT):
            repair_id = self.catalog.reserve_job_id()
            self.catalog.apply(BreakOffJob(job.job_id, job.attempts, 1, repair_id))
            self.model.break_off(job, repair_id)

    @rule(db_id=st.sampled_from(DATABASES), chunk_id=st.integers(1, 5), size=st.integers(0, 9), keep=st.booleans())
    def change_chunk(self, db_id: int, chunk_id: int, size: int, keep: bool) -> None:  # noqa: FBT001
        txn = self.catalog.begin_write()
        if keep:
            txn.upsert_chunk(ChunkKey(db_id, chunk_id), chunk(chunk_id, size_bytes=size))
            self.model.chunks[db_id, chunk_id] = size
        else:
            txn.delete_chunk(ChunkKey(db_id, chunk_id))
            self.model.chunks.pop((db_id, chunk_id), None)
        txn.bump_generation(Component.WAL)
        self.model.wal_generation += 1
        txn.commit()

    @rule(seconds=st.integers(-100, 100))
    def move_clock(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @rule()
    def restart(self) -> None:
        self.catalog.close()
        self.catalog = self._open()

    @precondition(lambda self: any(job.state == FLIGHT for job in self.model.jobs.values()))
    @rule()
    def restart_and_recover(self) -> None:
        self.restart()
        report = recover(self.catalog, self.clock)
        broken = {job.job_id for job in self.model.jobs.values() if job.state == FLIGHT}
        assert {found.job_id for found in report.compensated} == broken
        for found in report.compensated:
            self.model.break_off(self.model.jobs[found.job_id], found.repair_job_id or 0)

    @invariant()
    def the_catalog_is_as_the_model(self) -> None:
        jobs = {job_id: _shape(record) for job_id, record in self.catalog.scan_jobs()}
        assert jobs == {
            job.job_id: (job.state, job.attempts, job.called_off and job.state not in FINISHED)
            for job in self.model.jobs.values()
        }
        gates = self.catalog.read(lambda view: {tuple(key): gate for key, gate in view.gates() if not gate.is_open})
        assert {key: (gate.active_job_id, gate.repair_job_id) for key, gate in gates.items()} == {
            key: (gate.holder.job_id, gate.repair.job_id if gate.repair else None)
            for key, gate in self.model.gates.items()
            if gate.holder
        }

    @invariant()
    def the_rest_is_as_the_model(self) -> None:
        chunks = {tuple(key): c.size_bytes for db_id in DATABASES for key, c in self.catalog.scan_chunks(db_id)}
        assert chunks == self.model.chunks
        assert self.catalog.generation(Component.WAL) == self.model.wal_generation
        assert self.catalog.generation() >= self.generation
        self.generation = self.catalog.generation()
        assert self.catalog.read(lambda view: view.generation(Component.CATALOG)) == self.generation

    @invariant()
    def the_indices_agree(self) -> None:
        problems = self.catalog._env.read(lambda rows: [item for item in examine(rows) if isinstance(item, Problem)])
        assert problems == []


def _shape(record: JobRecord) -> tuple[str, int, bool]:
    return type(record.state).__name__, record.attempts, record.cancel_requested and not record.is_finished


def test_a_catalog_does_what_its_model_does(campaign: bool) -> None:  # noqa: FBT001
    search(CatalogMachine, campaign=campaign)
