"""A store, as its jobs see it: what `latewood.jobs.handlers.site` asks for."""

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from latewood.archive.keys import KeyRing
from latewood.archive.names import parse_file_name
from latewood.archive.options import ChunkOptions
from latewood.archive.sink import Hook, no_hook
from latewood.archive.tier import Tier, TierSource
from latewood.catalog import Catalog
from latewood.catalog.tables import ChunkRecord, DbRecord, Local, LocalAndRemote, RemoteArchived
from latewood.clock import Clock
from latewood.errors import CorruptError, KeyNotFound, NotFoundError, UsageError
from latewood.forking import no_fork
from latewood.format.store_layout import DatabaseLayout, StoreLayout
from latewood.fs import FileSystem
from latewood.queue import Queue
from latewood.queue.holding import retention_held
from latewood.runtime.archive_identity import check_archive, explain_missing
from latewood.types import DbId

if TYPE_CHECKING:
    from latewood.archive.chunk_reader import ChunkReader


class DatabaseSite:
    """One database: its logs, its chunks on disk, and its tier."""

    def __init__(
        self,
        db_id: DbId,
        record: DbRecord,
        layout: DatabaseLayout,
        store: "StoreSite",
        open_log: Callable[[int], Queue],
        reader_floor: Callable[[int], int | None],
    ) -> None:
        self.db_id, self.record, self.layout = db_id, record, layout
        self._store, self._open_log, self._reader_floor = store, open_log, reader_floor
        self.chunk_dir: Path = layout.chunks
        self.report_dir: Path = layout.reports
        options = record.options
        self.chunk_options = ChunkOptions(
            chunk_bytes=options.chunk_bytes, compression_level=options.compression.level or 1
        )
        self.keys: KeyRing | None = store.keys_for(record)
        self.keys_to_read: KeyRing | None = store.keys
        self.tier: Tier | None = store.tier

    def log(self, shard: int) -> Queue:
        """Return a shard's log, open to append in this process."""
        return self._open_log(shard)

    def reader_floor(self, shard: int) -> int | None:
        """Return the first sequence that a reader of the database still wants of a shard; None: there is no reader."""
        return self._reader_floor(shard)

    def readers_held(self) -> AbstractContextManager[object]:
        """Keep readers from beginning while a block runs: the positions stored by then are those of all readers."""
        return retention_held(self._store.fs, self.layout.root)

    def chunk_path(self, record: ChunkRecord) -> Path:
        """Return where a chunk's local file is, or would be: a fork's is in the database that it was forked from."""
        if record.origin_db_id is None:
            return self.chunk_dir / record.file_name
        return self._store.layout_of(record.origin_db_id).chunks / record.file_name

    def open_chunk(self, record: ChunkRecord) -> "ChunkReader":
        """Open a chunk wherever it is: the local file if there is one, else the object.

        Raises:
            NotFoundError: it is nowhere; the catalog may know better by now.
            UsageError: it is archived, and the store has no archive.
            AnotherArchive: its archive is not there, or another one is in its place.
        """
        with no_fork():
            from latewood.archive.chunk_reader import ChunkReader, open_chunk  # noqa: PLC0415 - Arrow takes its time to load

        keys = self._store.keys
        if not isinstance(record.residency, RemoteArchived):
            try:
                return open_chunk(self._store.fs, self.chunk_path(record), keys)
            except NotFoundError:
                if not isinstance(record.residency, LocalAndRemote):
                    raise
        assert isinstance(record.residency, RemoteArchived | LocalAndRemote)
        if self.tier is None:
            message = f"{record.file_name} is archived, and the store has no archive: set `archive.url`"
            raise UsageError(message)
        try:
            return ChunkReader(TierSource(self.tier, record.residency.object.key), keys)
        except NotFoundError:
            explain_missing(self._store.catalog, self.tier)
            raise

    def check_archive(self, *, make: bool = False, hook: Hook = no_hook) -> None:
        """Return if the store may work in its archive, or has none; with `make` an archive without identity gets one.

        Raises:
            AnotherArchive: it is not the one that has the store's chunks, or is not there.
        """
        if self.tier is not None:
            random_bytes = self._store.random_bytes if make else None
            check_archive(self._store.catalog, self.tier, random_bytes=random_bytes, hook=hook)

    def missing(self, record: ChunkRecord) -> CorruptError:
        """Return the error of a chunk that is in no place where its row says that it is."""
        records = f"records {record.sequence_min} to {record.sequence_max} of shard {record.shard}"
        places = "its file" if isinstance(record.residency, Local) else f"its object {self.object_key(record)}"
        if isinstance(record.residency, LocalAndRemote):
            places = f"its file and {places}"
        reason = f"database {self.record.name!r} has {records} in this chunk, and {places} cannot be found"
        return CorruptError(reason, self.chunk_path(record), 0)

    def object_key(self, record: ChunkRecord) -> str:
        """Return the key that a chunk has, or will have, in the tier."""
        if isinstance(record.residency, RemoteArchived | LocalAndRemote):
            return record.residency.object.key
        name = parse_file_name(record.file_name)
        assert name is not None, record.file_name
        return name.object_key(self._store.name_of(self.db_id if record.origin_db_id is None else record.origin_db_id))

    def sharers(self, file_name: str) -> list[ChunkRecord]:
        """Return the rows of other databases that name this chunk file: forks, or what this one was forked from."""
        catalog = self._store.catalog
        others = catalog.read(lambda view: [other for other, _ in view.dbs() if other != self.db_id])
        rows = (row for other in others for _, row in catalog.scan_chunks(other))
        return [row for row in rows if row.file_name == file_name]


class StoreSite:
    """A store, as its jobs see it."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        catalog: Catalog,
        layout: StoreLayout,
        tier: Tier | None,
        keys: KeyRing | None,
    ) -> None:
        self.fs, self.clock, self.catalog = fs, clock, catalog
        self.layout, self.tier, self.keys = layout, tier, keys
        self.find: Callable[[DbId], DatabaseSite]
        """Set by the store, which has the databases open."""

    def database(self, db_id: DbId) -> DatabaseSite:
        """Return a database that is not gone.

        Raises:
            NotFoundError: there is none.
        """
        return self.find(db_id)

    def layout_of(self, db_id: DbId) -> DatabaseLayout:
        """Return where a database is, also one that is gone.

        Raises:
            NotFoundError: there is none.
        """
        return self.layout.located(self._record(db_id).options.wal_dir)

    def name_of(self, db_id: DbId) -> str:
        """Return what a database is called, or was.

        Raises:
            NotFoundError: there is none.
        """
        return self._record(db_id).name

    def keys_for(self, record: DbRecord) -> KeyRing | None:
        """Return what new chunks of a database are encrypted with; None: nothing.

        Raises:
            KeyNotFound: it should be encrypted, and there is no such key.
        """
        encryption = record.options.encryption
        if encryption is None:
            return None
        return self.keys_with(encryption.key_id, f"database {record.name!r}")

    def keys_with(self, key_id: str, what: str) -> KeyRing:
        """Return all keys, with this one to encrypt with; `what` is what is encrypted.

        Raises:
            KeyNotFound: there is no such key.
        """
        if self.keys is None:
            raise KeyNotFound(f"{what} is encrypted with {key_id!r}, and there are no keys: set `encryption.key_file`")
        return self.keys.using(key_id)

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes, for names of new chunks and for encryption."""
        return secrets.token_bytes(count)

    def _record(self, db_id: DbId) -> DbRecord:
        record = self.catalog.read(lambda view: view.db(db_id))
        if record is None:
            message = f"there is no database {db_id}"
            raise NotFoundError(message)
        return record
