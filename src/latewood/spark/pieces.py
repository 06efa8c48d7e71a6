"""What a task does: read a range of one shard from wherever its records are now.

The task was planned with the chunks of that moment.  If one was moved since, by a compaction, an eviction or a segment
that was retired, it looks again by itself: chunks carry their range in their names, in the database's directory and in
the archive.  It never opens the catalog.

A task names the log that it was planned with, and a chunk the log that its records came from: another one is refused,
wherever it was found.   Not thread-safe.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from latewood.archive.chunk_reader import ChunkReader, checked_log, open_chunk
from latewood.archive.cover import Piece, cover
from latewood.archive.keys import KeyRing
from latewood.archive.names import parse_file_name, parse_object_key
from latewood.archive.tier import Tier, TierSource
from latewood.errors import AnotherLog, DataLost, KeyNotFound, NotFoundError, UnavailableError
from latewood.format.identity import Mark
from latewood.fs import FileSystem, PosixFS
from latewood.limits import ARROW_RECORDS_MAX, MiB
from latewood.log.identity import stranger_reason
from latewood.queue import Queue, open_queue
from latewood.spark import plan
from latewood.spark.archive import ArchiveNames, open_archive, open_keys
from latewood.spark.columns import chunk_columns
from latewood.spark.offsets import ShardId
from latewood.spark.standing import AGAIN_MEND

_LOOKS_MAX: Final = 3
"""How often a range is looked for again without a record read in between, before it is given up."""
_BATCH_BYTES: Final = 8 * MiB
"""Payload in one batch from a chunk: what a worker and the JVM hold of it at a time."""


class ShardSource(NamedTuple):
    """Where a shard's records can be.  Travels to executors."""

    shard: ShardId
    log: str
    """The directory of its log."""
    keyed: bool
    chunk_dirs: tuple[str, ...] = ()
    """Where its chunks are on disk: its own directory, and of a fork those that it was forked from."""
    prefixes: tuple[str, ...] = ()
    """What the keys of its objects begin with."""
    database_ids: tuple[int, ...] = ()
    """Whose chunks count: a database of the same name may have left others in the archive."""
    archive: ArchiveNames | None = None
    chunks_alone: int | None = None
    """The log is behind its chunks: what they have, up to this sequence, is all that is read."""
    mark: Mark | None = None
    """Of the log that it was planned with; None: of any."""

    @property
    def chunk_log(self) -> bytes | None:
        """The log that the chunks are of; None: of any.  A fork shares chunks of other logs, which may be gone."""
        return self.mark.identity if self.mark is not None and len(self.database_ids) <= 1 else None


