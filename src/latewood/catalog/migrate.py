"""Bringing rows of older versions up to date, and building the indices that they did not have.

Runs at open, in transactions of a bounded size, and begins anew if it was cut off: a row is rewritten only if its
version is older, and the new versions are noted last.  A catalog whose versions are noted is not looked through.
"""

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from latewood.catalog.env import LMDBEnv
from latewood.catalog.rows import RowReader, RowWriter
from latewood.catalog.tables import TABLES
from latewood.catalog.tables.db import DB, DB_NAME, DbNameRecord, DbTombstoned
from latewood.catalog.tables.job import JOB, InFlight, JobRecord, Pending
from latewood.catalog.tables.job_gate import JOB_GATE, GateKey, GateRecord
from latewood.catalog.tables.job_index import (
    JOB_LIVE,
    JOB_PENDING,
    JobPendingRecord,
    live_key,
    live_record,
    pending_key,
)
from latewood.catalog.tables.record import Table
from latewood.catalog.tables.runtime_state import ENVIRONMENT, FORMAT, RUNTIME_STATE, RuntimeRecord
from latewood.errors import UnsupportedVersion
from latewood.limits import CATALOG_PAGE_ROWS

_logger: Final = logging.getLogger(__name__)
VERSIONS: Final = {table.name: table.version for table in TABLES}


def check_versions(rows: RowReader) -> RuntimeRecord | None:
    """Return what the catalog notes of its versions; None if it is new, or of a time before it noted them.

    Raises:
        UnsupportedVersion: a later program wrote it.
    """
    record = rows.get(RUNTIME_STATE, ENVIRONMENT)
    if record is None:
        return None
    if record.format > FORMAT:
        raise UnsupportedVersion("catalog", record.format, rows.path)
    for name, version in record.table_versions.items():
        if version > VERSIONS.get(name, version):
            raise UnsupportedVersion(f"catalog table {name!r}", version, rows.path)
    return record


def migrate(env: LMDBEnv, at_ms: int) -> int:
    """Bring every row up to date, and return how many were rewritten.

    Raises:
        UnsupportedVersion: a later program wrote the catalog, or a row of it.
        CatalogCorrupted: a row cannot be read.
    """
    noted = env.read(check_versions)
    if noted is not None and noted.table_versions == VERSIONS:
        return 0
    rewritten = sum(_rewrite_table(env, table) for table in TABLES)
    if rewritten:
        _build_indices(env)
        _logger.info("%s: brought %d rows up to date", env.path, rewritten)
    created_at_ms = at_ms if noted is None else noted.created_at_ms
    with env.writing() as rows:
        rows.put(RUNTIME_STATE, ENVIRONMENT, RuntimeRecord(created_at_ms=created_at_ms, table_versions=VERSIONS))
    return rewritten


def _rewrite_table(env: LMDBEnv, table: Table[Any, Any]) -> int:
    rewritten, start = 0, b""
    while True:
        page = _page(env, table, start)
        old = [(raw, value) for raw, value in page if table.version_of(value) != table.version]
        if old:
            with env.writing() as rows:
                for raw, value in old:
                    rows.put(table, table.unpack_key(raw, env.path), table.decode(raw, value, env.path))
            rewritten += len(old)
        if len(page) < CATALOG_PAGE_ROWS:
            return rewritten
        start = page[-1][0] + b"\0"


def _build_indices(env: LMDBEnv) -> None:
    """Build what is derived from `db` and `job_queue`."""
    start = b""
    while page := _page(env, DB, start):
        with env.writing() as rows:
            for raw, value in page:
                record = DB.decode(raw, value, env.path)
                if not isinstance(record.status, DbTombstoned):
                    rows.put(DB_NAME, record.name, DbNameRecord(db_id=DB.unpack_key(raw, env.path)))
        start = page[-1][0] + b"\0"
    start = b""
    while page := _page(env, JOB, start):
        with env.writing() as rows:
            for raw, value in page:
                _index_job(rows, JOB.decode(raw, value, env.path))
        start = page[-1][0] + b"\0"


def _index_job(rows: RowWriter, job: JobRecord) -> None:
    key, place = live_key(job), pending_key(job)
    if key is not None:
        rows.put(JOB_LIVE, key, live_record(job))
    if place is not None and isinstance(job.state, Pending) and rows.get(JOB_PENDING, place) is None:
        rows.put(JOB_PENDING, place, JobPendingRecord(job_id=job.job_id))
    if job.is_gated and isinstance(job.state, InFlight):
        assert job.db_id is not None
        gate = GateRecord(active_job_id=job.job_id, closed_since_ms=job.state.leased_at_ms)
        rows.put(JOB_GATE, GateKey(job.db_id, job.gate_kind), gate)


def _page(env: LMDBEnv, table: Table[Any, Any], start: bytes) -> list[tuple[bytes, bytes]]:
    def take(rows: RowReader) -> Iterator[tuple[bytes, bytes]]:
        return islice(rows.scan_raw(table, start), CATALOG_PAGE_ROWS)

    return env.read(lambda rows: list(take(rows)))
