"""What is to be read, as it is now: shards, their ends, their chunks.  Runs on the driver, and alone opens the catalog.

For each shard the log is looked at first and the catalog after it: a record leaves the log only when a chunk has it, so
there is no gap between the two.  How far chunks go is looked up before the log as well: that must go as far.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from latewood.archive.cover import Piece, as_of, cover, floor
from latewood.archive.coverage import covered_end
from latewood.archive.log_check import ChunkFiles, log_behind
from latewood.archive.names import shard_prefix
from latewood.catalog import Catalog
from latewood.catalog.tables import (
    ChunkRecord,
    Component,
    DbRecord,
    DbTombstoned,
    Evicted,
    JobKind,
    JobRecord,
    LocalAndRemote,
    RemoteArchived,
)
from latewood.catalog.view import CatalogView
from latewood.errors import LogBehind, NotFoundError, UsageError
from latewood.format.segment import FLAG_KEYED
from latewood.format.store_layout import DatabaseLayout, StoreLayout
from latewood.fs import FileSystem, PosixFS
from latewood.limits import U64_MAX
from latewood.queue import Queue
from latewood.spark import plan
from latewood.spark.archive import ArchiveNames, archive_names
from latewood.spark.columns import Shape
from latewood.spark.offsets import Marks, ShardId
from latewood.spark.options import ReadOptions
from latewood.spark.pieces import ShardReader, ShardSource
from latewood.spark.place import Place, find_place
from latewood.spark.standing import Home
from latewood.types import DbId


class DatabaseState(NamedTuple):
    """One database of a store."""

    db_id: DbId
    record: DbRecord
    files: DatabaseLayout
    chunks: dict[int, list[ChunkRecord]]
    """The live ones of each shard, in order."""
    applied: dict[int, int]
    """Of each shard the sequence behind what was ever in a chunk."""
    origins: dict[int, Path]
    """The chunk directories of the databases that it was forked from, by their ids."""


class Shard:
    """One shard, as the driver sees it.  Its log is opened when it is asked for.

    Of one whose log is behind its chunks, or gone, the chunks alone are read.
    """

    def __init__(
        self,
        source: ShardSource,
        database: DatabaseState | None,
        files: ChunkFiles | None = None,
        covered_now: Callable[[], int] | None = None,
    ) -> None:
        number = source.shard.number
        covered = _covered(database, number) if database else 0
        self.behind: LogBehind | None = None
        """Why its log is not read."""
        if database:
            wanted = database.record.log_identity(number)
            self.behind = log_behind(PosixFS(), Path(source.log), covered, wanted, files, number, covered_now)
        self.id, self.database = source.shard, database
        self.reader = ShardReader(source if self.behind is None else source._replace(chunks_alone=covered))
        self.source = self.reader.source_now()
        self.log_first = covered if self.behind else self.log.first_sequence
        records = database.chunks.get(source.shard.number, []) if database else []
        self.records: list[ChunkRecord] = records
        self.chunks = [_chunk(database, record) for record in records] if database else []

    @property
    def log(self) -> Queue:
        """Its log.

        Raises:
            LogBehind: it is not there, or ends before its chunks do.
        """
        if self.behind is not None:
            raise self.behind
        return self.reader.log

    def end(self) -> int:
        """Return the sequence that the next record will get; of a log that is behind, where its chunks end."""
        return self.log_first if self.behind else self.log.next_sequence

    def see(self, database: DatabaseState) -> None:
        """Take on the chunks of a later look at the catalog than that at the log."""
        self.database = database
        self.records = database.chunks.get(self.id.number, [])
        self.chunks = [_chunk(database, record) for record in self.records]

    def first(self) -> int:
        """Return the first sequence that can be read."""
        return floor(self.log_first, self.chunks)

    def home(self) -> Home:
        """Return which log it is."""
        path = Path(self.source.log)
        target = self.database.files.root.parents[1] / self.database.record.name if self.database else path
        return Home(path, target, self.log.identity, self.first())

    def as_of(self, generation: int) -> int:
        """Return the sequence up to which it had come at a generation of the catalog's chunks."""
        return as_of(generation, self.records, self.first())

    def find_timestamp(self, timestamp_ns: int) -> int:
        """Return the sequence of the first record that is not older, or the one that comes next."""
        for record, chunk in zip(self.records, self.chunks, strict=True):
            newest = record.timestamp_max_ns
            if chunk.sequence_min >= self.log_first or (newest is not None and newest < timestamp_ns):
                continue
            with self.reader.open_chunk(chunk) as opened:
                found = opened.find_timestamp(timestamp_ns)
            if found <= min(chunk.sequence_max, self.log_first - 1):
                return found
        return self.end() if self.behind else self.log.find_timestamp(timestamp_ns)

    def pieces(self, start: int, stop: int) -> list[Piece[plan.Chunk]]:
        """Return where a range is read from."""
        return cover(start, stop, self.log_first, self.chunks)

    def pieces_from_chunks(self, start: int, stop: int) -> list[Piece[plan.Chunk]]:
        """Return where a range can be read from if chunks are liked better than the log."""
        end = self.chunks[-1].sequence_max + 1 if self.chunks else 0
        first = max(self.log_first, min(end, stop)) if start < end else self.log_first
        return cover(start, stop, first, self.chunks)

    def spans(self, start: int, stop: int) -> list[plan.Span]:
        """Return a range with the sizes of its parts."""
        return list(plan.spans_of(self.pieces(start, stop), self._whole_log_spans))

    def _whole_log_spans(self, start: int, stop: int) -> Iterator[plan.Span]:
        """Yield all of a range that was in the log when we looked first; what has left it since is to be read, too."""
        return plan.filled(self._log_spans(start, stop), start, stop)

    def _log_spans(self, start: int, stop: int) -> Iterator[plan.Span]:
        manifest = self.log.view().manifest
        entries = manifest.entries
        for index in range(max(0, entries.index_of_sequence(start)), len(entries)):
            entry = entries[index]
            if entry.start_sequence >= stop:
                return
            if entry.end_sequence >= start:
                span = plan.Span(entry.start_sequence, entry.end_sequence + 1, entry.size)
                yield plan.clip(span, start, stop)
        low = max(start, manifest.active_base)
        if low < stop:
            end = self.log.view().end()
            whole = plan.Span(manifest.active_base, max(stop, end.sequence), end.offset)
            yield plan.clip(whole, low, stop)


