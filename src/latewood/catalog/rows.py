"""Rows of one transaction: typed reading, and writing that notes what changed.

Every value that is read is proved by its checksum and brought to the present version.  No lmdb here but the
transaction that is handed in, and the error that tells of its end.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import lmdb

from latewood.catalog.tables.change_log import CHANGE_CURSOR, ChangeKind
from latewood.catalog.tables.record import Record, Table
from latewood.errors import CatalogCorrupted, UsageError

K = TypeVar("K")
R = TypeVar("R", bound=Record)


class Change(NamedTuple):
    """One row that a transaction changed."""

    table: int
    key: bytes
    kind: ChangeKind


class RowReader:
    """The rows that one read or write transaction sees.  Belongs to the thread of that transaction."""

    def __init__(self, txn: Any, handles: Mapping[str, Any], path: Path) -> None:
        self.txn, self.path = txn, path
        self.is_over = False
        """Whether the transaction has ended: nothing can be read any more."""
        self._handles = handles

    def get(self, table: Table[K, R], key: K) -> R | None:
        """Return one record, or None."""
        raw = table.pack_key(key)
        value = self.txn.get(raw, db=self._handles[table.name])
        return None if value is None else table.decode(raw, value, self.path)

    def scan(self, table: Table[K, R], start: bytes = b"", prefix: bytes = b"") -> Iterator[tuple[K, R]]:
        """Yield the rows from key `start` on, in the order of keys, as long as they begin with `prefix`."""
        for raw, value in self.scan_raw(table, start, prefix):
            yield table.unpack_key(raw, self.path), table.decode(raw, value, self.path)

    def scan_raw(self, table: Table[K, R], start: bytes = b"", prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values as they are stored.

        Raises:
            UsageError: the transaction has ended.
        """
        try:
            yield from self._scan(table, start, prefix)
        except lmdb.Error as error:
            if not self.is_over:
                raise
            message = f"a scan of {table.name!r} ends with its view: use it up within the callback of `read`"
            raise UsageError(message) from error

    def _scan(self, table: Table[K, R], start: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self.txn.cursor(db=self._handles[table.name]) as cursor:
            begin = max(start, prefix)
            if not (cursor.set_range(begin) if begin else cursor.first()):
                return
            for raw, value in cursor.iternext():
                if not raw.startswith(prefix):
                    return
                yield raw, value

    def last_key(self, table: Table[K, R]) -> K | None:
        """Return the largest key of a table."""
        with self.txn.cursor(db=self._handles[table.name]) as cursor:
            return table.unpack_key(cursor.key(), self.path) if cursor.last() else None

    def count(self, table: Table[K, R]) -> int:
        """Return how many rows a table has, without looking at them."""
        entries: int = self.txn.stat(self._handles[table.name])["entries"]
        return entries

    def check_count(self, table: Table[K, R]) -> None:
        """Walk over all keys of a table and count them.

        LMDB's pages have no checksums: a flipped bit in the head of one can hide rows, and no row tells of it.

        Raises:
            CatalogCorrupted: there are not as many as LMDB counted.
        """
        with self.txn.cursor(db=self._handles[table.name]) as cursor:
            found = sum(1 for _ in cursor.iternext(keys=True, values=False))
        if found != self.count(table):
            reason = f"{found:,} rows, but LMDB counted {self.count(table):,}: a page is damaged"
            raise CatalogCorrupted(reason, self.path, table.name, b"")


class RowWriter(RowReader):
    """The rows of the one write transaction; collects changes until it is committed."""

    def __init__(self, txn: Any, handles: Mapping[str, Any], path: Path) -> None:
        super().__init__(txn, handles, path)
        self.is_logging = self.count(CHANGE_CURSOR) > 0
        """Whether there is a cursor, for which changes are collected."""
        self.changes: list[Change] = []
        self.bumped: dict[int, int] = {}
        """Component to its generation after this transaction, for those that went up."""

    def put(self, table: Table[K, R], key: K, record: R) -> int:
        """Store a record, and return how many bytes it takes."""
        raw = table.pack_key(key)
        value = table.encode(raw, record)
        self.txn.put(raw, value, db=self._handles[table.name])
        if self.is_logging and table.is_logged:
            self.changes.append(Change(table.number, raw, ChangeKind.PUT))
        return len(value)

    def delete(self, table: Table[K, R], key: K) -> bool:
        """Remove a record, and say whether there was one."""
        return self.delete_raw(table, table.pack_key(key))

    def delete_raw(self, table: Table[K, R], raw: bytes) -> bool:
        """Remove what is stored under a packed key."""
        found: bool = self.txn.delete(raw, db=self._handles[table.name])
        if found and self.is_logging and table.is_logged:
            self.changes.append(Change(table.number, raw, ChangeKind.DELETE))
        return found
