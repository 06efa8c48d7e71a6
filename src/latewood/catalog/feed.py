"""ChangeFeed: what changed, for programs that keep something in step with the catalog."""

from collections.abc import Iterator
from typing import Final, Protocol

from latewood.catalog.changes import ChangeEntry, check_nothing_lost, cursor_of
from latewood.catalog.commit import CommitReceipt
from latewood.catalog.env import LMDBEnv
from latewood.catalog.ops import AcknowledgeChanges, Op, PutCursor, RemoveCursor
from latewood.catalog.rows import RowReader
from latewood.catalog.scan import stream
from latewood.catalog.tables import TABLES
from latewood.catalog.tables.change_log import CHANGE_LOG, ChangePosition
from latewood.catalog.tables.generation import Component
from latewood.clock import Clock
from latewood.limits import U32_MAX

_NAMES: Final = {table.number: table.name for table in TABLES}
_MS: Final = 1_000_000


class Host(Protocol):
    """As much of a catalog as its feed needs."""

    def apply(self, *ops: Op) -> CommitReceipt:
        """Commit some operations."""
        ...

    def generation(self, component: int = ...) -> int:
        """Return a component's generation."""
        ...

    def wait_for_generation(self, component: int, target: int, deadline_ms: int | None = None) -> int:
        """Block until a component has come to a generation."""
        ...


class ChangeFeed:
    """The change log of one catalog, read through durable, named cursors."""

    def __init__(self, env: LMDBEnv, clock: Clock, host: Host) -> None:
        self._env, self._clock, self._host = env, clock, host

    def create(self, cursor: str, after_generation: int | None = None) -> None:
        """Make a cursor that sees what changes from now on, durably; one that is there stays as it is.

        With `after_generation` it begins later, or as far back as the log goes: changes are kept only while there
        is a cursor.

        Raises:
            BadName: the name could not be a file name.
        """
        self._host.apply(PutCursor(cursor, after_generation, self._now_ms()))

    def remove(self, cursor: str) -> None:
        """Forget a cursor, and what only it had not read."""
        self._host.apply(RemoveCursor(cursor))

    def changes(self, cursor: str) -> Iterator[ChangeEntry]:
        """Yield what changed since a cursor's last acknowledgement.

        Raises:
            NotFoundError: there is no such cursor.
            ChangesLost: changes were dropped before this cursor came to them.
        """
        record = self._env.read(lambda rows: cursor_of(rows, cursor))
        check_nothing_lost(record)
        after = CHANGE_LOG.pack_key(record.position) + b"\0"
        for position, change in stream(self._env, CHANGE_LOG, after):
            name = _NAMES.get(change.table, f"table {change.table}")
            yield ChangeEntry(position, name, change.key, change.kind)

    def acknowledge(self, cursor: str, upto: ChangePosition | int) -> CommitReceipt:
        """Note durably how far a cursor has read.

        Raises:
            NotFoundError: there is no such cursor.
            UsageError: that generation has not come yet.
        """
        position = ChangePosition(upto, U32_MAX) if isinstance(upto, int) else upto
        return self._host.apply(AcknowledgeChanges(cursor, position, self._now_ms()))

    def wait(self, cursor: str, deadline_ms: int | None = None) -> None:
        """Block until there is a change for a cursor.

        Raises:
            WaitExpired: the deadline came first.
            NotFoundError: there is no such cursor.
        """
        while True:
            seen = self._host.generation()
            if self._env.read(lambda rows: _has_changes(rows, cursor)):
                return
            self._host.wait_for_generation(Component.CATALOG, seen + 1, deadline_ms)

    def _now_ms(self) -> int:
        return self._clock.now_ns() // _MS


def _has_changes(rows: RowReader, cursor: str) -> bool:
    record = cursor_of(rows, cursor)
    if record.lost_generation > record.generation:
        return True
    after = CHANGE_LOG.pack_key(record.position) + b"\0"
    return next(rows.scan_raw(CHANGE_LOG, after), None) is not None
