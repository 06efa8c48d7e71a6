"""What the handlers of a store's jobs work on.  The store implements it; nothing here opens anything by itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from latewood.archive.keys import KeyRing
from latewood.archive.options import ChunkOptions
from latewood.archive.sink import Hook, no_hook
from latewood.archive.tier import Tier
from latewood.catalog import Catalog
from latewood.catalog.tables import ChunkRecord, DbRecord
from latewood.clock import Clock
from latewood.fs import FileSystem
from latewood.queue import Queue
from latewood.types import DbId

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from latewood.archive.chunk_reader import ChunkReader

FLUSH_READER: Final = "latewood-flush"
"""The reader of every shard's log that keeps what no verified chunk has.  No policy of the log may ignore it."""


class DatabaseSite(Protocol):
    """One database: its logs, its chunks on disk, and its tier."""

    db_id: DbId
    record: DbRecord
    chunk_dir: Path
    """Where its new chunks are made.  Files of its forks' rows may be here too."""
    report_dir: Path
    """Where what a scrub found is written down."""
    chunk_options: ChunkOptions
    keys: KeyRing | None
    """What new chunks are encrypted with; None: not at all."""
    keys_to_read: KeyRing | None
    """All keys that there are: a database may have had another one before, or none now."""
    tier: Tier | None
    """Where chunks are archived to; None: nowhere."""

    def log(self, shard: int) -> Queue:
        """Return a shard's log, open to append in this process.

        Raises:
            LogBehind: it is not there, or ends before its chunks do.
        """
        ...

    def chunk_path(self, record: ChunkRecord) -> Path:
        """Return where a chunk's local file is, or would be: a fork's may be with the database that it came from."""
        ...

    def open_chunk(self, record: ChunkRecord) -> "ChunkReader":
        """Open a chunk wherever it is: the local file if there is one, else the object.

        Raises:
            NotFoundError: it is nowhere; the catalog may know better by now.
        """
        ...

    def check_archive(self, *, make: bool = False, hook: Hook = no_hook) -> None:
        """Return if the store may work in its archive, or has none; with `make` an archive without identity gets one.

        Raises:
            AnotherArchive: it is not the one that has the store's chunks, or is not there.
        """
        ...

    def object_key(self, record: ChunkRecord) -> str:
        """Return the key that a chunk has, or will have, in the tier: the same for all databases that share it."""
        ...

    def reader_floor(self, shard: int) -> int | None:
        """Return the first sequence that a reader of the database still wants; None if it has no readers.

        Raises:
            CorruptError: a reader's position is damaged; nothing that it may hold back must go.
        """
        ...

    def readers_held(self) -> "AbstractContextManager[object]":
        """Keep readers from beginning while a block runs: the positions stored by then are those of all readers.

        Raises:
            Locked: a reader that is beginning, or another process that keeps readers out, does not end in time.
        """
        ...

    def sharers(self, file_name: str) -> Sequence[ChunkRecord]:
        """Return the rows of other databases that name this chunk file: forks, or what this one was forked from."""
        ...


class StoreSite(Protocol):
    """A store, as its jobs see it."""

    fs: FileSystem
    clock: Clock
    catalog: Catalog

    def database(self, db_id: DbId) -> DatabaseSite:
        """Return a database that is not gone.

        Raises:
            NotFoundError: there is none.
        """
        ...

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes, for names of new chunks and for encryption."""
        ...
