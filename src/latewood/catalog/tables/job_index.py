"""Two indices of `job_queue`: `job_pending_index` and `job_live`.

`job_pending_index` holds at most one pending job of each database and kind.  Key, `PENDING_KEY_SIZE` bytes, big-endian:

| offset | size | field | type | meaning                                                          |
| -----: | ---: | ----- | ---- | ---------------------------------------------------------------- |
|      0 |    8 | db_id | u64  | the database                                                     |
|      8 |    2 | kind  | u16  | kind of the job; of a repair 0x8000 + kind of the job it repairs |

`job_live` holds every job that is not finished, so that nobody scans the finished ones.  Key, `LIVE_KEY_SIZE` bytes,
big-endian:

| offset | size | field    | type  | meaning                                                                   |
| -----: | ---: | -------- | ----- | ------------------------------------------------------------------------- |
|      0 |    1 | phase    | u8    | 0 pending, 1 in flight, 2 awaiting repair                                 |
|      1 |    1 | pad      | zeros | written as 0                                                              |
|      2 |    2 | priority | u16   | of a pending job; 0 of others                                             |
|      4 |    8 | due_ms   | u64   | pending: not_before_ms; in flight: end of the lease; awaiting repair: since |
|     12 |    8 | job_id   | u64   | the job                                                                   |

Values, version 1: `JobPendingRecord` and `JobLiveRecord`.  Format: docs/format/catalog.md
"""

from enum import IntEnum
from typing import Final, NamedTuple

from latewood.catalog.tables.job import AwaitingRepair, InFlight, JobRecord, Pending
from latewood.catalog.tables.record import Record, Table, TupleKey
from latewood.limits import U64_MAX

PENDING_KEY_SIZE: Final = 10
LIVE_KEY_SIZE: Final = 20
VERSION: Final = 1
REPAIR_BIT: Final = 0x8000


class PendingJobKey(NamedTuple):
    """The one place for a pending job of a database and kind."""

    db_id: int
    kind: int


class JobPendingRecord(Record, frozen=True, kw_only=True):
    """Who has the place."""

    job_id: int


class JobPhase(IntEnum):
    """Where in its life a job that is not finished is."""

    PENDING = 0
    IN_FLIGHT = 1
    AWAITING_REPAIR = 2


class JobLiveKey(NamedTuple):
    """One job that is not finished, in the order in which somebody must look at it."""

    phase: int
    priority: int
    due_ms: int
    job_id: int


class JobLiveRecord(Record, frozen=True, kw_only=True):
    """As much of the job as picking one takes."""

    kind: int
    db_id: int | None = None
    gate_kind: int = 0
    """0: no gate."""


def pending_key(job: JobRecord) -> PendingJobKey | None:
    """Return the place that a job takes while it is pending; None if any number may wait."""
    if not job.is_gated:
        return None
    assert job.db_id is not None
    kind = job.kind if job.repairs_kind is None else REPAIR_BIT | job.repairs_kind
    return PendingJobKey(job.db_id, kind)


def live_key(job: JobRecord) -> JobLiveKey | None:
    """Return where a job stands in `job_live`; None if it is finished."""
    match job.state:
        case Pending():
            return JobLiveKey(JobPhase.PENDING, job.priority, min(job.not_before_ms, U64_MAX), job.job_id)
        case InFlight(expires_at_ms=expires_at_ms):
            return JobLiveKey(JobPhase.IN_FLIGHT, 0, expires_at_ms, job.job_id)
        case AwaitingRepair(since_ms=since_ms):
            return JobLiveKey(JobPhase.AWAITING_REPAIR, 0, since_ms, job.job_id)
        case _:
            return None


def live_record(job: JobRecord) -> JobLiveRecord:
    """Return a job's row in `job_live`."""
    return JobLiveRecord(kind=job.kind, db_id=job.db_id, gate_kind=job.gate_kind if job.is_gated else 0)


JOB_PENDING: Final = Table("job_pending_index", 6, TupleKey(">QH", PendingJobKey), JobPendingRecord, version=VERSION)
JOB_LIVE: Final = Table("job_live", 7, TupleKey(">BxHQQ", JobLiveKey), JobLiveRecord, version=VERSION, is_logged=False)
