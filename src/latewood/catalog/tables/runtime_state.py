"""`runtime_state`: what the catalog knows of itself.

Keys: the names `environment`, `session` and `archives`.  Values, version 1, one type with the fields of all:
`RuntimeRecord`.

`environment` says what this file is and which version each table's rows have been brought to, so that opening need not
look at them.  `session` is the sentinel: `clean` is stored as false before the first write of a process, and as true by
the last.  `archives` has the identity of each archive that chunks were put in, by its address.
Format: docs/format/catalog.md
"""

from typing import Final

import msgspec

from latewood.catalog.tables.record import NameKey, Record, Table

VERSION: Final = 1
FORMAT: Final = 1
ENVIRONMENT: Final = "environment"
SESSION: Final = "session"
ARCHIVES: Final = "archives"


class RuntimeRecord(Record, frozen=True, kw_only=True):
    """One of the three rows; the fields of the others are left at their defaults."""

    format: int = FORMAT
    created_at_ms: int = 0
    table_versions: dict[str, int] = msgspec.field(default_factory=dict)
    clean: bool = True
    pid: int = 0
    opened_at_ms: int = 0
    closed_at_ms: int | None = None
    sessions: int = 0
    archives: dict[str, bytes] = msgspec.field(default_factory=dict)


RUNTIME_STATE: Final = Table("runtime_state", 13, NameKey(), RuntimeRecord, version=VERSION, is_logged=False)