class Survey(NamedTuple):
    """Everything that a query may read."""

    place: Place
    shards: list[Shard]
    databases: list[DatabaseState]
    generation: int | None
    """Of the catalog's chunks."""

    def marks(self) -> Marks:
        """Return what a position that is taken now carries, of each shard."""
        return {shard.id: shard.log.mark for shard in self.shards}

    def homes(self) -> dict[ShardId, Home]:
        """Return which log each shard is."""
        return {shard.id: shard.home() for shard in self.shards}


@contextmanager
def surveyed(options: ReadOptions, fs: FileSystem | None = None) -> Iterator[Survey]:
    """Look at what is to be read; logs are open as long as the block runs.

    Raises:
        NotFoundError: nothing is there.
    """
    fs = fs or PosixFS()
    place = find_place(fs, options.path)
    with ExitStack() as opened:
        yield _survey_store(fs, place, options, opened) if place.is_store else _survey_log(fs, place, opened)


def shape_of(options: ReadOptions, fs: FileSystem | None = None) -> Shape:
    """Return what decides on the columns, without opening a log of a store.

    Raises:
        NotFoundError: nothing is there.
    """
    fs = fs or PosixFS()
    place = find_place(fs, options.path)
    if not place.is_store:
        with ShardReader(ShardSource(ShardId("", 0), str(place.root), keyed=False), fs=fs) as reader:
            return Shape(_is_keyed(reader.log), whole_store=False)
    with opened_catalog(place) as catalog:
        databases = catalog.read(lambda view: _living(view, place))
    return Shape(any(record.options.keyed for _, record in databases), whole_store=place.database is None)


@contextmanager
def opened_catalog(place: Place) -> Iterator[Catalog]:
    """Open the catalog of a store, to read."""
    with Catalog.open(StoreLayout(place.root).catalog, mode="r") as catalog:
        yield catalog


def _survey_log(fs: FileSystem, place: Place, opened: ExitStack) -> Survey:
    source = ShardSource(ShardId("", 0), str(place.root), keyed=False)
    probe = opened.enter_context(ShardReader(source, fs=fs))
    keyed = _is_keyed(probe.log)
    shard = Shard(source._replace(keyed=keyed), None)
    opened.callback(shard.reader.close)
    return Survey(place, [shard], [], None)


def _survey_store(fs: FileSystem, place: Place, options: ReadOptions, opened: ExitStack) -> Survey:
    names = archive_names(fs, place.root, options, os.environ)
    with opened_catalog(place) as catalog:
        read: Callable[[], list[DatabaseState]] = lambda: catalog.read(lambda view: _databases(view, place))  # noqa: E731
        shards = []
        for state in read():
            files = ChunkFiles(fs, state.files.chunks)
            for number in range(state.record.wal_shards):
                covered_now = partial(_covered_now, catalog, place, state.db_id, number)
                shard = Shard(_source(state, number, names), state, files, covered_now)
                opened.callback(shard.reader.close)
                shards.append(shard)
        databases = read()  # After the logs.
        by_id = {state.db_id: state for state in databases}
        for shard in shards:
            if shard.database is not None and shard.database.db_id in by_id:
                shard.see(by_id[shard.database.db_id])
        return Survey(place, shards, databases, catalog.generation(Component.CHUNKS))


def _databases(view: CatalogView, place: Place) -> list[DatabaseState]:
    homes = {db_id: place.root / record.options.chunk_dir for db_id, record in view.dbs()}
    return [_database(view, place, db_id, record, homes) for db_id, record in _living(view, place)]