class ShardReader:
    """Reads one shard.  Use it as a context manager, or call `close`."""

    def __init__(self, source: ShardSource, *, fail_on_data_loss: bool = True, fs: FileSystem | None = None) -> None:
        self._source, self._fails, self._fs = source, fail_on_data_loss, fs or PosixFS()
        self._log: Queue | None = None
        self._tier: Tier | None = None
        self._keys: KeyRing | None = None
        self._has_keys = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def batches(self, start: int, stop: int, chunks: Sequence[plan.Chunk], columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches of the records from `start` up to `stop`, each once, in order.

        `chunks` are those that were there when this was planned; `columns` are the log's.  A chunk gives the payload
        where its length is asked for.

        Raises:
            UnavailableError: they are gone from where they were, and nowhere else: plan again.
            DataLost: the log lacks them for good.
            AnotherLog: they are not of the log that this was planned with.
            CorruptError, KeyNotFound: they cannot be read.
        """
        self._check_log(stop)
        at, looks, known = start, 0, list(chunks)
        while at < stop:
            before = at
            try:
                for piece in cover(at, stop, self._log_first(), known):
                    for batch in self._piece(piece, columns):
                        at += batch.num_rows
                        yield batch
                if at == before:
                    at = self._given_up(at, stop, known, NotFoundError("the log is shorter than it was"))
            except KeyNotFound:
                raise
            except (NotFoundError, DataLost) as error:
                looks = looks + 1 if at == before else 1
                known = self.look(at, stop)
                if looks >= _LOOKS_MAX:
                    at = self._given_up(at, stop, known, error)

    @property
    def log(self) -> Queue:
        """The shard's log, opened to read when it is first asked for."""
        if self._log is None:
            self._log = open_queue(self._source.log, mode="r", fs=self._fs)
        return self._log

    def open_chunk(self, chunk: plan.Chunk) -> ChunkReader:
        """Open a chunk: the local file if there is one, else the object.

        Raises:
            NotFoundError: it is nowhere.
            AnotherLog: its records came from another log.
        """
        if chunk.file is not None:
            try:
                return checked_log(open_chunk(self._fs, Path(chunk.file), self._key_ring()), self._source.chunk_log)
            except KeyNotFound:
                raise
            except NotFoundError:
                if chunk.key is None:
                    raise
        assert chunk.key is not None
        found = ChunkReader(TierSource(self._archive(), chunk.key), self._key_ring())
        return checked_log(found, self._source.chunk_log)

    def look(self, start: int, stop: int) -> list[plan.Chunk]:
        """Return the chunks with records of a range that are there now, by their names: on disk, else archived."""
        found = plan.within(self._local(), start, stop)
        with suppress(DataLost):
            cover(start, stop, self._log_first(), _sorted(found))
            return _sorted(found)
        return _sorted([*found, *(one for one in plan.within(self._archived(), start, stop) if self._is_ours(one))])

    def source_now(self) -> ShardSource:
        """Return the source with the log that is there now, for tasks that are planned from it."""
        return self._source if self._source.chunks_alone is not None else self._source._replace(mark=self.log.mark)

    def _check_log(self, stop: int) -> None:
        if self._source.chunks_alone is not None:
            return
        reason = stranger_reason(self.log.identity, self._source.mark, stop)
        if reason is not None:
            reason = f"{self._source.shard} is not the log that this query was planned with: {reason}"
            raise AnotherLog(reason, Path(self._source.log), AGAIN_MEND)

    def _log_first(self) -> int:
        alone = self._source.chunks_alone
        return self.log.first_sequence if alone is None else alone

    def _piece(self, piece: Piece[plan.Chunk], columns: Sequence[str]) -> Iterator[Any]:
        if piece.chunk is None:
            yield from self._log_piece(piece, columns)
            return
        with self.open_chunk(piece.chunk) as reader:
            names = chunk_columns(columns, keyed=reader.keyed)
            yield from reader.batches(piece.start, piece.stop, columns=names, rows_max=_rows_max(reader))

    def _log_piece(self, piece: Piece[plan.Chunk], columns: Sequence[str]) -> Iterator[Any]:
        is_keyed = self._source.keyed
        names = [name for name in columns if name != "key" or is_keyed]
        yield from self.log.arrow_batches(piece.start, piece.stop, columns=names or ["sequence"], keys=is_keyed)

    def _local(self) -> Iterator[plan.Chunk]:
        for directory in self._source.chunk_dirs:
            for file_name in self._fs.list(Path(directory)):
                name = parse_file_name(file_name)
                if name is not None and name.shard == self._source.shard.number:
                    file = str(Path(directory) / file_name)
                    yield plan.Chunk(name.sequence_min, name.sequence_max, 0, file, None, name.encrypted)

    def _archived(self) -> Iterator[plan.Chunk]:
        if self._source.archive is None or self._source.archive.url is None:
            return
        tier = self._archive()
        for prefix in self._source.prefixes:
            for info in tier.list(prefix):
                parsed = parse_object_key(info.key)
                if parsed is not None:
                    name = parsed[1]
                    yield plan.Chunk(name.sequence_min, name.sequence_max, info.size, None, info.key, name.encrypted)

    def _is_ours(self, chunk: plan.Chunk) -> bool:
        """Say whether an object is of this database, and not of another that had its name."""
        with suppress(NotFoundError, AnotherLog), self.open_chunk(chunk) as reader:
            return reader.meta.database_id in self._source.database_ids
        return False

    def _given_up(self, at: int, stop: int, known: Sequence[plan.Chunk], error: Exception) -> int:
        """Return where to go on without what is gone; raise if the query must not."""
        if not self._fails:
            later = [chunk.sequence_min for chunk in known if chunk.sequence_min > at]
            behind = [self._log_first(), *([error.stop] if isinstance(error, DataLost) else [])]
            return min([stop, *later, *(first for first in behind if first > at)])
        if isinstance(error, DataLost) and at >= self._log_first():
            error.add_note(
                f"{self._source.shard} lacks them within its log since `latewood rebuild --accept-loss`: with "
                f"failOnDataLoss=false the query goes on behind them"
            )
            raise error
        message = (
            f"records {at} to {stop - 1} of {self._source.shard} were moved or removed since this query was planned: "
            f"run it again, which plans anew ({error})"
        )
        raise UnavailableError(message) from error

    def _archive(self) -> Tier:
        if self._tier is None:
            if self._source.archive is None:
                raise NotFoundError("the chunk is archived, and the store has no archive: set archiveUrl")
            self._tier = open_archive(self._fs, self._source.archive)
        return self._tier

    def _key_ring(self) -> KeyRing | None:
        if not self._has_keys and self._source.archive is not None:
            self._keys = open_keys(self._fs, self._source.archive)
            self._has_keys = True
        return self._keys


def _rows_max(reader: ChunkReader) -> int:
    mean = max(1, reader.meta.payload_bytes // reader.meta.row_count)
    return max(1, min(ARROW_RECORDS_MAX, _BATCH_BYTES // mean))


def _sorted(chunks: Sequence[plan.Chunk]) -> list[plan.Chunk]:
    return sorted(chunks, key=lambda chunk: (chunk.sequence_min, -chunk.sequence_max, chunk.file is None))
