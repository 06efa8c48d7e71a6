"""Scans that stream: a page of rows, a moment without a transaction, the next page."""

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from latewood.catalog.env import LMDBEnv
from latewood.catalog.rows import RowReader
from latewood.catalog.tables.record import Record, Table
from latewood.limits import CATALOG_PAGE_ROWS

K = TypeVar("K")
R = TypeVar("R", bound=Record)


def stream(env: LMDBEnv, table: Table[K, R], start: bytes = b"", prefix: bytes = b"") -> Iterator[tuple[K, R]]:
    """Yield rows in the order of their keys, from key `start` on, as long as they begin with `prefix`.

    Each page is a snapshot of its own: a row that changes meanwhile is seen before or after that, and once.
    """
    while True:
        page = _page(env, table, start, prefix)
        yield from page
        if len(page) < CATALOG_PAGE_ROWS:
            return
        start = table.pack_key(page[-1][0]) + b"\0"


def _page(env: LMDBEnv, table: Table[K, R], start: bytes, prefix: bytes) -> list[tuple[K, R]]:
    def take(rows: RowReader) -> list[tuple[K, R]]:
        return list(islice(rows.scan(table, start, prefix), CATALOG_PAGE_ROWS))

    return env.read(take)
