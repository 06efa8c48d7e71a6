"""Make a lost catalog again, from what is on the disk and in the archive.

Reads `database.json` of every database, all of its chunks in both places, and its logs.  Jobs, metrics and the
generations of old are lost; no record is.  Nothing is removed, and what cannot be read keeps its place if nothing else
has its records, so that no job ever takes it for an orphan.  Which chunks count is decided by `found.choose`.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec.structs import replace

from latewood.archive.coverage import covered_end
from latewood.archive.identity import foreign_objects
from latewood.archive.keys import KeyRing
from latewood.archive.log_check import log_behind
from latewood.archive.names import ChunkName, parse_file_name, shard_prefix
from latewood.archive.tier import Tier
from latewood.catalog import Catalog
from latewood.catalog.description import Description, load_description
from latewood.catalog.tables import (
    ChunkKey,
    ChunkRecord,
    Component,
    CompressionCodec,
    DbTombstoned,
    Local,
    LocalAndRemote,
    RemoteArchived,
    RemoteObject,
    WalStateKey,
    WalStateRecord,
)
from latewood.clock import SystemClock
from latewood.errors import CorruptError, NotFoundError, UsageError
from latewood.format.store_layout import DatabaseLayout, StoreLayout
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.reach import reach_of
from latewood.queue import open_queue
from latewood.runtime.archive_identity import KnownArchives, checked_archives, note_archives
from latewood.runtime.found import Found, LogSpan, choose, gaps_of, strangers
from latewood.tasks.engine import Engine, LocalEngine, Tools
from latewood.tasks.finding import ChunkFind, ChunkFound, read_chunks
from latewood.tasks.parcels import parcels
from latewood.types import DbId

_ROWS_IN_A_COMMIT: Final = 500
_CHUNKS_IN_A_TASK: Final = 8
_TASKS_IN_A_LANE: Final = 4
"""At least so many for each lane, so that none is waited for long."""


class DatabaseReport(NamedTuple):
    """What was found of one database."""

    name: str
    db_id: int
    shards: int
    chunks: int
    superseded: int
    """Chunks that a compaction had replaced: left alone."""
    gaps: list[tuple[int, int, int]]
    """Shard, first and last-but-one sequence of what neither chunks nor log have."""
    problems: list[str]
    """What could not be read, and which logs end before their chunks do."""


class Place(NamedTuple):
    """Where chunks of a database may be: its own directory, or one that it was forked from."""

    db_id: DbId
    layout: DatabaseLayout
    name: str
    limits: tuple[int, ...] | None
    """Of each shard the first sequence that is not part of it; None: all is."""


Progress = Callable[[int, int], None]
"""Told how many chunks were read, of how many."""


def rebuild_catalog(
    fs: FileSystem,
    layout: StoreLayout,
    catalog: Catalog,
    tier: Tier | None,
    keys: KeyRing | None,
    *,
    known_archives: KnownArchives | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> list[DatabaseReport]:
    """Fill an empty catalog with what is found, and return a report of each database.

    `known_archives` is what the catalog that was there notes; None: it could not be read.  `engine` reads the chunks;
    None: this thread does.

    Raises:
        UsageError: the catalog is not empty.
        AnotherArchive: the archive is not the one that was noted, or is not there.
        AccessDenied, UnavailableError: the tier refused, or did not answer; begin again with an empty catalog.
    """
    if catalog.read(lambda view: next(iter(view.dbs()), None)) is not None:
        raise UsageError("the catalog has databases: move it away first, if it should be made again")
    archives = checked_archives(tier, known_archives)
    reports, known, last_id, last_chunk = _described(fs, layout)
    alive = {one.record.name: db_id for db_id, one in sorted(known.items()) if not _is_gone(one)}
    found = list[_Rebuilding]()
    for db_id, description in known.items():
        name = description.record.name
        if not _is_gone(description) and alive[name] != db_id:
            problem = f"database {alive[name]} has its name; its files are left as they are"
            reports.append(DatabaseReport(name, db_id, 0, 0, 0, [], [problem]))
            continue
        found.append(_Rebuilding(fs, catalog, tier, _places(layout, known, db_id), description))
    note_archives(catalog, archives)  # Before a row says that a chunk is there.
    _read_all(found, engine or LocalEngine(_tools(fs, tier, keys)), progress)
    for one in found:
        report, last_chunk = one.commit(last_chunk)
        reports += [] if _is_gone(known[one.db_id]) else [report]  # Its rows are for its forks, and for `purge`.
    txn = catalog.begin_write()
    for component, last in ((Component.DB_IDS, last_id), (Component.CHUNK_IDS, last_chunk)):
        if last:
            txn.bump_generation(component, last)
    txn.bump_generation(Component.CHUNKS)
    txn.commit()
    return sorted(reports, key=lambda report: report.db_id)


def _read_all(databases: "Sequence[_Rebuilding]", engine: Engine, progress: Progress | None) -> None:
    """Have every chunk of all databases read, and tell each of them what was found."""
    owners: list[_Rebuilding] = []
    finds: list[ChunkFind] = []
    for database in databases:
        own = database.finds(len(finds))
        finds += own
        owners += [database] * len(own)
    count_max = min(_CHUNKS_IN_A_TASK, max(1, len(finds) // (engine.lanes * _TASKS_IN_A_LANE)))
    bundles = parcels(finds, lambda _: 1, count_max if engine.lanes > 1 else 1)
    for done, found in enumerate(engine.map(read_chunks, bundles), 1):
        owners[found.number].take(finds[found.number], found)
        if progress is not None:
            progress(done, len(finds))


def _tools(fs: FileSystem, tier: Tier | None, keys: KeyRing | None) -> Tools:
    def opened() -> Tier:
        if tier is None:
            raise NotFoundError("the store has no archive: set `archive.url`")
        return tier

    return Tools(fs=fs, clock=SystemClock(), random_bytes=secrets.token_bytes, tier=opened, keys=keys)


def _described(fs: FileSystem, layout: StoreLayout) -> tuple[list[DatabaseReport], dict[DbId, Description], DbId, int]:
    """Return what databases say they are, reports of those that do not, and the last id that any of them has."""
    reports, known, last_id = list[DatabaseReport](), dict[DbId, Description](), 0
    for directory in fs.list(layout.databases):
        number = directory.partition("-")[0]
        db_id = int(number) if number.isascii() and number.isdigit() else 0
        try:
            description = load_description(fs, DatabaseLayout(layout.databases / directory).description)
        except (CorruptError, NotFoundError) as error:
            reports.append(DatabaseReport(directory, db_id, 0, 0, 0, [], [str(error)]))
        else:
            known[description.db_id] = description
            db_id = max(db_id, description.db_id)
        last_id = max(last_id, db_id)  # Also of those that are gone: their files are under it.
    return reports, known, last_id, 0


def _places(layout: StoreLayout, known: Mapping[DbId, Description], db_id: DbId) -> list[Place]:
    """Return the directories of a database and of those that it was forked from, one after the other."""
    places, limits, at = list[Place](), None, db_id
    while at in known and len(places) <= len(known):
        one = known[at]
        places.append(Place(at, layout.located(one.record.options.wal_dir), one.record.name, limits))
        if one.origin is None:
            break
        own = one.origin.sequences
        limits = own if limits is None else tuple(map(min, limits, own))
        at = one.origin.db_id
    return places


def _is_gone(description: Description) -> bool:
    return isinstance(description.record.status, DbTombstoned)


class _Rebuilding:
    """One database that is found again: `finds`, then `take` for each of them, then `commit`."""

    def __init__(
        self, fs: FileSystem, catalog: Catalog, tier: Tier | None, places: list[Place], description: Description
    ) -> None:
        self._fs, self._catalog, self._tier = fs, catalog, tier
        self._places, self.db_id, self._record = places, description.db_id, description.record
        self._found: dict[int, list[Found]] = {shard: [] for shard in range(self._record.wal_shards)}
        self._problems: list[str] = []
        origin = description.origin
        retention = self._record.options.retention
        self._begins_at_0 = origin is None and retention.max_bytes is None and retention.max_age_ms is None
        """Whether nothing but damage takes its oldest records: no retention, nor that of what it was forked from."""
        if origin is not None and all(place.db_id != origin.db_id for place in places):
            self._problems.append(f"it was forked from database {origin.db_id}, and what that is cannot be read")

    def finds(self, first: int) -> list[ChunkFind]:
        """Return the chunks to read, by their names, numbered from `first` on."""
        found = list[ChunkFind]()
        for shard in self._found:
            for place, name, file, key in self._names(shard):
                found.append(ChunkFind(first + len(found), name, place.db_id, file, key))
        return found

    def take(self, find: ChunkFind, found: ChunkFound) -> None:
        """Take on what was found under a name."""
        self._problems += found.problems
        if found.chunk is None:
            return
        meta, digest, key_id = found.chunk
        origin = None if find.database_id == self.db_id else find.database_id
        one = Found(find.name, meta, digest, key_id, found.is_local, find.key, origin)
        self._found[find.name.shard].append(one)

    def commit(self, last_chunk: int) -> tuple[DatabaseReport, int]:
        """Decide what counts, make the database's rows, and return a report and the last chunk's id."""
        record, gaps, superseded, rows = self._record, list[tuple[int, int, int]](), 0, list[ChunkRecord]()
        applied = []
        for shard in range(record.wal_shards):
            log, identity = self._look_at_log(shard)
            wanted = record.log_identity(shard)
            if None not in (wanted, identity) and wanted != identity:
                log = None  # It is another log, and what it has is nothing of this shard's.
            foreign = strangers(self._found[shard], wanted, identity)
            self._problems += _foreign_problems(foreign)
            chosen, replaced = choose([one for one in self._found[shard] if one not in foreign], log)
            gaps += gaps_of(shard, chosen, log, begins_at_0=self._begins_at_0)
            superseded += len(replaced)
            rows += [self._row(one) for one in chosen]
            covered = covered_end(0, chosen)
            self._problems += self._log_problems(shard, covered)
            applied.append(max(log.first if log else 0, covered))
        self._commit(rows, applied, last_chunk)
        report = DatabaseReport(record.name, self.db_id, record.wal_shards, len(rows), superseded, gaps, self._problems)
        return report, last_chunk + len(rows)

    def _commit(self, rows: list[ChunkRecord], applied: list[int], last_chunk: int) -> None:
        txn = self._catalog.begin_write()
        for number, row in enumerate(rows, 1):
            txn.upsert_chunk(ChunkKey(self.db_id, last_chunk + number), row)
            if len(txn) >= _ROWS_IN_A_COMMIT:
                txn.commit()
                txn = self._catalog.begin_write()
        for shard, sequence in enumerate(applied):
            txn.put_wal_state(WalStateKey(self.db_id, shard), WalStateRecord(last_applied_sequence=sequence))
        txn.put_db(self.db_id, self._record)
        txn.commit()

    def _names(self, shard: int) -> Iterator[tuple[Place, ChunkName, str | None, str | None]]:
        """Yield every chunk of a shard with its file and its object, as far as there are."""
        for place in self._places:
            directory = place.layout.chunks
            local = {name for file in self._fs.list(directory) if (name := parse_file_name(file)) is not None}
            remote = dict(self._remote(place, shard))
            for name in sorted(local | remote.keys()):
                is_within = place.limits is None or name.sequence_max < place.limits[shard]
                if name.shard == shard and is_within:
                    file = str(directory / name.file_name) if name in local else None
                    yield place, name, file, remote.get(name)

    def _remote(self, place: Place, shard: int) -> Iterator[tuple[ChunkName, str]]:
        if self._tier is None:
            return
        for info in self._tier.list(shard_prefix(place.name, shard)):
            name = parse_file_name(info.key.rpartition("/")[2])
            if name is not None:
                yield name, info.key

    def _look_at_log(self, shard: int) -> tuple[LogSpan | None, bytes | None]:
        """Return what a log has, and its identity; None if it cannot be read, and must be mended first."""
        path = self._places[0].layout.shard(shard)
        # What is wrong with it is told later, when the chunks are known.
        with suppress(CorruptError, NotFoundError), open_queue(path, mode="r", fs=self._fs) as log:
            if (reach := reach_of(self._fs, Layout(path))) is not None:
                return LogSpan(log.first_sequence, reach.sealed_end), log.mark.identity if log.mark else None
        return None, None

    def _log_problems(self, shard: int, covered: int) -> list[str]:
        """Return what is wrong with a log whose shard has chunks up to `covered`."""
        try:
            behind = log_behind(
                self._fs, self._places[0].layout.shard(shard), covered, self._record.log_identity(shard)
            )
        except CorruptError as error:
            return [str(error)]
        return [] if behind is None else [str(behind)]

    def _row(self, one: Found) -> ChunkRecord:
        meta, name = one.meta, one.name
        row = ChunkRecord(
            file_name=name.file_name,
            generation=1,
            size_bytes=one.digest.size,
            compression=CompressionCodec.ZSTD,
            encrypted=name.encrypted,
            residency=_residency(self._tier, one),
            shard=name.shard,
            sequence_min=one.sequence_min,
            sequence_max=one.sequence_max,
            row_count=one.sequence_max + 1 - one.sequence_min,
            checksum=one.digest.checksum,
            key_id=one.key_id,
            origin_db_id=one.origin,
        )
        if meta is None:
            return row
        return replace(
            row,
            cohorts=meta.cohorts,
            segment_min=meta.segment_min,
            segment_max=meta.segment_max,
            ext_id_min=meta.ext_id_min,
            ext_id_max=meta.ext_id_max,
            timestamp_min_ns=meta.timestamp_min_ns,
            timestamp_max_ns=meta.timestamp_max_ns,
            created_at_ms=meta.created_ns // 1_000_000,
        )


def _foreign_problems(foreign: Sequence[Found]) -> list[str]:
    """Return what to say of chunks of another log: files one by one, objects of each other store as one."""
    counts = Counter(one.meta.mark.identity for one in foreign if not one.is_local and one.meta and one.meta.mark)
    files = [f"{one.name.file_name} is of another log, and does not count" for one in foreign if one.is_local]
    return files + [foreign_objects(count, log) for log, count in counts.items()]


def _residency(tier: Tier | None, one: Found) -> Local | LocalAndRemote | RemoteArchived:
    if one.object_key is None or tier is None:
        return Local()
    where = RemoteObject(tier=tier.name, key=one.object_key)
    # A local copy proves nothing about the remote one, which archive or verify will read back.
    if one.is_local:
        return LocalAndRemote(object=where, verified=False)
    return RemoteArchived(object=where, verified=one.meta is not None)
