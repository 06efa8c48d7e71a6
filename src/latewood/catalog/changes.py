"""The change log within a transaction: what is appended, what is dropped.

A change is kept until every cursor has acknowledged it; without a cursor nothing is kept.  If the log grows beyond its
bound the oldest changes go all the same, and each cursor that had not read them is marked, so that it learns of it.
"""

from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from latewood.catalog.rows import RowReader, RowWriter
from latewood.catalog.tables.change_log import (
    CHANGE_CURSOR,
    CHANGE_LOG,
    ChangeCursorRecord,
    ChangeKind,
    ChangePosition,
    ChangeRecord,
)
from latewood.errors import ChangesLost, NotFoundError
from latewood.limits import CATALOG_TRUNCATE_ROWS_MAX


class ChangeEntry(NamedTuple):
    """One change as a cursor reads it."""

    position: ChangePosition
    table: str
    key: bytes
    """As the table packs it."""
    kind: ChangeKind


def append_changes(rows: RowWriter, generation: int, changes_max: int) -> None:
    """Store what a transaction changed, if there is a cursor, and keep the log within its bound."""
    changes, rows.changes = rows.changes, []
    if not changes or not rows.count(CHANGE_CURSOR):  # The last cursor may have gone with this transaction.
        return
    for ordinal, change in enumerate(changes):
        record = ChangeRecord(table=change.table, key=change.key, kind=change.kind)
        rows.put(CHANGE_LOG, ChangePosition(generation, ordinal), record)
    excess = rows.count(CHANGE_LOG) - changes_max
    if excess > 0:
        _drop_oldest(rows, excess)


def truncate_changes(rows: RowWriter) -> None:
    """Drop changes that every cursor has acknowledged, but only so many in one transaction."""
    cursors = [record.position for _, record in rows.scan(CHANGE_CURSOR)]
    lowest = CHANGE_LOG.pack_key(min(cursors)) if cursors else None
    dropped: list[bytes] = []
    for raw, _ in islice(rows.scan_raw(CHANGE_LOG), CATALOG_TRUNCATE_ROWS_MAX):
        if lowest is not None and raw > lowest:
            break
        dropped.append(raw)
    for raw in dropped:
        rows.delete_raw(CHANGE_LOG, raw)


def cursor_of(rows: RowReader, name: str) -> ChangeCursorRecord:
    """Return a cursor.

    Raises:
        NotFoundError: there is none of that name.
    """
    record = rows.get(CHANGE_CURSOR, name)
    if record is None:
        message = f"there is no cursor {name!r} of the change log"
        raise NotFoundError(message)
    return record


def check_nothing_lost(record: ChangeCursorRecord) -> None:
    """Raise ChangesLost if changes were dropped before their cursor came to them."""
    if record.lost_generation > record.generation:
        raise ChangesLost(record.generation + 1, record.lost_generation + 1)


def _drop_oldest(rows: RowWriter, count: int) -> None:
    oldest = [raw for raw, _ in islice(rows.scan_raw(CHANGE_LOG), count)]
    for raw in oldest:
        rows.delete_raw(CHANGE_LOG, raw)
    last = CHANGE_LOG.unpack_key(oldest[-1], rows.path)
    for name, record in list(rows.scan(CHANGE_CURSOR)):
        if record.position < last:
            rows.put(CHANGE_CURSOR, name, replace(record, lost_generation=last.generation))
