"""`job_gate`: who goes through the gate of a database and kind of job.

Key, `KEY_SIZE` bytes, big-endian:

| offset | size | field | type | meaning                                   |
| -----: | ---: | ----- | ---- | ----------------------------------------- |
|      0 |    8 | db_id | u64  | the database                              |
|      8 |    2 | kind  | u16  | kind of the jobs that go through it       |

Value, version 1: `GateRecord`.  No row: open, and nobody ever went through.  Format: docs/format/catalog.md
"""

from typing import Final, NamedTuple

from latewood.catalog.tables.record import Record, Table, TupleKey

KEY_SIZE: Final = 10
VERSION: Final = 1


class GateKey(NamedTuple):
    """One gate."""

    db_id: int
    kind: int


class GateRecord(Record, frozen=True, kw_only=True):
    """A gate: closed while a job is active, and until its repair succeeds if it broke off."""

    active_job_id: int | None = None
    """The job that closed it; None: it is open."""
    repair_job_id: int | None = None
    """The active job broke off; this one alone may open the gate."""
    closed_since_ms: int | None = None
    last_success_at_ms: int | None = None
    errored_since_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether a job may go through."""
        return self.active_job_id is None


JOB_GATE: Final = Table("job_gate", 8, TupleKey(">QH", GateKey), GateRecord, version=VERSION)