def _living(view: CatalogView, place: Place) -> list[tuple[DbId, DbRecord]]:
    living = [(db_id, record) for db_id, record in view.dbs() if not isinstance(record.status, DbTombstoned)]
    chosen = [row for row in living if place.database in (None, row[1].name)]
    if place.database is not None and not chosen:
        names = ", ".join(record.name for _, record in living) or "none"
        raise NotFoundError(f"there is no database {place.database!r} in {place.root}; there is {names}")
    return chosen


def _database(
    view: CatalogView, place: Place, db_id: DbId, record: DbRecord, homes: Mapping[DbId, Path]
) -> DatabaseState:
    chunks: dict[int, list[ChunkRecord]] = {}
    for _, chunk in view.chunks(db_id):
        if chunk.is_live:
            chunks.setdefault(chunk.shard, []).append(chunk)
    for found in chunks.values():
        found.sort(key=lambda chunk: chunk.sequence_min)
    origins = {
        chunk.origin_db_id: homes[chunk.origin_db_id]
        for found in chunks.values()
        for chunk in found
        if chunk.origin_db_id is not None and chunk.origin_db_id in homes
    }
    applied = {key.shard: state.last_applied_sequence for key, state in view.wal_states(db_id)}
    files = StoreLayout(place.root).located(record.options.wal_dir)
    return DatabaseState(db_id, record, files, chunks, applied, origins)


def _covered_now(catalog: Catalog, place: Place, db_id: DbId, number: int) -> int:
    """Return how far the chunks of a shard go now."""
    states = catalog.read(lambda view: _databases(view, place))
    return next((_covered(state, number) for state in states if state.db_id == db_id), U64_MAX)


def _covered(state: DatabaseState, number: int) -> int:
    return covered_end(state.applied.get(number, 0), state.chunks.get(number, []))


def _source(state: DatabaseState, number: int, names: ArchiveNames) -> ShardSource:
    keys = {
        record.residency.object.key.rpartition("/")[0] + "/"
        for record in state.chunks.get(number, [])
        if isinstance(record.residency, LocalAndRemote | RemoteArchived)
    }
    return ShardSource(
        shard=ShardId(state.record.name, number),
        log=str(state.files.shard(number)),
        keyed=state.record.options.keyed,
        chunk_dirs=(str(state.files.chunks), *sorted(str(home) for home in state.origins.values())),
        prefixes=tuple(sorted(keys | {shard_prefix(state.record.name, number)})),
        database_ids=(state.db_id, *sorted(state.origins)),
        archive=names,
    )


def _chunk(state: DatabaseState, record: ChunkRecord) -> plan.Chunk:
    residency = record.residency
    home = state.files.chunks if record.origin_db_id is None else state.origins.get(record.origin_db_id)
    has_file = home is not None and not isinstance(residency, RemoteArchived)
    key = residency.object.key if isinstance(residency, LocalAndRemote | RemoteArchived) else None
    file = str(home / record.file_name) if home is not None and has_file else None
    return plan.Chunk(record.sequence_min, record.sequence_max, record.size_bytes, file, key, record.encrypted)


def _is_keyed(log: Queue) -> bool:
    segment = log.view().segment_with(log.first_sequence)
    try:
        return bool(segment.header.flags & FLAG_KEYED)
    finally:
        segment.close()


def is_lasting(shard: Shard, record: ChunkRecord) -> bool:
    """Say whether others may read a chunk's file: it is plain Parquet, and will be there for a while.

    What is archived may be evicted at any time, if the database says so; what a compaction replaces has its grace.
    """
    if record.encrypted or isinstance(record.residency, RemoteArchived | Evicted) or shard.database is None:
        return False
    evicts = shard.database.record.options.retention.evict_local_after_ms is not None
    return not (evicts and isinstance(record.residency, LocalAndRemote))


def chunk_rows(survey: Survey) -> Iterator[tuple[str, int, ChunkRecord, str]]:
    """Yield database, id, row and state of every chunk, also those that are read no more."""
    if not survey.place.is_store:
        return
    with opened_catalog(survey.place) as catalog:
        for state in survey.databases:
            for key, record in catalog.scan_chunks(state.db_id):
                yield state.record.name, key.chunk_id, record, _state_of(record)


def job_rows(survey: Survey) -> Iterator[tuple[str | None, str, JobRecord]]:
    """Yield database, kind and row of every job; of the one database, if only one is read."""
    names = {state.db_id: state.record.name for state in survey.databases}
    kinds = {int(kind): kind.name.lower() for kind in JobKind}
    with opened_catalog(survey.place) as catalog:
        for _, record in catalog.scan_jobs():
            if survey.place.database is None or record.db_id in names:
                yield names.get(record.db_id or 0), kinds.get(record.kind, str(record.kind)), record


def _state_of(record: ChunkRecord) -> str:
    if isinstance(record.residency, Evicted):
        return "evicted"
    if record.purging:
        return "purging"
    return "live" if record.superseded_by is None else "superseded"


def check_is_store(survey: Survey, what: str) -> None:
    """Refuse what only a store has.

    Raises:
        UsageError: this is a log.
    """
    if not survey.place.is_store:
        raise UsageError(f"{what} is for databases and stores; {survey.place.root} is a log")
