"""The operations on single tables: one frozen class each, with one `apply`.

Operations are applied in order by the writer thread, within its transaction.  One that cannot be applied raises, and
with it fails its whole batch and nothing else.  What moves a job from state to state is in `job_ops`.
"""

from typing import Any

import msgspec

from latewood.catalog.changes import truncate_changes
from latewood.catalog.rows import RowWriter
from latewood.catalog.tables.change_log import CHANGE_CURSOR, CHANGE_LOG, ChangeCursorRecord, ChangePosition
from latewood.catalog.tables.chunk import CHUNK, ChunkKey, ChunkRecord
from latewood.catalog.tables.db import DB, DB_NAME, DbNameRecord, DbRecord, DbTombstoned
from latewood.catalog.tables.generation import GENERATION, Component
from latewood.catalog.tables.job import JOB, AwaitingRepair, InFlight, JobRecord, Pending
from latewood.catalog.tables.job_gate import JOB_GATE, GateKey, GateRecord
from latewood.catalog.tables.job_index import (
    JOB_LIVE,
    JOB_PENDING,
    JobPendingRecord,
    PendingJobKey,
    live_key,
    live_record,
    pending_key,
)
from latewood.catalog.tables.metric import METRIC, MetricDelta, MetricKey, merged
from latewood.catalog.tables.record import Table
from latewood.catalog.tables.runtime_state import RUNTIME_STATE, RuntimeRecord
from latewood.catalog.tables.wal_state import WAL_STATE, FlushGateState, WalStateKey, WalStateRecord
from latewood.errors import ConflictError, NotFoundError, UniqueJobAlreadyPending, UsageError
from latewood.limits import JOB_BYTES_MAX, U32_MAX, U64_MAX, check_number


class Op(msgspec.Struct, frozen=True):
    """One change, or one condition, of a batch."""

    def apply(self, rows: RowWriter) -> None:
        """Do it within the writer's transaction."""
        raise NotImplementedError


class PutDb(Op, frozen=True):
    """Make or change a database.  No two that live may have one name."""

    db_id: int
    record: DbRecord

    def apply(self, rows: RowWriter) -> None:
        """Store it, and keep the index of names in step."""
        old, name = rows.get(DB, self.db_id), self.record.name
        holder = rows.get(DB_NAME, name)
        lives = not isinstance(self.record.status, DbTombstoned)
        if lives and holder is not None and holder.db_id != self.db_id:
            message = f"database {holder.db_id} is called {name!r} already"
            raise ConflictError(message)
        if old is not None and old.name != name:
            rows.delete(DB_NAME, old.name)
        if lives:
            rows.put(DB_NAME, name, DbNameRecord(db_id=self.db_id))
        elif holder is not None and holder.db_id == self.db_id:
            rows.delete(DB_NAME, name)
        rows.put(DB, self.db_id, self.record)


class DeleteDb(Op, frozen=True):
    """Forget a tombstoned database."""

    db_id: int

    def apply(self, rows: RowWriter) -> None:
        """Remove its row; the name went when it was tombstoned."""
        old = rows.get(DB, self.db_id)
        if old is not None and not isinstance(old.status, DbTombstoned):
            message = f"database {self.db_id} lives; tombstone it first"
            raise UsageError(message)
        rows.delete(DB, self.db_id)


class PutWalState(Op, frozen=True):
    """Store how far a shard has come."""

    key: WalStateKey
    record: WalStateRecord

    def apply(self, rows: RowWriter) -> None:
        """Store it."""
        rows.put(WAL_STATE, self.key, self.record)


class DeleteWalState(Op, frozen=True):
    """Forget a shard."""

    key: WalStateKey

    def apply(self, rows: RowWriter) -> None:
        """Remove it, if it is there."""
        rows.delete(WAL_STATE, self.key)


class SetFlushGate(Op, frozen=True):
    """Show the state of a database's flush gate in each of its shards."""

    db_id: int
    state: FlushGateState

    def apply(self, rows: RowWriter) -> None:
        """Rewrite the shards' rows that show something else."""
        prefix = DB.pack_key(self.db_id)
        for key, record in list(rows.scan(WAL_STATE, prefix=prefix)):
            if record.flush_gate_state != self.state:
                rows.put(WAL_STATE, key, msgspec.structs.replace(record, flush_gate_state=self.state))


