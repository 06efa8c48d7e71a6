"""CatalogView: everything in the catalog, as of one moment.

A view lives as long as the callback of `Catalog.read` that it was handed to.  Its scans are iterators over that
snapshot: use them up before the callback returns.
"""

from collections.abc import Iterator
from typing import TypeVar

from latewood.catalog.rows import RowReader
from latewood.catalog.tables import (
    ARCHIVES,
    CHANGE_CURSOR,
    CHUNK,
    DB,
    DB_NAME,
    GENERATION,
    JOB,
    JOB_GATE,
    JOB_LIVE,
    JOB_PENDING,
    METRIC,
    RUNTIME_STATE,
    TABLES,
    WAL_STATE,
    ChangeCursorRecord,
    ChunkKey,
    ChunkRecord,
    DbRecord,
    GateKey,
    GateRecord,
    GenerationRecord,
    JobLiveKey,
    JobLiveRecord,
    JobPhase,
    JobRecord,
    MetricKey,
    MetricRecord,
    PendingJobKey,
    Record,
    RuntimeRecord,
    Table,
    WalStateKey,
    WalStateRecord,
)
from latewood.types import DbId, JobId

K = TypeVar("K")
R = TypeVar("R", bound=Record)


class CatalogView:
    """A snapshot of the catalog."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    def get(self, table: Table[K, R], key: K) -> R | None:
        """Return a row of any table, or None."""
        return self._rows.get(table, key)

    def scan(self, table: Table[K, R], start: K | None = None) -> Iterator[tuple[K, R]]:
        """Yield the rows of any table in the order of their keys, from `start` on."""
        return self._rows.scan(table, b"" if start is None else table.pack_key(start))

    def count(self, table: Table[K, R]) -> int:
        """Return how many rows a table has, without looking at them."""
        return self._rows.count(table)

    def counts(self) -> dict[str, int]:
        """Return how many rows each table has."""
        return {table.name: self._rows.count(table) for table in TABLES}

    def check_counts(self) -> None:
        """Count the rows of all tables, and compare with what LMDB counted: about half a microsecond a row.

        Raises:
            CatalogCorrupted: a damaged page hides rows.
        """
        for table in TABLES:
            self._rows.check_count(table)

    def db(self, db_id: DbId) -> DbRecord | None:
        """Return a database, or None."""
        return self._rows.get(DB, db_id)

    def db_by_name(self, name: str) -> tuple[DbId, DbRecord] | None:
        """Return the living database of that name, or None."""
        found = self._rows.get(DB_NAME, name)
        record = None if found is None else self._rows.get(DB, found.db_id)
        return None if found is None or record is None else (found.db_id, record)

    def dbs(self) -> Iterator[tuple[DbId, DbRecord]]:
        """Yield every database, tombstoned ones too, in the order of their ids."""
        return self._rows.scan(DB)

    def wal_state(self, db_id: DbId, shard: int) -> WalStateRecord | None:
        """Return how far a shard has come, or None."""
        return self._rows.get(WAL_STATE, WalStateKey(db_id, shard))

    def wal_states(self, db_id: DbId) -> Iterator[tuple[WalStateKey, WalStateRecord]]:
        """Yield the shards of a database, in order."""
        return self._rows.scan(WAL_STATE, prefix=DB.pack_key(db_id))

    def chunk(self, db_id: DbId, chunk_id: int) -> ChunkRecord | None:
        """Return a chunk, or None."""
        return self._rows.get(CHUNK, ChunkKey(db_id, chunk_id))

    def chunks(self, db_id: DbId) -> Iterator[tuple[ChunkKey, ChunkRecord]]:
        """Yield the chunks of a database, in the order of their ids."""
        return self._rows.scan(CHUNK, prefix=DB.pack_key(db_id))

    def job(self, job_id: JobId) -> JobRecord | None:
        """Return a job, or None."""
        return self._rows.get(JOB, job_id)

    def pending_job(self, db_id: DbId, kind: int) -> JobId | None:
        """Return the job that waits in the one place of this database and kind, or None."""
        record = self._rows.get(JOB_PENDING, PendingJobKey(db_id, kind))
        return None if record is None else record.job_id

    def gate(self, db_id: DbId, kind: int) -> GateRecord:
        """Return a gate; one that nobody ever passed is open."""
        return self._rows.get(JOB_GATE, GateKey(db_id, kind)) or GateRecord()

    def gates(self) -> Iterator[tuple[GateKey, GateRecord]]:
        """Yield every gate that somebody passed."""
        return self._rows.scan(JOB_GATE)

    def live_jobs(self, phase: JobPhase | None = None) -> Iterator[tuple[JobLiveKey, JobLiveRecord]]:
        """Yield the jobs that are not finished; of one phase: pending ones by priority, others by time."""
        return self._rows.scan(JOB_LIVE, prefix=b"" if phase is None else bytes([phase]))

    def due_jobs(self, now_ms: int) -> Iterator[tuple[JobLiveKey, JobLiveRecord]]:
        """Yield the pending jobs whose time has come, the most urgent first, those that wait longest first.

        Whether their gates let them pass is not looked at.
        """
        start = JobLiveKey(JobPhase.PENDING, 0, 0, 0)
        while found := self._first_live(start):
            priority = found[0].priority
            for key, record in self._rows.scan(JOB_LIVE, JOB_LIVE.pack_key(found[0]), bytes([JobPhase.PENDING])):
                if key.priority != priority or key.due_ms > now_ms:
                    break
                yield key, record
            start = JobLiveKey(JobPhase.PENDING, priority + 1, 0, 0)

    def next_due_ms(self) -> int | None:
        """Return when the first pending job is due, perhaps long ago; None if none is pending."""
        start, earliest = JobLiveKey(JobPhase.PENDING, 0, 0, 0), None
        while found := self._first_live(start):
            earliest = found[0].due_ms if earliest is None else min(earliest, found[0].due_ms)
            start = JobLiveKey(JobPhase.PENDING, found[0].priority + 1, 0, 0)
        return earliest

    def metric(self, scope: int, kind: int) -> MetricRecord | None:
        """Return a metric, or None."""
        return self._rows.get(METRIC, MetricKey(scope, kind))

    def metrics(self) -> Iterator[tuple[MetricKey, MetricRecord]]:
        """Yield every metric."""
        return self._rows.scan(METRIC)

    def generation(self, component: int) -> int:
        """Return a component's generation; 0 if it never committed."""
        record = self._rows.get(GENERATION, component)
        return 0 if record is None else record.current_generation

    def generations(self) -> Iterator[tuple[int, GenerationRecord]]:
        """Yield every component's generation, with who waited at its last commit."""
        return self._rows.scan(GENERATION)

    def cursors(self) -> Iterator[tuple[str, ChangeCursorRecord]]:
        """Yield every cursor of the change log."""
        return self._rows.scan(CHANGE_CURSOR)

    def runtime_state(self, name: str) -> RuntimeRecord | None:
        """Return what the catalog notes of itself: `environment`, `session` or `archives`."""
        return self._rows.get(RUNTIME_STATE, name)

    def archives(self) -> dict[str, bytes]:
        """Return the identity of each archive that chunks were put in, by its address."""
        return (self._rows.get(RUNTIME_STATE, ARCHIVES) or RuntimeRecord()).archives

    def _first_live(self, start: JobLiveKey) -> tuple[JobLiveKey, JobLiveRecord] | None:
        if start.priority > 0xFFFF:  # noqa: PLR2004 - the key has 16 bits for it
            return None
        return next(self._rows.scan(JOB_LIVE, JOB_LIVE.pack_key(start), bytes([start.phase])), None)
