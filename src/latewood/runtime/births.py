"""Identities of a database and of the logs of its shards: 16 random bytes each, from the birth of the database.

The row of a database and its description have them.  So the catalog alone tells whether a log is the one of its shard,
or was made anew, or copied from another shard or store, also if nothing was ever flushed from it.

A database of an older program gets its identities when its store is first opened to write.  A log of it that has an
identity by then keeps that; the others are upgraded to the one that is noted here.
Order of writes: docs/crash-safety.md, "identities of a database"
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from latewood.catalog.description import Description, load_description, store_description
from latewood.catalog.tables import DbRecord
from latewood.errors import CorruptError, NotFoundError
from latewood.format.identity import IDENTITY_BYTES, Owner
from latewood.format.store_layout import DatabaseLayout
from latewood.fs import FileSystem
from latewood.log.head import identity_of
from latewood.log.identity import Claim
from latewood.runtime.site import StoreSite
from latewood.types import DbId


def named(record: DbRecord, site: StoreSite, logs: Sequence[bytes | None] = ()) -> DbRecord:
    """Return the record of a database with new identities, its own and one for each log that has none yet."""
    known = [*logs, *[None] * (record.wal_shards - len(logs))]
    identities = [identity or site.random_bytes(IDENTITY_BYTES) for identity in known]
    return replace(record, identity=site.random_bytes(IDENTITY_BYTES), logs=b"".join(identities))


def adopted(site: StoreSite, db_id: DbId, record: DbRecord) -> DbRecord:
    """Return the record of a database that an older program made, with its identities.  Durable on return."""
    layout = site.layout.located(record.options.wal_dir)
    found = _described(site, record)
    if found is not None and found.record.identity is not None:  # Of a run that was cut before the catalog had them.
        record = replace(record, identity=found.record.identity, logs=found.record.logs)
    else:
        known = [identity_of(site.fs, layout.shard(shard)) for shard in range(record.wal_shards)]
        record = named(record, site, [one.identity if one else None for one in known])
        origin = found.origin if found is not None else None
        store_description(site.fs, layout.description, db_id, record, origin)  # First: Spark's sink reads it there.
    txn = site.catalog.begin_write()
    txn.put_db(db_id, record)
    txn.commit()
    return record


def claim_of_shard(fs: FileSystem, path: Path) -> Claim | None:
    """Return the identity and the owner of the log in a directory, by its database; None: it is no shard of a store.

    Raises:
        UnsupportedVersion: a later program wrote the description of the database.
    """
    layout = DatabaseLayout(path.parent.parent)
    if not path.name.isdecimal() or path != layout.shard(int(path.name)):
        return None
    try:
        record = load_description(fs, layout.description).record
    except (CorruptError, NotFoundError):
        return None
    return Claim(Owner.STORE, record.log_identity(int(path.name)))


def _described(site: StoreSite, record: DbRecord) -> Description | None:
    try:
        return load_description(site.fs, site.layout.located(record.options.wal_dir).description)
    except (CorruptError, NotFoundError):
        return None