class UpsertChunk(Op, frozen=True):
    """Make or change a chunk's row."""

    key: ChunkKey
    record: ChunkRecord

    def apply(self, rows: RowWriter) -> None:
        """Store it."""
        if self.record.sequence_max < self.record.sequence_min:
            message = f"chunk {self.key.chunk_id} ends at {self.record.sequence_max}, before it begins"
            raise UsageError(message)
        rows.put(CHUNK, self.key, self.record)


class DeleteChunk(Op, frozen=True):
    """Forget a chunk."""

    key: ChunkKey

    def apply(self, rows: RowWriter) -> None:
        """Remove it, if it is there."""
        rows.delete(CHUNK, self.key)


class PutJob(Op, frozen=True):
    """Store a job as it is given, with its rows in both indices.

    Raises the generation of JOBS, for which workers wait.  Only what is between a worker and its own job does not: a
    claim, a heartbeat.
    """

    record: JobRecord

    def apply(self, rows: RowWriter) -> None:
        """Store it; a second pending job of a database and kind is refused, and a new one that is too large."""
        new = self.record
        old = rows.get(JOB, new.job_id)
        _put_in_live_index(rows, old, new)
        _put_in_pending_index(rows, old, new)
        size = rows.put(JOB, new.job_id, new)
        if size > JOB_BYTES_MAX and old is None and new.repairs_kind is None:
            message = f"job {new.job_id} has {size:,} bytes with its payload; at most {JOB_BYTES_MAX:,}"
            raise UsageError(message)
        if _is_news(old, new):
            rows.bumped[Component.JOBS] = generation_of(rows, Component.JOBS) + 1


class RemoveJob(Op, frozen=True):
    """Forget a job that no worker has."""

    job_id: int

    def apply(self, rows: RowWriter) -> None:
        """Remove it with its rows in the indices, if it is there."""
        old = rows.get(JOB, self.job_id)
        if old is None:
            return
        if isinstance(old.state, InFlight | AwaitingRepair) or (old.repairs_kind is not None and not old.is_finished):
            message = f"job {self.job_id} holds a gate, or is to open one; let it finish"
            raise ConflictError(message)
        _put_in_live_index(rows, old, None)
        _put_in_pending_index(rows, old, None)
        rows.delete(JOB, self.job_id)


class UpsertPendingIndex(Op, frozen=True):
    """Write the pending index by itself.  Jobs keep it in step; this mends it."""

    key: PendingJobKey
    job_id: int

    def apply(self, rows: RowWriter) -> None:
        """Store it."""
        rows.put(JOB_PENDING, self.key, JobPendingRecord(job_id=self.job_id))


class DeletePendingIndex(Op, frozen=True):
    """Remove a row of the pending index by itself.  Jobs keep it in step; this mends it."""

    key: PendingJobKey

    def apply(self, rows: RowWriter) -> None:
        """Remove it, if it is there."""
        rows.delete(JOB_PENDING, self.key)


class PutGate(Op, frozen=True):
    """Store a gate as it is given."""

    key: GateKey
    record: GateRecord

    def apply(self, rows: RowWriter) -> None:
        """Store it."""
        rows.put(JOB_GATE, self.key, self.record)


class MergeMetric(Op, frozen=True):
    """Add measurements to a metric."""

    key: MetricKey
    delta: MetricDelta
    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Store the moments of old and new together."""
        rows.put(METRIC, self.key, merged(rows.get(METRIC, self.key), self.delta, self.at_ms))


class BumpGeneration(Op, frozen=True):
    """Raise a component's generation.  The catalog's own goes up by itself."""

    component: int
    increment: int = 1

    def apply(self, rows: RowWriter) -> None:
        """Note it; the writer stores every component's sum once, at the end of its transaction."""
        current = generation_of(rows, self.component)
        increment: object = self.increment  # Whoever calls this may not have checked its type.
        is_sound = isinstance(increment, int) and 0 < increment <= U64_MAX - current
        if self.component == Component.CATALOG or not is_sound:
            message = f"generation of component {self.component}, {current}, cannot be raised by {increment!r}"
            raise UsageError(message)
        rows.bumped[self.component] = current + self.increment


