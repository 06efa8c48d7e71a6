"""Purge: what is left of a database that was dropped goes for good.

Order: 1. Its rows say that they are being purged, durably.  2. Objects and files that no fork shares go.  3. The rows,
then the logs and the rest of the directory.  4. The database's own row.  A cut leaves a tombstone, and the next purge
goes on.  As long as a fork shares a file, the tombstone and that file stay.
"""

from contextlib import suppress
from typing import Final

import msgspec

from latewood.archive.names import shard_prefix
from latewood.catalog.tables import ChunkKey, ChunkRecord, Component, LocalAndRemote, RemoteArchived, WalStateKey
from latewood.errors import NotFoundError, UsageError
from latewood.runtime.site import DatabaseSite, StoreSite

_ROWS_IN_A_COMMIT: Final = 500


def purge_database(site: StoreSite, database: DatabaseSite) -> bool:
    """Remove everything of a dropped database; return whether nothing is left of it.

    Raises:
        UsageError: objects of it are archived, and the store has no archive now.
        AnotherArchive: the archive is not the one that has the store's chunks, or is not there.
    """
    rows = list(site.catalog.scan_chunks(database.db_id))
    if database.tier is None and any(_object_key(row) for _, row in rows):
        raise UsageError("the database has archived chunks: open the store with its archive to purge them too")
    database.check_archive()
    _commit_rows(site, [(key, msgspec.structs.replace(row, purging=True)) for key, row in rows if not row.purging])
    kept = [row for _, row in rows if not _remove(site, database, row)]
    if database.tier is not None:
        for shard in range(database.record.wal_shards):
            database.tier.sweep(shard_prefix(database.record.name, shard))
    if kept or _is_home_of_others(site, database):
        return False
    _delete_rows(site, [key for key, _ in rows])
    site.fs.remove_tree(database.layout.root)
    site.fs.sync_directory(site.layout.databases)
    txn = site.catalog.begin_write()
    for shard in range(database.record.wal_shards):
        txn.delete_wal_state(WalStateKey(database.db_id, shard))
    txn.delete_db(database.db_id)
    txn.commit()
    return True


def _is_home_of_others(site: StoreSite, database: DatabaseSite) -> bool:
    """Say whether chunks of forks are in its directory, or named after it: also such as it has let go of itself."""
    others = site.catalog.read(lambda view: [db_id for db_id, _ in view.dbs() if db_id != database.db_id])
    rows = (row for db_id in others for _, row in site.catalog.scan_chunks(db_id))
    return any(row.origin_db_id == database.db_id for row in rows)


def _remove(site: StoreSite, database: DatabaseSite, row: ChunkRecord) -> bool:
    """Remove a chunk's object and file, unless another database shares them; return whether it did."""
    if any(not other.purging for other in database.sharers(row.file_name)):
        return row.origin_db_id is not None  # A fork just lets go; the origin keeps the file for it.
    if database.tier is not None:  # Also what the database that shared it has uploaded: it has the same key.
        database.tier.delete(database.object_key(row))
    with suppress(NotFoundError):
        site.fs.remove(database.chunk_path(row))
    return True


def _object_key(row: ChunkRecord) -> str | None:
    return row.residency.object.key if isinstance(row.residency, RemoteArchived | LocalAndRemote) else None


def _commit_rows(site: StoreSite, rows: list[tuple[ChunkKey, ChunkRecord]]) -> None:
    for start in range(0, len(rows), _ROWS_IN_A_COMMIT):
        txn = site.catalog.begin_write()
        for key, row in rows[start : start + _ROWS_IN_A_COMMIT]:
            txn.upsert_chunk(key, row)
        txn.bump_generation(Component.CHUNKS)
        txn.commit()


def _delete_rows(site: StoreSite, keys: list[ChunkKey]) -> None:
    for start in range(0, len(keys), _ROWS_IN_A_COMMIT):
        txn = site.catalog.begin_write()
        for key in keys[start : start + _ROWS_IN_A_COMMIT]:
            txn.delete_chunk(key)
        txn.bump_generation(Component.CHUNKS)
        txn.commit()
