"""Where a streaming query stands, as a named reader: it shows in `latewood readers lag`, and holds retention back.

A position moves only when Spark has told the source that a batch is done, so it lags behind the checkpoint by a batch
at most, and never runs ahead of it; while the query is stopped it stays where it is.  Of a log it is the log's own
reader; of a database, one position for each shard, in the database's directory.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from latewood.clock import Clock, SystemClock
from latewood.errors import Locked
from latewood.fs import FileSystem, Lock, PosixFS
from latewood.queue import Queue, Reader, open_queue
from latewood.queue.ahead import stranger_of
from latewood.queue.cursor import cursor_path, load_cursor, store_cursor
from latewood.spark.offsets import Offsets, ShardId
from latewood.types import Position

if TYPE_CHECKING:
    from latewood.format.cursor import Cursor

T = TypeVar("T")
_PATIENCE_S: Final = 20.0
"""A query that was stopped lets go of its reader when its process notices, which takes a moment."""
_PAUSE_S: Final = 0.05


class Positions(Protocol):
    """The named reader of a log or a database."""

    def stored(self) -> Offsets:
        """Return where it stands, of each shard that has a position."""
        ...

    def move(self, offsets: Mapping[ShardId, int]) -> None:
        """Make positions durable, of those shards that are its own.

        Raises:
            DataLost: it should move back to records that are gone.
        """
        ...

    def close(self) -> None:
        """Give the name up."""
        ...


def positions_of(shards: list[Any], name: str) -> list[Positions]:
    """Return the reader of each log or database that shards are of, and hold its name.

    Raises:
        Locked: another query, or program, is this reader.
    """
    found: list[Positions] = []
    try:
        for database in dict.fromkeys(shard.id.database for shard in shards):
            own = [shard for shard in shards if shard.id.database == database]
            if own[0].database is None:
                found.append(LogPosition(own[0].source.log, name))
            else:
                directory = own[0].database.files.readers
                found.append(DatabasePositions(directory, name, [shard.id for shard in own]))
    except BaseException:
        for one in found:
            one.close()
        raise
    return found


class LogPosition:
    """The reader of one log."""

    def __init__(self, path: str, name: str) -> None:
        self._log: Queue = open_queue(path, mode="r")
        self._name = name
        self._shard = ShardId("", 0)
        self._reader: Reader | None = None

    def stored(self) -> Offsets:
        """Return where it stands, if it has a position.

        Raises:
            AnotherLog: that is of another log than the one at the path.
        """
        path = cursor_path(self._log.path / "readers", self._name)
        cursor = load_cursor(self._log.file_system, path)
        if cursor is not None and (stranger := stranger_of(cursor, path, self._log.identity)):
            raise stranger
        return {} if cursor is None or cursor.sequence is None else {self._shard: cursor.sequence}

    def move(self, offsets: Mapping[ShardId, int]) -> None:
        """Make the position durable."""
        if self._shard not in offsets:
            return
        sequence = offsets[self._shard]
        if self._reader is None:
            start = "resume" if self.stored().get(self._shard) == sequence else sequence
            self._reader = patiently(lambda: self._log.reader(self._name, start))  # type: ignore[arg-type]
        elif self._reader.committed_sequence != sequence:
            self._reader.seek(sequence=sequence)
            self._reader.commit()

    def close(self) -> None:
        """Give the name up."""
        self._log.close()


class DatabasePositions:
    """The reader of one database."""

    def __init__(
        self,
        directory: Path,
        name: str,
        shards: list[ShardId],
        fs: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._fs, self._clock, self._shards = fs or PosixFS(), clock or SystemClock(), shards
        self._home, self._lock_path = directory / name, directory / f"{name}.lock"
        self._known: dict[ShardId, Cursor | None] = {}
        self._lock: Lock | None = None

    def stored(self) -> Offsets:
        """Return where it stands, of each shard that has a position."""
        self._known = {shard: load_cursor(self._fs, self._path(shard)) for shard in self._shards}
        return {
            shard: cursor.sequence
            for shard, cursor in self._known.items()
            if cursor is not None and cursor.sequence is not None
        }

    def move(self, offsets: Mapping[ShardId, int]) -> None:
        """Make the positions durable."""
        if self._lock is None:
            self._fs.make_directory(self._home)
            self._lock = patiently(lambda: self._fs.lock(self._lock_path))
            self.stored()
        for shard in self._shards:
            known = self._known.get(shard)
            if shard in offsets and (known is None or known.sequence != offsets[shard]):
                position = Position(0, 0, offsets[shard])
                self._known[shard] = store_cursor(self._fs, self._path(shard), known, position, self._clock.now_ns())

    def close(self) -> None:
        """Give the name up."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _path(self, shard: ShardId) -> Path:
        return self._home / f"{shard.number:05}.meta"


def patiently(attempt: Callable[[], T]) -> T:
    """Return what `attempt` does once nobody holds it any more.

    Raises:
        Locked: somebody does so for long.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return attempt()
        except Locked:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)
