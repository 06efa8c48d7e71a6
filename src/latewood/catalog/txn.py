"""CatalogTxn: operations that wait in memory until `commit` sends them to the writer, all or none."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec.structs import replace

from latewood.catalog.commit import CommitReceipt
from latewood.catalog.gate import Lease
from latewood.catalog.job_ops import (
    AbortJob,
    AcquireJob,
    BreakOffJob,
    CancelJob,
    CompleteJob,
    EnqueueJob,
    FailJob,
    ReleaseJob,
    RenewJob,
    RequireLease,
    RetryJob,
    ReviveJob,
    UpdateJobState,
)
from latewood.catalog.ops import (
    BumpGeneration,
    DeleteChunk,
    DeleteDb,
    DeleteWalState,
    MergeMetric,
    Op,
    PutDb,
    PutWalState,
    RemoveJob,
    RequireGeneration,
    RequireRecord,
    UpsertChunk,
)
from latewood.catalog.tables import (
    ChunkKey,
    ChunkRecord,
    DbRecord,
    JobError,
    JobRecord,
    JobState,
    MetricDelta,
    MetricKey,
    Record,
    Table,
    WalStateKey,
    WalStateRecord,
)
from latewood.catalog.tables.job import ATTEMPTS_USUAL
from latewood.catalog.writer import Writer
from latewood.clock import Clock
from latewood.errors import UsageError
from latewood.types import DbId, JobId

if TYPE_CHECKING:
    import asyncio

K = TypeVar("K")
R = TypeVar("R", bound=Record)
_MS: Final = 1_000_000


class Host(Protocol):
    """As much of a catalog as its transactions need."""

    def reserve_job_id(self) -> JobId:
        """Return an id that was never given out."""
        ...

    def scan_chunks(self, db_id: DbId) -> Iterator[tuple[ChunkKey, ChunkRecord]]:
        """Yield the chunks of a database."""
        ...


class CatalogTxn:
    """A batch in the making.  For one thread, and for one commit."""

    __slots__ = ("_clock", "_host", "_ops", "_writer")

    def __init__(self, writer: Writer, clock: Clock, host: Host) -> None:
        self._writer, self._clock, self._host = writer, clock, host
        self._ops: list[Op] | None = []

    # -- databases and shards ---------------------------------------------------------------------------------

    def put_db(self, db_id: DbId, record: DbRecord) -> None:
        """Make or change a database.  ConflictError at commit if another living one has its name."""
        self.add(PutDb(db_id, record))

    def delete_db(self, db_id: DbId) -> None:
        """Forget a tombstoned database.  UsageError at commit if it lives."""
        self.add(DeleteDb(db_id))

    def put_wal_state(self, key: WalStateKey, record: WalStateRecord) -> None:
        """Store how far a shard has come."""
        self.add(PutWalState(key, record))

    def delete_wal_state(self, key: WalStateKey) -> None:
        """Forget a shard."""
        self.add(DeleteWalState(key))

    # -- chunks -----------------------------------------------------------------------------------------------

    def upsert_chunk(self, key: ChunkKey, record: ChunkRecord) -> None:
        """Make or change a chunk's row."""
        self.add(UpsertChunk(key, record))

    def delete_chunk(self, key: ChunkKey) -> None:
        """Forget a chunk."""
        self.add(DeleteChunk(key))

    def scan_chunks(self, db_id: DbId) -> Iterator[tuple[ChunkKey, ChunkRecord]]:
        """Yield the committed chunks of a database, a page at a time; not what waits in this batch."""
        return self._host.scan_chunks(db_id)

    # -- jobs -------------------------------------------------------------------------------------------------

    def enqueue_job(self, record: JobRecord) -> JobId:
        """Let a new job wait and return its id; an id of 0 is replaced with a reserved one.

        UniqueJobAlreadyPending at commit if one of its database and kind waits already.
        """
        if not record.job_id:
            record = replace(record, job_id=self._host.reserve_job_id())
        self.add(EnqueueJob(record))
        return record.job_id

    def update_job_state(self, job_id: JobId, state: JobState) -> None:
        """Put a job into a state, its indices and gate in step.  Prefer the transitions below: they check leases."""
        self.add(UpdateJobState(job_id, state, self._now_ms()))

    def remove_job(self, job_id: JobId) -> None:
        """Forget a job that no worker has.  ConflictError at commit if it holds a gate."""
        self.add(RemoveJob(job_id))

    def acquire_job(self, job_id: JobId, worker_id: str, lease_ms: int) -> None:
        """Give a pending job to a worker; its lease is `Lease(worker_id, attempts)` of the job as it is then.

        ConflictError at commit if it is not pending and due; GateClosed if another holds the gate.
        """
        self.add(AcquireJob(job_id, worker_id, self._now_ms(), lease_ms))

    def renew_job(
        self, job_id: JobId, lease: Lease, lease_ms: int, *, done: int | None = None, total: int | None = None
    ) -> None:
        """Note a heartbeat and progress.  LeaseLost at commit if the job is no longer this worker's."""
        self.add(RenewJob(job_id, lease, self._now_ms(), lease_ms, done, total))

    def complete_job(self, job_id: JobId, lease: Lease) -> None:
        """End a job well.  LeaseLost at commit if it is no longer this worker's."""
        self.add(CompleteJob(job_id, lease, self._now_ms()))

    def retry_job(self, job_id: JobId, lease: Lease, error: JobError, not_before_ms: int) -> None:
        """Let a job that failed wait again; at its last attempt it fails.  LeaseLost at commit as above."""
        self.add(RetryJob(job_id, lease, self._now_ms(), error, not_before_ms))

    def fail_job(self, job_id: JobId, lease: Lease, error: JobError) -> None:
        """End a job badly, for good.  LeaseLost at commit as above."""
        self.add(FailJob(job_id, lease, self._now_ms(), error))

    def cancel_job(self, job_id: JobId) -> None:
        """Call a job off: at once if it waits, else by `cancel_requested`.  UsageError at commit if it is a repair."""
        self.add(CancelJob(job_id, self._now_ms()))

    def abort_job(self, job_id: JobId, lease: Lease) -> None:
        """End a job in flight that was called off.  LeaseLost at commit as above."""
        self.add(AbortJob(job_id, lease, self._now_ms()))

    def break_off_job(self, job_id: JobId, attempt: int) -> JobId:
        """Take a job from a worker that is dead or silent, and return the id of its repair, should it need one.

        ConflictError at commit if it is not in flight at that attempt any more.
        """
        repair_job_id = self._host.reserve_job_id()
        self.add(BreakOffJob(job_id, attempt, self._now_ms(), repair_job_id))
        return repair_job_id

    def release_job(self, job_id: JobId, lease: Lease, error: JobError) -> None:
        """Give a job back; the attempt does not count.  `error` says why, should another wait in its place.

        LeaseLost at commit as above.
        """
        self.add(ReleaseJob(job_id, lease, self._now_ms(), error))

    def revive_job(self, job_id: JobId, attempts_more: int = ATTEMPTS_USUAL) -> None:
        """Let a job that failed or was called off wait again, with so many attempts more.

        UniqueJobAlreadyPending at commit as above.
        """
        self.add(ReviveJob(job_id, self._now_ms(), attempts_more))

    # -- metrics and generations ------------------------------------------------------------------------------

    def merge_metric(self, key: MetricKey, delta: MetricDelta) -> None:
        """Add measurements to a metric."""
        self.add(MergeMetric(key, delta, self._now_ms()))

    def bump_generation(self, component: int, increment: int = 1) -> None:
        """Raise a component's generation.  The catalog's own goes up by itself."""
        self.add(BumpGeneration(component, increment))

    # -- conditions -------------------------------------------------------------------------------------------

    def require_generation(self, component: int, generation: int) -> None:
        """Fail this batch with ConflictError unless a component is at exactly this generation."""
        self.add(RequireGeneration(component, generation))

    def require_record(self, table: Table[K, R], key: K, record: R | None) -> None:
        """Fail this batch with ConflictError unless a row is exactly this, or with None: is not there."""
        self.add(RequireRecord(table, key, record))

    def require_lease(self, job_id: JobId, lease: Lease) -> None:
        """Fail this batch with LeaseLost unless a job is leased to this worker."""
        self.add(RequireLease(job_id, lease))

    def require(self, *conditions: Op) -> None:
        """Fail this batch unless these conditions hold when it is applied."""
        self.extend(conditions)

    # -- the batch --------------------------------------------------------------------------------------------

    def add(self, op: Op) -> None:
        """Add any operation."""
        self._open().append(op)

    def extend(self, ops: Iterable[Op]) -> None:
        """Add any operations, for instance those that `gate` decided on."""
        self._open().extend(ops)

    def __len__(self) -> int:
        return len(self._ops or ())

    def commit(self) -> CommitReceipt:
        """Make all of it durable and return the generation, or raise and leave nothing of it.

        Blocks for the disk.  Without operations it returns when everything before it is durable.

        Raises:
            UsageError, NotFoundError, ConflictError: an operation cannot be applied; nothing was written.
            UnavailableError: no room, or the queue stayed full; nothing was written.
            Poisoned: the environment failed; whether this batch is durable shows after reopening.
            ClosedError: the catalog is closed.
        """
        return self._writer.commit(self._taken())

    def commit_async(self) -> "Future[CommitReceipt]":
        """Send all of it to the writer and return a future of its receipt, or of its error.

        Blocks only while the queue is full.  Callbacks of the future run in the writer's thread: be quick there, and
        do not wait for a commit.

        Raises:
            Backpressure: the queue stayed full; nothing was written.
            ClosedError: the catalog is closed.
        """
        future: Future[CommitReceipt] = Future()
        future.set_running_or_notify_cancel()  # What is in the queue cannot be taken back.
        self._writer.submit(self._taken(), future)
        return future

    async def committed(self) -> CommitReceipt:
        """Make all of it durable, as `commit` does, for coroutines: nothing blocks.

        If the waiting coroutine is cancelled, the batch is committed all the same.

        Raises:
            Backpressure: the queue is full; nothing was written.
            LatewoodError: as `commit` does.
        """
        from asyncio import get_running_loop  # noqa: PLC0415 - takes 40 ms to import

        loop = get_running_loop()
        future: asyncio.Future[CommitReceipt] = loop.create_future()
        self._writer.submit(self._taken(), future, loop)
        return await future

    def _open(self) -> list[Op]:
        if self._ops is None:
            message = "this transaction was committed; begin another"
            raise UsageError(message)
        return self._ops

    def _taken(self) -> list[Op]:
        ops, self._ops = self._open(), None
        return ops

    def _now_ms(self) -> int:
        return self._clock.now_ns() // _MS