class PutCursor(Op, frozen=True):
    """Make a cursor of the change log, unless there is one of that name."""

    name: str
    generation: int | None
    """The last generation that it need not see; None: the present one."""
    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Store it."""
        if rows.get(CHANGE_CURSOR, self.name) is None:
            at = generation_of(rows, Component.CATALOG) if self.generation is None else self.generation
            check_number(at, U64_MAX, "generation")  # It is compared with those of all cursors.
            record = ChangeCursorRecord(generation=at, ordinal=U32_MAX, acknowledged_at_ms=self.at_ms)
            rows.put(CHANGE_CURSOR, self.name, record)
            rows.is_logging = True


class AcknowledgeChanges(Op, frozen=True):
    """Move a cursor on, and drop what no cursor needs any more."""

    name: str
    upto: ChangePosition
    at_ms: int

    def apply(self, rows: RowWriter) -> None:
        """Store the cursor; a position behind where it stands changes nothing."""
        old = rows.get(CHANGE_CURSOR, self.name)
        if old is None:
            message = f"there is no cursor {self.name!r} of the change log"
            raise NotFoundError(message)
        if self.upto.generation > generation_of(rows, Component.CATALOG):
            message = f"generation {self.upto.generation} has not come yet"
            raise UsageError(message)
        CHANGE_LOG.pack_key(self.upto)  # What cannot be a key would stop the truncation for all cursors.
        generation, ordinal = max(old.position, self.upto)
        lost = 0 if generation >= old.lost_generation else old.lost_generation
        record = ChangeCursorRecord(
            generation=generation, ordinal=ordinal, acknowledged_at_ms=self.at_ms, lost_generation=lost
        )
        rows.put(CHANGE_CURSOR, self.name, record)
        truncate_changes(rows)


class RemoveCursor(Op, frozen=True):
    """Forget a cursor, and drop what only it needed."""

    name: str

    def apply(self, rows: RowWriter) -> None:
        """Remove it, if it is there."""
        if rows.delete(CHANGE_CURSOR, self.name):
            truncate_changes(rows)


class PutRuntimeState(Op, frozen=True):
    """Store one of the rows that tell of the catalog itself."""

    name: str
    record: RuntimeRecord

    def apply(self, rows: RowWriter) -> None:
        """Store it."""
        rows.put(RUNTIME_STATE, self.name, self.record)


class RequireGeneration(Op, frozen=True):
    """A condition: a component has exactly this generation.  For CATALOG: before this batch's own commit."""

    component: int
    generation: int

    def apply(self, rows: RowWriter) -> None:
        """Raise unless it holds."""
        current = generation_of(rows, self.component)
        if current != self.generation:
            message = f"component {self.component} is at generation {current}, not {self.generation}"
            raise ConflictError(message)


class RequireRecord(Op, frozen=True):
    """A condition: a row is exactly this record, or with None: is not there."""

    table: Table[Any, Any]
    key: Any
    record: Any

    def apply(self, rows: RowWriter) -> None:
        """Raise unless it holds."""
        current = rows.get(self.table, self.key)
        if current != self.record:
            message = f"table {self.table.name!r}, key {self.key}: the row has changed"
            raise ConflictError(message)


def generation_of(rows: RowWriter, component: int) -> int:
    """Return a component's generation as this transaction sees it, its own bumps counted in."""
    if component in rows.bumped:
        return rows.bumped[component]
    record = rows.get(GENERATION, component)
    return 0 if record is None else record.current_generation


def _is_news(old: JobRecord | None, new: JobRecord) -> bool:
    """Say whether somebody else than the worker of a job must learn of a change."""
    was_called_off = old is not None and old.cancel_requested
    return not isinstance(new.state, InFlight) or new.cancel_requested != was_called_off


def _put_in_live_index(rows: RowWriter, old: JobRecord | None, new: JobRecord | None) -> None:
    before = old and live_key(old)
    after = new and live_key(new)
    if before and before != after:
        rows.delete(JOB_LIVE, before)
    if new and after:
        rows.put(JOB_LIVE, after, live_record(new))


def _put_in_pending_index(rows: RowWriter, old: JobRecord | None, new: JobRecord | None) -> None:
    before = pending_key(old) if old and isinstance(old.state, Pending) else None
    after = pending_key(new) if new and isinstance(new.state, Pending) else None
    if new and after:
        holder = rows.get(JOB_PENDING, after)
        if holder is not None and holder.job_id != new.job_id:
            raise UniqueJobAlreadyPending(after.db_id, new.kind, holder.job_id)
        if holder is None:
            rows.put(JOB_PENDING, after, JobPendingRecord(job_id=new.job_id))
    if old and before and before != after:
        holder = rows.get(JOB_PENDING, before)
        if holder is not None and holder.job_id == old.job_id:
            rows.delete(JOB_PENDING, before)
