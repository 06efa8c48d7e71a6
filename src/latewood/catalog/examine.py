"""`python -m latewood.catalog.examine FILE`: what `check` runs in a child process.  Each finding is a line of JSON."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from latewood.catalog.check import Later, Problem, TableCount
from latewood.catalog.env import LMDBEnv
from latewood.catalog.gate import flush_gate_state
from latewood.catalog.migrate import check_versions
from latewood.catalog.options import CatalogOptions
from latewood.catalog.preflight import look_at
from latewood.catalog.rows import RowReader
from latewood.catalog.tables import TABLES
from latewood.catalog.tables.db import DB, DB_NAME, DbTombstoned
from latewood.catalog.tables.job import JOB, AwaitingRepair, InFlight, JobKind, JobRecord, Pending
from latewood.catalog.tables.job_gate import JOB_GATE, GateKey
from latewood.catalog.tables.job_index import JOB_LIVE, JOB_PENDING, live_key, pending_key
from latewood.catalog.tables.record import Table
from latewood.catalog.tables.wal_state import WAL_STATE
from latewood.errors import CatalogCorrupted, LatewoodError, UnsupportedVersion
from latewood.fs import PosixFS


def examine(rows: RowReader) -> Iterator[Problem | TableCount]:
    """Yield what is wrong, and how many rows each table has."""
    is_readable = True
    for table in TABLES:
        count = 0
        for raw, value in rows.scan_raw(table):
            count += 1
            if problem := _unreadable(table, raw, value, rows.path):
                is_readable = False
                yield problem
        if problem := _miscounted(table, rows):
            is_readable = False
            yield problem
        yield TableCount(table.name, count)
    if is_readable:
        yield from _names(rows)
        yield from _jobs(rows)
        yield from _indices(rows)
        yield from _gates(rows)


def _unreadable(table: Table[Any, Any], raw: bytes, value: bytes, path: Path) -> Problem | None:
    try:
        table.unpack_key(raw, path)
        table.decode(raw, value, path)
    except UnsupportedVersion:
        raise
    except LatewoodError as error:
        return Problem(table.name, raw.hex(), getattr(error, "reason", str(error)))
    return None


def _miscounted(table: Table[Any, Any], rows: RowReader) -> Problem | None:
    try:
        rows.check_count(table)
    except CatalogCorrupted as error:
        return Problem(table.name, "", error.reason)
    return None


def _names(rows: RowReader) -> Iterator[Problem]:
    for name, holder in rows.scan(DB_NAME):
        record = rows.get(DB, holder.db_id)
        if record is None or record.name != name or isinstance(record.status, DbTombstoned):
            yield _problem(DB_NAME, name, f"database {holder.db_id} does not live under this name")
    for db_id, record in rows.scan(DB):
        named = rows.get(DB_NAME, record.name)
        if not isinstance(record.status, DbTombstoned) and (named is None or named.db_id != db_id):
            yield _problem(DB, db_id, f"name {record.name!r} does not lead to it")


def _jobs(rows: RowReader) -> Iterator[Problem]:
    for job_id, job in rows.scan(JOB):
        key, place = live_key(job), pending_key(job)
        if job.job_id != job_id:
            yield _problem(JOB, job_id, f"says that it is job {job.job_id}")
        if key is not None and rows.get(JOB_LIVE, key) is None:
            yield _problem(JOB, job_id, "is not finished, but not in job_live")
        if place is not None and isinstance(job.state, Pending):
            holder = rows.get(JOB_PENDING, place)
            if holder is None or holder.job_id != job_id:
                yield _problem(JOB, job_id, "is pending, but not in job_pending_index")
        yield from _gate_of(rows, job)


def _gate_of(rows: RowReader, job: JobRecord) -> Iterator[Problem]:
    if not job.is_gated or not isinstance(job.state, InFlight | AwaitingRepair):
        return
    assert job.db_id is not None
    gate = rows.get(JOB_GATE, GateKey(job.db_id, job.gate_kind))
    if gate is None or job.job_id not in (gate.active_job_id, gate.repair_job_id):
        yield _problem(JOB, job.job_id, "is under way, but its gate does not know it")


def _indices(rows: RowReader) -> Iterator[Problem]:
    for key, _ in rows.scan(JOB_LIVE):
        job = rows.get(JOB, key.job_id)
        if job is None or live_key(job) != key:
            yield _problem(JOB_LIVE, key, f"job {key.job_id} does not belong here")
    for place, holder in rows.scan(JOB_PENDING):
        job = rows.get(JOB, holder.job_id)
        if job is None or not isinstance(job.state, Pending) or pending_key(job) != place:
            yield _problem(JOB_PENDING, place, f"job {holder.job_id} does not wait here")


def _gates(rows: RowReader) -> Iterator[Problem]:
    for key, gate in rows.scan(JOB_GATE):
        holder = None if gate.active_job_id is None else rows.get(JOB, gate.active_job_id)
        if gate.active_job_id is not None and (
            holder is None or holder.is_finished or isinstance(holder.state, Pending)
        ):
            yield _problem(JOB_GATE, key, f"closed by job {gate.active_job_id}, which is not under way")
        if key.kind == JobKind.FLUSH:
            for shard, state in rows.scan(WAL_STATE, prefix=DB.pack_key(key.db_id)):
                if state.flush_gate_state.active_job_id != flush_gate_state(gate).active_job_id:
                    yield _problem(WAL_STATE, shard, "shows another flush gate than job_gate")


def _problem(table: Table[Any, Any], key: Any, reason: str) -> Problem:
    return Problem(table.name, table.pack_key(key).hex(), reason)


def main() -> int:
    """Examine the file that the command line names."""
    path = Path(sys.argv[1])
    try:
        state = look_at(PosixFS(), path)
        env = LMDBEnv(path, CatalogOptions(), writable=False, file_bytes=state.file_bytes)
        env.read(_check_versions)
        env.read(_print_all)
    except UnsupportedVersion as error:
        _print(Later(error.what, error.version))
    except LatewoodError as error:
        table, key = getattr(error, "table", ""), getattr(error, "key", b"")
        _print(Problem(table, key.hex(), getattr(error, "reason", str(error))))
    return 0


def _check_versions(rows: RowReader) -> None:
    with suppress(CatalogCorrupted):  # `examine` reports it with the rows of its table.
        check_versions(rows)


def _print_all(rows: RowReader) -> None:
    for item in examine(rows):
        _print(item)


def _print(item: Problem | TableCount | Later) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(item) + b"\n")
    sys.stdout.buffer.flush()  # What was found must survive a death in the next row.


if __name__ == "__main__":
    sys.exit(main())
