"""Recovery: what a store must know, and put right, before it serves again.

Eight steps.  1. The catalog is open and migrated; that is `Catalog.open`.  2. Databases.  3. Shards and gates.
4. Chunks, counted in a stream.  5. Jobs: pending ones stay, those in flight with nobody at work break off, those of a
database that is gone are dropped.  6. Metrics.  7. Generations, and waiters of the session before, which are gone.
8. What the steps decided is committed, and a report returned.

Running it twice changes nothing more.  Only jobs that are not finished are looked at, and nothing is kept that grows
with chunks or jobs.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from latewood.catalog.catalog import Catalog
from latewood.catalog.gate import flush_gate_state, repair_of
from latewood.catalog.job_ops import BreakOffJob
from latewood.catalog.ops import Op, PutGate, PutJob, SetFlushGate
from latewood.catalog.tables import (
    CHUNK,
    DB,
    JOB_GATE,
    JOB_LIVE,
    METRIC,
    WAL_STATE,
    AwaitingRepair,
    Cancelled,
    DbRecord,
    DbTombstoned,
    Evicted,
    GateKey,
    GateRecord,
    GenerationRecord,
    InFlight,
    JobError,
    JobKind,
    JobLiveRecord,
    JobPhase,
    JobRecord,
    LocalAndRemote,
    RemoteArchived,
    WalStateKey,
    WalStateRecord,
)
from latewood.catalog.view import CatalogView
from latewood.clock import Clock
from latewood.types import DbId, JobId

_logger: Final = logging.getLogger(__name__)
_MS: Final = 1_000_000
_OPS_IN_A_COMMIT: Final = 256


class ChunkInventory(msgspec.Struct, frozen=True):
    """The chunks of one database, counted."""

    by_residency: dict[str, int]
    size_bytes: int
    unverified: int
    """Uploaded, but not verified: to be looked at."""


class Compensation(msgspec.Struct, frozen=True):
    """A job that broke off, and the job that repairs it; None if it needs none and is pending again, or failed."""

    job_id: JobId
    repair_job_id: JobId | None


class RecoveryReport(msgspec.Struct, frozen=True):
    """What recovery found and did."""

    was_clean: bool
    databases: dict[DbId, DbRecord]
    shards: dict[WalStateKey, WalStateRecord]
    closed_gates: dict[GateKey, GateRecord]
    """As they are after recovery."""
    mended_gates: list[GateKey]
    """Closed by a job that was not under way."""
    chunks: dict[DbId, ChunkInventory]
    reenqueued: int
    """Jobs that wait: workers will take them."""
    resumed: list[JobId]
    """In flight with a worker that lives."""
    compensated: list[Compensation]
    dropped: list[JobId]
    """Called off, because their database is gone."""
    metrics: int
    generations: dict[int, int]
    stale_waiters: int

    @property
    def summary(self) -> str:
        """One line about it."""
        return (
            f"{'clean' if self.was_clean else 'unclean'} shutdown; {len(self.databases)} databases, "
            f"{len(self.shards)} shards, {sum(sum(c.by_residency.values()) for c in self.chunks.values())} chunks; "
            f"jobs: {self.reenqueued} waiting, {len(self.resumed)} resumed, {len(self.compensated)} compensated, "
            f"{len(self.dropped)} dropped; {len(self.closed_gates)} gates closed, {len(self.mended_gates)} mended"
        )


def recover(catalog: Catalog, clock: Clock, *, is_alive: Callable[[str], bool] = lambda _: False) -> RecoveryReport:
    """Put right what the session before left, and return a report of everything.

    `is_alive(worker_id)` says whether a worker of an earlier session is still at work: its jobs stay in flight until
    their leases run out.  By default none is, for only one process may write.

    Raises:
        CatalogCorrupted: a row is not what was written, or a damaged page hides some.
    """
    now_ms = clock.now_ns() // _MS
    catalog.read(CatalogView.check_counts)
    databases = dict(catalog.scan(DB))
    jobs = _Jobs(catalog, databases, now_ms, is_alive)
    jobs.settle()
    mended = _mend_gates(catalog, now_ms)
    generations = catalog.read(lambda view: dict(view.generations()))
    report = RecoveryReport(
        was_clean=catalog.was_clean,
        databases=databases,
        shards=dict(catalog.scan(WAL_STATE)),
        closed_gates={key: gate for key, gate in catalog.scan(JOB_GATE) if not gate.is_open},
        mended_gates=mended,
        chunks=_inventory(catalog),
        reenqueued=sum(phase == JobPhase.PENDING for phase, _, _ in _live(catalog)),
        resumed=jobs.resumed,
        compensated=jobs.compensated,
        dropped=jobs.dropped,
        metrics=catalog.read(lambda view: view.count(METRIC)),
        generations={component: record.current_generation for component, record in generations.items()},
        stale_waiters=_waiters(generations),
    )
    _logger.info("%s: %s", catalog.path, report.summary)
    return report


class _Jobs:
    """Step 5: what becomes of the jobs that are not finished."""

    def __init__(
        self, catalog: Catalog, databases: dict[DbId, DbRecord], now_ms: int, is_alive: Callable[[str], bool]
    ) -> None:
        self._catalog, self._databases, self._now_ms, self._is_alive = catalog, databases, now_ms, is_alive
        self.resumed: list[JobId] = []
        self.compensated: list[Compensation] = []
        self.dropped: list[JobId] = []

    def settle(self) -> None:
        """Decide about each, and commit the decisions."""
        for ops in _batched(self._decisions()):
            self._catalog.apply(*ops)

    def _decisions(self) -> Iterator[Op]:
        for phase, job_id, live in _live(self._catalog):
            is_orphan = live.db_id is not None and self._is_gone(live.db_id)
            job = self._load(job_id) if is_orphan or phase == JobPhase.IN_FLIGHT else None
            if job is not None and is_orphan:
                yield from self._drop(job)
            elif job is not None and isinstance(job.state, InFlight):
                yield from self._break_off(job, job.state)

    def _load(self, job_id: JobId) -> JobRecord | None:
        return self._catalog.read(lambda view: view.job(job_id))

    def _is_gone(self, db_id: DbId) -> bool:
        record = self._databases.get(db_id)
        return record is None or isinstance(record.status, DbTombstoned)

    def _drop(self, job: JobRecord) -> Iterator[Op]:
        self.dropped.append(job.job_id)
        error = JobError(
            at_ms=self._now_ms, attempt=job.attempts, kind="Dropped", message=f"database {job.db_id} is gone"
        )
        state = Cancelled(finished_at_ms=self._now_ms)
        yield PutJob(msgspec.structs.replace(job, state=state, last_error=error, updated_at_ms=self._now_ms))

    def _break_off(self, job: JobRecord, state: InFlight) -> Iterator[Op]:
        if self._is_alive(state.worker_id) and self._now_ms < state.expires_at_ms:
            self.resumed.append(job.job_id)
            return
        needs_repair = job.is_gated and job.repairs_kind is None
        repair_job_id = self._catalog.reserve_job_id()
        self.compensated.append(Compensation(job.job_id, repair_job_id if needs_repair else None))
        yield BreakOffJob(job.job_id, job.attempts, self._now_ms, repair_job_id)


def _mend_gates(catalog: Catalog, now_ms: int) -> list[GateKey]:
    """Open gates whose job is not under way, and see to it that those of a job that broke off have a repair."""
    mended = []
    for key, gate in catalog.scan(JOB_GATE):
        ops = [] if gate.active_job_id is None else _mending(catalog, key, gate, gate.active_job_id, now_ms)
        if ops:
            catalog.apply(*ops)
            mended.append(key)
    return mended


def _mending(catalog: Catalog, key: GateKey, gate: GateRecord, holder_id: JobId, now_ms: int) -> list[Op]:
    repair_job_id = gate.repair_job_id
    holder, repair = catalog.read(
        lambda view: (view.job(holder_id), None if repair_job_id is None else view.job(repair_job_id))
    )
    if holder is None or not isinstance(holder.state, InFlight | AwaitingRepair):
        gate = msgspec.structs.replace(gate, active_job_id=None, repair_job_id=None, closed_since_ms=None)
        return [PutGate(key, gate), *_flush_gate(key, gate)]
    if isinstance(holder.state, AwaitingRepair) and repair is None:
        repair = repair_of(holder, catalog.reserve_job_id(), now_ms)
        state = AwaitingRepair(since_ms=holder.state.since_ms, repair_job_id=repair.job_id)
        gate = msgspec.structs.replace(gate, repair_job_id=repair.job_id)
        return [PutJob(repair), PutJob(msgspec.structs.replace(holder, state=state)), PutGate(key, gate)]
    return []


def _flush_gate(key: GateKey, gate: GateRecord) -> list[Op]:
    return [SetFlushGate(key.db_id, flush_gate_state(gate))] if key.kind == JobKind.FLUSH else []


def _inventory(catalog: Catalog) -> dict[DbId, ChunkInventory]:
    kinds: dict[DbId, Counter[str]] = {}
    sizes, unverified = Counter[DbId](), Counter[DbId]()
    for key, chunk in catalog.scan(CHUNK):
        residency = chunk.residency
        kinds.setdefault(key.db_id, Counter())[type(residency).__name__] += 1
        if not isinstance(residency, Evicted):
            sizes[key.db_id] += chunk.size_bytes
        if isinstance(residency, LocalAndRemote | RemoteArchived) and not residency.verified:
            unverified[key.db_id] += 1
    return {db_id: ChunkInventory(dict(found), sizes[db_id], unverified[db_id]) for db_id, found in kinds.items()}


def _live(catalog: Catalog) -> Iterator[tuple[int, JobId, JobLiveRecord]]:
    for key, record in catalog.scan(JOB_LIVE):
        yield key.phase, key.job_id, record


def _waiters(generations: dict[int, GenerationRecord]) -> int:
    return sum(len(record.blocked_waiters) for record in generations.values())


def _batched(ops: Iterable[Op]) -> Iterator[list[Op]]:
    remaining = iter(ops)
    while batch := list(islice(remaining, _OPS_IN_A_COMMIT)):
        yield batch
