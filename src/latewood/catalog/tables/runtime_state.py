"""`runtime_state`: what the catalog knows of itself.

Keys: the names `environment` and `session`.  Values, version 1, one type with the fields of both: `RuntimeRecord`.

`environment` says what this file is and which version each table's rows have been brought to, so that opening need not
look at them.  `session` is the sentinel: `clean` is stored as false before the first write of a process, and as true by
the last.  Format: docs/format/catalog.md
"""

from typing import Final

import msgspec

from latewood.catalog.tables.record import NameKey, Record, Table

VERSION: Final = 1
FORMAT: Final = 1
ENVIRONMENT: Final = "environment"
SESSION: Final = "session"


class RuntimeRecord(Record, frozen=True, kw_only=True):
    """One of the two rows; the fields of the other are left at their defaults."""

    format: int = FORMAT
    created_at_ms: int = 0
    table_versions: dict[str, int] = msgspec.field(default_factory=dict)
    clean: bool = True
    pid: int = 0
    opened_at_ms: int = 0
    closed_at_ms: int | None = None
    sessions: int = 0


RUNTIME_STATE: Final = Table("runtime_state", 13, NameKey(), RuntimeRecord, version=VERSION, is_logged=False)
