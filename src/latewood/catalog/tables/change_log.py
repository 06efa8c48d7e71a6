"""`change_log`: what each commit changed, and `change_cursor`: who has read how far.

Key of `change_log`, `KEY_SIZE` bytes, big-endian:

| offset | size | field      | type | meaning                                     |
| -----: | ---: | ---------- | ---- | ------------------------------------------- |
|      0 |    8 | generation | u64  | the catalog's generation of the commit      |
|      8 |    4 | ordinal    | u32  | the change's number in that commit, from 0  |

Value, version 1: `ChangeRecord`.  Key of `change_cursor`: the cursor's name, UTF-8, as `limits.check_name` allows it;
value: `ChangeCursorRecord`.  Without a cursor nothing is written to the log.  Format: docs/format/catalog.md
"""

from enum import IntEnum
from typing import Final, NamedTuple

from latewood.catalog.tables.record import NameKey, Record, Table, TupleKey

KEY_SIZE: Final = 12
VERSION: Final = 1


class ChangePosition(NamedTuple):
    """One change's place in the log; compares in the order of the log."""

    generation: int
    ordinal: int


class ChangeKind(IntEnum):
    """What happened to a row."""

    PUT = 0
    DELETE = 1


class ChangeRecord(Record, frozen=True, kw_only=True):
    """One row that changed."""

    table: int
    """The number of its table."""
    key: bytes
    kind: ChangeKind


class ChangeCursorRecord(Record, frozen=True, kw_only=True):
    """How far a cursor has read: every change up to here, this one counted in."""

    generation: int
    ordinal: int
    acknowledged_at_ms: int
    lost_generation: int = 0
    """Changes up to this generation were dropped before the cursor came to them; 0: none."""

    @property
    def position(self) -> ChangePosition:
        """The last change that was dealt with."""
        return ChangePosition(self.generation, self.ordinal)


CHANGE_LOG: Final = Table(
    "change_log", 11, TupleKey(">QI", ChangePosition), ChangeRecord, version=VERSION, is_logged=False
)
CHANGE_CURSOR: Final = Table("change_cursor", 12, NameKey(), ChangeCursorRecord, version=VERSION, is_logged=False)
