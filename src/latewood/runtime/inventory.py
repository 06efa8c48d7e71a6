"""What the catalog knows of a database now: its live chunks by shard, how far they go, its own row."""

from typing import Final

from latewood.archive.coverage import covered_end
from latewood.catalog import Catalog
from latewood.catalog.tables import ChunkRecord, Component, DbRecord, WalStateRecord
from latewood.errors import UnavailableError
from latewood.forking import OwnLock
from latewood.types import DbId

_LOOKS_MAX: Final = 100
"""How often a scan is begun again because chunks changed under it."""


class Inventory:
    """Looks again whenever the generation of the catalog's chunks has changed.  Thread-safe."""

    def __init__(self, catalog: Catalog, db_id: DbId) -> None:
        self._catalog, self._db_id = catalog, db_id
        self._lock = OwnLock()
        self._generation = -1
        self._chunks: dict[int, list[ChunkRecord]] = {}

    def check_open(self) -> None:
        """Return if the catalog can be read.

        Raises:
            Forked: it is the parent process's, and this is a child of it.
            ClosedError: it is closed.
        """
        self._catalog.generation(Component.CHUNKS)

    def check_file(self) -> None:
        """Return if the catalog that is open is still the store's.

        Raises:
            DirectoryReplaced: its file was removed, or another one has its name.
        """
        self._catalog.check_file()

    @property
    def generation(self) -> int:
        """How often chunks were changed by now."""
        return self._catalog.generation(Component.CHUNKS)

    def chunks(self, shard: int) -> list[ChunkRecord]:
        """Return the live chunks of a shard, in the order of their sequences.

        Raises:
            UnavailableError: they keep changing; try again.
        """
        with self._lock:
            for _ in range(_LOOKS_MAX):
                generation = self.generation
                if generation == self._generation:
                    return self._chunks.get(shard, [])
                self._chunks, self._generation = self._scan(), generation
            raise UnavailableError("the catalog's chunks keep changing; try again")

    def covered(self, shard: int) -> int:
        """Return the sequence behind the last record of a shard that is, or was, in a chunk."""
        state = self._catalog.read(lambda view: view.wal_state(self._db_id, shard)) or WalStateRecord()
        return covered_end(state.last_applied_sequence, self.chunks(shard))

    def _scan(self) -> dict[int, list[ChunkRecord]]:
        found: dict[int, list[ChunkRecord]] = {}
        for _, record in self._catalog.scan_chunks(self._db_id):
            if record.is_live:
                found.setdefault(record.shard, []).append(record)
        for records in found.values():
            records.sort(key=lambda record: record.sequence_min)
        return found


class Latest:
    """The row of a database as it is now: looked up again only when something was committed since."""

    def __init__(self, catalog: Catalog, db_id: DbId, record: DbRecord) -> None:
        self._catalog, self._db_id, self._record, self._generation = catalog, db_id, record, -1

    def __call__(self) -> DbRecord:
        """Return the row."""
        generation = self._catalog.generation()
        if generation != self._generation:
            self._record = self._catalog.read(lambda view: view.db(self._db_id)) or self._record
            self._generation = generation
        return self._record
