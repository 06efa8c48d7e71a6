"""`job_queue`: every job, whatever became of it.

Key, `KEY_SIZE` bytes, big-endian:

| offset | size | field  | type | meaning                                          |
| -----: | ---: | ------ | ---- | ------------------------------------------------ |
|      0 |    8 | job_id | u64  | given out by `reserve_job_id`, never used again  |

Value, version 1: `JobRecord`.  Format: docs/format/catalog.md
"""

from enum import IntEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from latewood.catalog.tables.record import NumberKey, Record, Table
from latewood.limits import U16_MAX

KEY_SIZE: Final = 8
VERSION: Final = 1
PRIORITY_USUAL: Final = 100
ATTEMPTS_USUAL: Final = 5
_Small: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=U16_MAX)]


class JobKind(IntEnum):
    """What a job does.  Programs may use numbers of their own from CUSTOM to 32,767."""

    FLUSH = 1
    CHECKPOINT = 2
    COMPACT = 3
    ARCHIVE = 4
    REPAIR = 5
    """Mends what a job that broke off left, and alone may open that job's gate."""
    EVICT = 6
    PURGE = 7
    VERIFY = 8
    HYDRATE = 18
    RETAIN = 19
    MEND = 20
    """Mends a chunk that a scrub found broken."""
    REKEY = 21
    """Writes chunks that another key was used for anew."""
    CUSTOM = 1024


KIND_MAX: Final = 0x7FFF
"""The pending index marks repairs with the bit above."""


class Pending(Record, frozen=True, kw_only=True, tag=0):
    """Waits for a worker."""


class InFlight(Record, frozen=True, kw_only=True, tag=1):
    """A worker has it, until the lease expires or is renewed."""

    worker_id: str
    leased_at_ms: int
    expires_at_ms: int
    heartbeat_at_ms: int


class Completed(Record, frozen=True, kw_only=True, tag=2):
    """Done."""

    finished_at_ms: int


class FailedPermanent(Record, frozen=True, kw_only=True, tag=3):
    """Given up; `last_error` says why."""

    finished_at_ms: int


class Cancelled(Record, frozen=True, kw_only=True, tag=4):
    """Called off, or made needless by another; `last_error` says why."""

    finished_at_ms: int


class AwaitingRepair(Record, frozen=True, kw_only=True, tag=5):
    """Broke off in flight.  Its gate is closed until the repair job succeeds; then it is pending again."""

    since_ms: int
    repair_job_id: int


JobState: TypeAlias = Pending | InFlight | Completed | FailedPermanent | Cancelled | AwaitingRepair
FinishedState: TypeAlias = Completed | FailedPermanent | Cancelled


class JobError(Record, frozen=True, kw_only=True):
    """What went wrong at one attempt."""

    at_ms: int
    attempt: int
    kind: str
    """The name of the exception's class, or of what happened: `LeaseExpired`, `Superseded`, `Cancelled`."""
    message: str
    traceback: str = ""


class JobRecord(Record, frozen=True, kw_only=True):
    """One job: what is to be done, how far it is, and what went wrong so far."""

    job_id: int
    created_at_ms: int
    kind: Annotated[int, msgspec.Meta(ge=1, le=KIND_MAX)]
    db_id: int | None = None
    state: JobState = Pending()
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    last_error: JobError | None = None
    unique: bool = True
    """At most one such job of its database and kind is pending, and one in flight.  Without a database: nothing."""
    priority: _Small = PRIORITY_USUAL
    """The smallest is taken first."""
    not_before_ms: int = 0
    """No worker takes it before; how a retry backs off."""
    attempts: int = 0
    """How often it was leased; the number of the present lease."""
    attempts_max: int = ATTEMPTS_USUAL
    progress_done: int = 0
    progress_total: int | None = None
    cancel_requested: bool = False
    repairs_job_id: int | None = None
    """Of a repair: the job that broke off."""
    repairs_kind: int | None = None
    """Of a repair: that job's kind, whose gate it may open."""
    updated_at_ms: int = 0

    @property
    def is_gated(self) -> bool:
        """Whether a gate and the pending index watch over it."""
        return self.unique and self.db_id is not None

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come of it by itself."""
        return isinstance(self.state, Completed | FailedPermanent | Cancelled)

    @property
    def gate_kind(self) -> int:
        """The kind whose gate it goes through: its own, or of a repair that of the job it repairs."""
        return self.kind if self.repairs_kind is None else self.repairs_kind


def _from_version_0(body: bytes) -> JobRecord:
    """Version 0 was a map; states were words with a time, errors plain text, leases had no end."""
    old: dict[str, Any] = msgspec.msgpack.decode(body)
    at = old["state_at_ms"]
    states: dict[str, JobState] = {
        "pending": Pending(),
        "completed": Completed(finished_at_ms=at),
        "failed": FailedPermanent(finished_at_ms=at),
        "in_flight": InFlight(
            worker_id=old.get("worker_id", ""), leased_at_ms=at, expires_at_ms=at, heartbeat_at_ms=at
        ),
    }
    error = old["last_error"]
    return JobRecord(
        job_id=old["job_id"],
        created_at_ms=old["created_at_epoch_ms"],
        kind=old["kind"],
        db_id=old["db_id"],
        state=states[old["state"]],
        payload=old["payload"],
        last_error=JobError(at_ms=at, attempt=1, kind="Error", message=error) if error else None,
        attempts=0 if old["state"] == "pending" else 1,
        updated_at_ms=at,
    )


JOB: Final = Table("job_queue", 5, NumberKey(), JobRecord, version=VERSION, older={0: _from_version_0})
