"""The live chunks of a database, by shard, as the catalog knows them now."""

from typing import Final

from latewood.catalog import Catalog
from latewood.catalog.tables import ChunkRecord, Component
from latewood.errors import UnavailableError
from latewood.fs import OwnLock
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

    def _scan(self) -> dict[int, list[ChunkRecord]]:
        found: dict[int, list[ChunkRecord]] = {}
        for _, record in self._catalog.scan_chunks(self._db_id):
            if record.is_live:
                found.setdefault(record.shard, []).append(record)
        for records in found.values():
            records.sort(key=lambda record: record.sequence_min)
        return found
