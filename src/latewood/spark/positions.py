"""Where a streaming query stands, as a named reader: it shows in `latewood readers lag`, and holds retention back.

A position moves only when Spark has told the source that a batch is done, so it lags behind the checkpoint by a batch
at most, and never runs ahead of it; while the query is stopped it stays where it is.  Of a log it is the log's own
reader; of a database, one position for each shard, in the database's directory.

A position names the log that it is of.  Whether that is the log which is there is decided in `standing`; here a
position of one log is never stored as one of another.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from latewood.clock import Clock, checked
from latewood.errors import Locked
from latewood.fs import FileSystem, Lock, PosixFS
from latewood.log.identity import stranger_reason
from latewood.queue import Queue, Reader, open_queue
from latewood.queue.cursor import cursor_path, load_cursor, store_cursor
from latewood.spark.offsets import ShardId, StoredOffsets
from latewood.types import Position

if TYPE_CHECKING:
    from latewood.format.cursor import Cursor

T = TypeVar("T")
_PATIENCE_S: Final = 20.0
"""A query that was stopped lets go of its reader when its process notices, which takes a moment."""
_PAUSE_S: Final = 0.05


class Positions(Protocol):
    """The named reader of a log or a database."""

    def stored(self) -> StoredOffsets:
        """Return where it stands, of each shard that has a position."""
        ...

    def move(self, offsets: StoredOffsets) -> None:
        """Make positions durable, of those shards that are its own, and in the logs that are held.

        Raises:
            DataLost: it should move back to records that are gone.
            DirectoryReplaced: the directory of the log or database was moved or replaced since.
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

    def stored(self) -> StoredOffsets:
        """Return where it stands, if it has a position."""
        cursor = load_cursor(self._log.file_system, cursor_path(self._log.path / "readers", self._name))
        return _offsets_of({self._shard: cursor})

    def move(self, offsets: StoredOffsets) -> None:
        """Make the position durable, unless it is of a log that took this one's place."""
        sequence, mark = offsets.sequences.get(self._shard), offsets.mark(self._shard)
        if sequence is None or stranger_reason(self._log.identity, mark, sequence) is not None:
            return
        if self._reader is None:
            stored = self.stored()
            is_there = stored.sequences.get(self._shard) == sequence and stored.mark(self._shard) == self._log.mark
            start = "resume" if is_there else sequence
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
        self._fs = (fs or PosixFS()).rooted(directory.parent)  # The database's: no position goes into another one.
        self._clock, self._shards = checked(clock), shards
        self._home, self._lock_path = directory / name, directory / f"{name}.lock"
        self._known: dict[ShardId, Cursor | None] = {}
        self._lock: Lock | None = None

    def stored(self) -> StoredOffsets:
        """Return where it stands, of each shard that has a position."""
        self._known = {shard: load_cursor(self._fs, self._path(shard)) for shard in self._shards}
        return _offsets_of(self._known)

    def move(self, offsets: StoredOffsets) -> None:
        """Make the positions durable, each with the log that it is of."""
        if self._lock is None:
            self._fs.make_directory(self._home)
            self._lock = patiently(lambda: self._fs.lock(self._lock_path))
            self.stored()
        for shard in self._shards:
            known, sequence, mark = self._known.get(shard), offsets.sequences.get(shard), offsets.mark(shard)
            if sequence is None or (known is not None and (known.sequence, known.mark) == (sequence, mark)):
                continue
            position = Position(0, 0, sequence)
            now_ns = self._clock.now_ns()
            self._known[shard] = store_cursor(self._fs, self._path(shard), known, position, now_ns, mark)

    def close(self) -> None:
        """Give the name up."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._fs.close()

    def _path(self, shard: ShardId) -> Path:
        return self._home / f"{shard.number:05}.meta"


def _offsets_of(cursors: "Mapping[ShardId, Cursor | None]") -> StoredOffsets:
    found = {shard: cursor for shard, cursor in cursors.items() if cursor is not None and cursor.sequence is not None}
    return StoredOffsets(
        {shard: cursor.sequence for shard, cursor in found.items() if cursor.sequence is not None},
        {shard: cursor.mark for shard, cursor in found.items()},
    )


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
