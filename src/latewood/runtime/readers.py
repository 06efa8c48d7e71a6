"""The named readers of a database: who is open, and where each stands."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from latewood.closing import Closing
from latewood.errors import AnotherLog, ReadOnlyError
from latewood.forking import OwnLock, close_after_fork
from latewood.format.identity import Mark
from latewood.format.store_layout import DatabaseLayout
from latewood.fs import FileSystem
from latewood.limits import check_name, check_reader_name
from latewood.queue.cursor import load_cursor
from latewood.runtime.reader import DatabaseReader, ReaderStart, stranger_of
from latewood.runtime.shard import Shard


class ReaderPosition(NamedTuple):
    """Where a named reader stands in one shard."""

    name: str
    shard: int
    sequence: int
    committed_at_ns: int
    mark: Mark | None
    """Which log that is in; None: an older program stored it."""


class Readers:
    """Opens readers, and looks at those that others have open.  Thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        layout: DatabaseLayout,
        now_ns: Callable[[], int],
        shards: Sequence[Shard],
        *,
        writable: bool,
    ) -> None:
        self._shards = shards
        self._fs, self._layout, self._now_ns, self._writable = fs, layout, now_ns, writable
        self._lock = OwnLock()
        self._open: list[DatabaseReader] = []

    def open(
        self, name: str, shards: list[Shard], start: ReaderStart, *, merged: bool, kept: bool = True
    ) -> DatabaseReader:
        """Open a reader; without the right to write, or if it is not to be kept, it can read, and not commit."""
        check_reader_name(name)
        lock = None
        if self._writable and kept:
            self._fs.make_directory(self._layout.readers)
            lock = self._fs.lock(self._layout.reader_lock(name))
        reader = DatabaseReader(name, shards, self._fs, self._layout, lock, self._now_ns, merged=merged)
        close_after_fork(reader)
        try:
            reader.begin(start)
        except BaseException:
            reader.close()
            raise
        with self._lock:
            self._open.append(reader)
        return reader

    def names(self) -> list[str]:
        """Return the names of the readers that there are, or were."""
        return [name for name in self._fs.list(self._layout.readers) if not name.endswith(".lock")]

    def positions(self) -> list[ReaderPosition]:
        """Return where every reader stands.

        Raises:
            CorruptError: a file is damaged; nothing that it may hold back must go.
        """
        return [one for name in self.names() for one in self.positions_of(name)]

    def positions_of(self, name: str) -> list[ReaderPosition]:
        """Return where one reader stands.

        Raises:
            CorruptError: a file is damaged; nothing that it may hold back must go.
        """
        files = [file for file in self._fs.list(self._layout.readers / name) if file.endswith(".meta")]
        found = [self._position(name, int(file.removesuffix(".meta"))) for file in files]
        return [one for one in found if one is not None]

    def positions_in(self, shard: int) -> list[ReaderPosition]:
        """Return where every reader stands in one shard; its positions in the other shards are not read.

        Raises:
            CorruptError: a file is damaged; nothing that it may hold back must go.
        """
        return [one for name in self.names() if (one := self._position(name, shard)) is not None]

    def stranger(self, position: ReaderPosition) -> AnotherLog | None:
        """Return what is wrong with a position if it is in another log than its shard's; None: nothing."""
        if position.shard >= len(self._shards):
            return None
        shard = self._shards[position.shard]
        return stranger_of(self._layout, position.name, shard, position.mark, position.sequence)

    def floor(self, shard: int) -> int | None:
        """Return the first sequence that a reader still wants of a shard; None if there is no reader.

        Raises:
            CorruptError: a file is damaged; nothing that it may hold back must go.
            AnotherLog: a position is in another log, so what its reader has read of this one is unknown.
        """
        here = self.positions_in(shard)
        for one in here:
            if (stranger := self.stranger(one)) is not None:
                raise stranger
        return min((one.sequence for one in here), default=None)

    def remove(self, name: str) -> None:
        """Forget a reader, unless it is open.

        Raises:
            Locked: it is open.
            ReadOnlyError: the store was opened to read.
        """
        check_name(name, "reader")
        if not self._writable:
            raise ReadOnlyError("the store was opened with mode='r'")
        lock = self._fs.lock(self._layout.reader_lock(name))
        try:
            directory = self._layout.readers / name
            for file in self._fs.list(directory):
                self._fs.remove(directory / file)
            self._fs.sync_directory(self._layout.readers)
        finally:
            lock.close()

    def close(self) -> None:
        """Close every reader that was opened here."""
        with self._lock:
            opened, self._open = self._open, []
        with Closing() as closing:
            for reader in opened:
                closing(reader.close)

    def _position(self, name: str, shard: int) -> ReaderPosition | None:
        cursor = load_cursor(self._fs, self._layout.cursor(name, shard))
        if cursor is None or cursor.sequence is None:
            return None
        return ReaderPosition(name, shard, cursor.sequence, cursor.committed_at, cursor.mark)
