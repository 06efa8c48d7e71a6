"""Make a lost catalog again, from what is on the disk and in the archive.

Reads `database.json` of every database, the footers of its chunks in both places, and its logs.  Jobs, metrics and the
generations of old are lost; no record is.  Which chunks count is decided by `choose`, which is pure: those that no
other was made from, as long as they do not overlap.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from latewood.archive.chunk import ChunkMeta
from latewood.archive.chunk_reader import ChunkReader, open_chunk
from latewood.archive.keys import KeyRing
from latewood.archive.names import ChunkName, parse_file_name, shard_prefix
from latewood.archive.source import Digest, FileSource, digest_of
from latewood.archive.tier import Tier, TierSource
from latewood.catalog import Catalog
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
from latewood.errors import CorruptError, KeyNotFound, LatewoodError, NotFoundError, UsageError
from latewood.fs import FileSystem
from latewood.queue import open_queue
from latewood.runtime.description import Description, load_description
from latewood.runtime.layout import DatabaseLayout, StoreLayout

_ROWS_IN_A_COMMIT: Final = 500


class Found(NamedTuple):
    """A chunk that was found, and where."""

    name: ChunkName
    meta: ChunkMeta
    digest: Digest
    key_id: str | None
    is_local: bool
    object_key: str | None


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
    """What could not be read."""


def choose(found: Iterable[Found]) -> tuple[list[Found], list[Found]]:
    """Return the chunks of one shard that count, in order, and those that another one replaced.

    A chunk that was made from others takes their place.  Of two that overlap otherwise (a flush that ran twice) the one
    that begins earlier counts, and of those that begin together the longer one.
    """
    everything = list(found)
    replaced = {parent for one in everything for parent in one.meta.parents}
    alive = [one for one in everything if one.name.token not in replaced]
    alive.sort(key=lambda one: (one.meta.sequence_min, -one.meta.sequence_max, one.name.token))
    chosen: list[Found] = []
    for one in alive:
        if not chosen or one.meta.sequence_min > chosen[-1].meta.sequence_max:
            chosen.append(one)
    tokens = {one.name.token for one in chosen}
    return chosen, [one for one in everything if one.name.token not in tokens]


def gaps_of(shard: int, chosen: list[Found], log_first: int) -> list[tuple[int, int, int]]:
    """Return the sequences between the first chunk and the log that nothing holds."""
    gaps, at = [], chosen[0].meta.sequence_min if chosen else log_first
    for one in chosen:
        if one.meta.sequence_min > at:
            gaps.append((shard, at, one.meta.sequence_min))
        at = one.meta.sequence_max + 1
    if at < log_first:
        gaps.append((shard, at, log_first))
    return gaps


def rebuild_catalog(
    fs: FileSystem, layout: StoreLayout, catalog: Catalog, tier: Tier | None, keys: KeyRing | None
) -> list[DatabaseReport]:
    """Fill an empty catalog with what is found, and return a report of each database.

    Raises:
        UsageError: the catalog is not empty.
    """
    if catalog.read(lambda view: next(iter(view.dbs()), None)) is not None:
        raise UsageError("the catalog has databases: move it away first, if it should be made again")
    reports, last_id, last_chunk = [], 0, 0
    for directory in fs.list(layout.databases):
        database = DatabaseLayout(layout.databases / directory)
        try:
            description = load_description(fs, database.description)
        except (CorruptError, NotFoundError) as error:
            reports.append(DatabaseReport(directory, 0, 0, 0, 0, [], [str(error)]))
            continue
        if isinstance(description.record.status, DbTombstoned):
            continue
        report, last_chunk = _Rebuilding(fs, catalog, tier, keys, database, description).run(last_chunk)
        last_id = max(last_id, description.db_id)
        reports.append(report)
    txn = catalog.begin_write()
    for component, last in ((Component.DB_IDS, last_id), (Component.CHUNK_IDS, last_chunk)):
        if last:
            txn.bump_generation(component, last)
    txn.bump_generation(Component.CHUNKS)
    txn.commit()
    return reports


class _Rebuilding:
    """One database that is found again."""

    def __init__(
        self,
        fs: FileSystem,
        catalog: Catalog,
        tier: Tier | None,
        keys: KeyRing | None,
        layout: DatabaseLayout,
        description: Description,
    ) -> None:
        self._fs, self._catalog, self._tier, self._keys = fs, catalog, tier, keys
        self._layout, self._db_id, self._record = layout, description.db_id, description.record
        self._problems: list[str] = []

    def run(self, last_chunk: int) -> tuple[DatabaseReport, int]:
        record, gaps, superseded, rows = self._record, list[tuple[int, int, int]](), 0, list[ChunkRecord]()
        applied = []
        for shard in range(record.wal_shards):
            chosen, replaced = choose(self._found(shard))
            log_first = self._log_first(shard)
            gaps += gaps_of(shard, chosen, log_first)
            superseded += len(replaced)
            rows += [self._row(one) for one in chosen]
            applied.append(chosen[-1].meta.sequence_max + 1 if chosen else log_first)
        self._commit(rows, applied, last_chunk)
        report = DatabaseReport(
            record.name, self._db_id, record.wal_shards, len(rows), superseded, gaps, self._problems
        )
        return report, last_chunk + len(rows)

    def _commit(self, rows: list[ChunkRecord], applied: list[int], last_chunk: int) -> None:
        txn = self._catalog.begin_write()
        for number, row in enumerate(rows, 1):
            txn.upsert_chunk(ChunkKey(self._db_id, last_chunk + number), row)
            if len(txn) >= _ROWS_IN_A_COMMIT:
                txn.commit()
                txn = self._catalog.begin_write()
        for shard, sequence in enumerate(applied):
            txn.put_wal_state(WalStateKey(self._db_id, shard), WalStateRecord(last_applied_sequence=sequence))
        txn.put_db(self._db_id, self._record)
        txn.commit()

    def _found(self, shard: int) -> Iterator[Found]:
        remote = dict(self._remote(shard))
        for file_name in self._fs.list(self._layout.chunks):
            name = parse_file_name(file_name)
            if name is None or name.shard != shard:
                continue
            path = self._layout.chunks / file_name
            source = FileSource(self._fs, path)
            try:
                digest = digest_of(source)
            finally:
                source.close()
            if (one := self._read(name, digest, open_chunk_at=None)) is not None:
                yield one._replace(object_key=remote.pop(name, None))
        for name, key in remote.items():
            assert self._tier is not None
            if (one := self._read(name, None, open_chunk_at=key)) is not None:
                yield one

    def _remote(self, shard: int) -> Iterator[tuple[ChunkName, str]]:
        if self._tier is None:
            return
        for info in self._tier.list(shard_prefix(self._record.name, shard)):
            name = parse_file_name(info.key.rpartition("/")[2])
            if name is not None:
                yield name, info.key

    def _read(self, name: ChunkName, digest: Digest | None, *, open_chunk_at: str | None) -> Found | None:
        try:
            if open_chunk_at is None:
                reader = open_chunk(self._fs, self._layout.chunks / name.file_name, self._keys)
            else:
                assert self._tier is not None
                source = TierSource(self._tier, open_chunk_at)
                digest = digest_of(source)
                reader = ChunkReader(source, self._keys)
        except (CorruptError, KeyNotFound, LatewoodError) as error:
            self._problems.append(str(error))
            return None
        with reader:
            assert digest is not None
            local = open_chunk_at is None
            return Found(name, reader.meta, digest, reader.key_id, local, open_chunk_at)

    def _log_first(self, shard: int) -> int:
        with open_queue(self._layout.shard(shard), mode="r", fs=self._fs) as log:
            return log.first_sequence

    def _row(self, one: Found) -> ChunkRecord:
        meta = one.meta
        return ChunkRecord(
            file_name=one.name.file_name,
            generation=1,
            size_bytes=one.digest.size,
            compression=CompressionCodec.ZSTD,
            encrypted=one.name.encrypted,
            residency=_residency(self._tier, one),
            shard=meta.shard,
            sequence_min=meta.sequence_min,
            sequence_max=meta.sequence_max,
            segment_min=meta.segment_min,
            segment_max=meta.segment_max,
            row_count=meta.row_count,
            ext_id_min=meta.ext_id_min,
            ext_id_max=meta.ext_id_max,
            timestamp_min_ns=meta.timestamp_min_ns,
            timestamp_max_ns=meta.timestamp_max_ns,
            checksum=one.digest.checksum,
            key_id=one.key_id,
            created_at_ms=meta.created_ns // 1_000_000,
        )


def _residency(tier: Tier | None, one: Found) -> Local | LocalAndRemote | RemoteArchived:
    if one.object_key is None or tier is None:
        return Local()
    where = RemoteObject(tier=tier.name, key=one.object_key)
    # A local copy proves nothing about the remote one, which archive or verify will read back.
    return LocalAndRemote(object=where, verified=False) if one.is_local else RemoteArchived(object=where, verified=True)
