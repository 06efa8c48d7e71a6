"""One shard of a database: its log, the chunks before it, and how both are read as one.

Reading plans which chunk or log holds what, and plans again if that was moved meanwhile: a compaction, an eviction or a
retired segment is never seen by the caller.  Of a shard whose log is behind its chunks, or gone, the chunks alone are
read, and a query or reader that goes beyond them gets LogBehind.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NoReturn

from latewood.archive.cover import Piece, as_of, covering, floor
from latewood.catalog.tables import ChunkRecord, RemoteArchived
from latewood.errors import (
    AccessDenied,
    ClosedError,
    CorruptError,
    DataLost,
    KeyNotFound,
    LatewoodError,
    LogBehind,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from latewood.forking import OwnLock, no_fork
from latewood.format.identity import LogIdentity, Mark
from latewood.queue import Queue
from latewood.runtime.inventory import Inventory

if TYPE_CHECKING:
    from latewood.archive.chunk_reader import ChunkReader
    from latewood.log.stream import Stream

_REPLANS_MAX: Final = 16
"""How often a read that gets nowhere is planned again, before it is believed that something is missing."""


class Shard:
    """Reads and appends one shard.  Thread-safe, as far as its log is."""

    def __init__(
        self,
        number: int,
        open_log: Callable[[], Queue],
        inventory: Inventory,
        open_chunk: "Callable[[ChunkRecord], ChunkReader]",
        missing: Callable[[ChunkRecord], CorruptError],
        *,
        keyed: bool,
    ) -> None:
        self.number, self.keyed = number, keyed
        self._open_log, self._inventory, self._open_chunk = open_log, inventory, open_chunk
        self._missing = missing
        self._lock = OwnLock()
        self._log: Queue | None = None
        self._is_closed = False

    @property
    def log(self) -> Queue:
        """Its log, opened when it is first asked for.

        Raises:
            LogBehind: it is not there, or ends before its chunks do.
            ClosedError: the database was closed.
        """
        if (log := self._log) is not None:  # Without the lock: every append comes by.
            return log
        with self._lock:
            if self._log is None:
                if self._is_closed:
                    raise ClosedError("the database is closed; open its store again")
                self._inventory.check_open()  # A forked child must not write what its parent has not opened yet.
                self._log = self._open_log()
            return self._log

    def behind(self) -> LogBehind | None:
        """Return what is wrong with its log if that is not there, or ends before its chunks do; None: nothing."""
        try:
            self.log  # noqa: B018 - opened, if it is not open
        except LogBehind as error:
            return error
        return None

    def log_first(self) -> int:
        """Return the sequence from which on its log is read; before that, chunks are."""
        return self._inventory.covered(self.number) if self.behind() else self.log.first_sequence

    def first(self) -> int:
        """Return the first sequence that can be read."""
        return floor(self.log_first(), self._inventory.chunks(self.number))

    def end(self) -> int:
        """Return the sequence that the next record will get; of a shard whose log is behind, where its chunks end."""
        return self._inventory.covered(self.number) if self.behind() else self.log.next_sequence

    def identity(self) -> LogIdentity | None:
        """Return which log it is; None if an older program made that, or if it is behind its chunks, or gone."""
        return None if self.behind() else self.log.identity

    def mark(self) -> Mark | None:
        """Return what a position in this shard carries."""
        identity = self.identity()
        return identity.mark if identity else None

    def make_durable(self, sequence: int, stream: "Stream | None") -> None:
        """Make every record below a sequence durable; `stream` stands there, if there is one."""
        if self.behind() or sequence <= self.log.durable_sequence:  # What is in chunks is durable.
            return
        if stream is not None:
            self.log.make_durable(stream)
            return
        with closing(self.log.stream(sequence)) as there:
            there.position()  # Opens the segment: a log that is open to read syncs that.
            self.log.make_durable(there)

    def check_catalog(self) -> None:
        """Return if the store's catalog is still the one that was opened: else nothing more is acknowledged.

        Raises:
            DirectoryReplaced: it is not.
        """
        self._inventory.check_file()

    def flush(self) -> None:
        """Make what was appended durable; if its log is not open, nothing was appended here."""
        if self._log is not None:
            self._log.flush()

    def as_of(self, generation: int) -> int:
        """Return the sequence up to which it had come at a generation of the catalog's chunks.

        Raises:
            UsageError: that has not come yet.
        """
        if generation > (present := self._inventory.generation):
            raise UsageError(f"generation {generation} has not come yet; the chunks are at {present}")
        first = self.log_first()  # Before the chunks: what leaves the log meanwhile is then in them.
        chunks = self._inventory.chunks(self.number)
        return as_of(generation, chunks, floor(first, chunks))

    def find_timestamp(self, timestamp_ns: int) -> int:
        """Return the sequence of the first record that is not older, or the one that comes next."""
        for tries in range(_REPLANS_MAX):
            first = self.log_first()
            try:
                found = self._find_in_chunks(timestamp_ns, first, is_last=tries == _REPLANS_MAX - 1)
            except NotFoundError:  # Moved since it was looked up.
                if tries == _REPLANS_MAX - 1:
                    raise
                continue
            if found is not None:
                return found
            found = first if self.behind() else self.log.find_timestamp(timestamp_ns)
            if self.log_first() == first:
                return found
        raise UnavailableError("records keep leaving the log; try again")

    def batches(self, start: int, stop: int, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield Arrow batches of the records from `start` up to `stop`, from wherever they are.

        Raises:
            DataLost: retention removed them, or they are nowhere; what lies before them comes first.
            LogBehind: they lie beyond the chunks of a log that is behind them.
            NotFoundError: they lie beyond the end of the log.
            CorruptError: something is damaged.
        """
        at, tries, piece = start, 0, Piece[ChunkRecord](start, stop, None)
        while at < stop:
            before = at
            try:
                for piece in self._plan(at, stop):
                    for batch in self._piece(piece, columns):
                        at += batch.num_rows
                        yield batch
                        self._inventory.check_open()  # In a forked child the thread that reads ahead is not there.
            except (NotFoundError, DataLost) as error:  # Moved since it was planned.
                tries = tries + 1 if at == before else 0
                if tries >= _REPLANS_MAX:
                    self._give_up(error, piece.chunk)
            else:
                tries = tries + 1 if at == before else 0
                if tries >= _REPLANS_MAX:  # Not moved, and not there: another program changed the files of an open log.
                    reason = f"records {at} to {stop - 1} were there, and are not any more"
                    raise CorruptError(reason, self.log.path, 0)

    def chunk_log(self) -> bytes | None:
        """Return the log that the newest of its own chunks names, of those that are sound; None: none names one.

        Files are looked at before objects.

        Raises:
            AccessDenied, UnavailableError, KeyNotFound, UsageError: none could be looked at that may name one.
        """
        own = [chunk for chunk in reversed(self._inventory.chunks(self.number)) if chunk.origin_db_id is None]
        unseen: LatewoodError | None = None
        for chunk in sorted(own, key=lambda chunk: isinstance(chunk.residency, RemoteArchived)):
            try:
                with self._open_chunk(chunk) as reader:
                    if reader.meta.mark is not None:
                        return reader.meta.mark.identity
            except (AccessDenied, UnavailableError, KeyNotFound, UsageError) as error:
                unseen = unseen or error
                if isinstance(error, UnavailableError):  # Each of the others would be waited for as long.
                    break
            except LatewoodError:  # It is damaged or gone: no read will ever ask which log it is of.
                continue
        if unseen is not None:
            raise unseen
        return None

    def close(self) -> None:
        """Close the log; it is not opened again."""
        with self._lock:
            self._is_closed = True
            if self._log is not None:
                self._log.close()

    def _find_in_chunks(self, timestamp_ns: int, stop: int, *, is_last: bool) -> int | None:
        for chunk in self._inventory.chunks(self.number):
            newest = chunk.timestamp_max_ns
            if chunk.sequence_min >= stop or (newest is not None and newest < timestamp_ns):
                continue
            try:
                with self._opened(chunk) as reader:
                    found = reader.find_timestamp(timestamp_ns)
            except NotFoundError as error:
                if is_last:
                    self._give_up(error, chunk)
                raise
            if found <= min(chunk.sequence_max, stop - 1):
                return found
        return None

    def _give_up(self, error: NotFoundError | DataLost, chunk: ChunkRecord | None) -> NoReturn:
        """Raise what is wrong: a chunk that is nowhere, however often it is looked for, is lost."""
        if isinstance(error, DataLost) and not self.behind():
            log = self.log
            if self._inventory.covered(self.number) < log.first_sequence:  # No retention leaves such a gap.
                error.add_note(
                    f"neither a chunk of the catalog nor the log of shard {self.number} has them: if the catalog is an "
                    f"older copy, `latewood rebuild --catalog {log.path.parents[3]}` finds what it does not know"
                )
        if chunk is None or isinstance(error, KeyNotFound | DataLost):
            raise error
        raise self._missing(chunk) from error

    def _plan(self, start: int, stop: int) -> Iterator[Piece[ChunkRecord]]:
        """Yield where records are; those before a gap are read before it is told."""
        return covering(start, stop, self.log_first(), self._inventory.chunks(self.number))

    def _piece(self, piece: Piece[ChunkRecord], columns: list[str] | None) -> Iterator[Any]:
        if piece.chunk is None:
            yield from self._log_piece(piece, columns)
            return
        with self._opened(piece.chunk) as reader:
            yield from reader.batches(piece.start, piece.stop, columns=columns)

    def _opened(self, chunk: ChunkRecord) -> "ChunkReader":
        """Open a chunk whose records came from this shard's log, or from that of the database it was forked from."""
        with no_fork():
            from latewood.archive.chunk_reader import checked_log  # noqa: PLC0415 - Arrow takes its time to load

        mark = self.log.mark if chunk.origin_db_id is None and self.behind() is None else None
        return checked_log(self._open_chunk(chunk), mark.identity if mark is not None else None)

    def _log_piece(self, piece: Piece[ChunkRecord], columns: list[str] | None) -> Iterator[Any]:
        yield from self.log.arrow_batches(piece.start, piece.stop, columns=columns, keys=self.keyed)
