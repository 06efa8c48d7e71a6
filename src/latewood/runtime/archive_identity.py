"""Which archive a store's address leads to, held against what its catalog notes.

Order: 1. The archive gets its identity.  2. The catalog notes it.  3. The first object is put, and its row says so.  A
cut after 1 leaves an archive that the next job adopts.   Order: docs/crash-safety.md   Format: docs/format/store.md
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from latewood.archive.identity import (
    PROBES_MAX,
    another_archive,
    check_identity,
    missing_directory,
    read_identity,
    refusal,
)
from latewood.archive.names import RandomBytes
from latewood.archive.sink import Hook, no_hook
from latewood.archive.tier import Tier
from latewood.catalog import Catalog
from latewood.catalog.ops import PutRuntimeState
from latewood.catalog.tables import ARCHIVES, RUNTIME_STATE, LocalAndRemote, RemoteArchived, RuntimeRecord
from latewood.errors import ConflictError


class KnownArchives(NamedTuple):
    """What a catalog that is made again knew of archives."""

    archives: dict[str, bytes]
    """The identity of each, by its address."""
    keys: list[str]
    """Of objects that its rows say are in the archive at the present address."""


def check_archive(
    catalog: Catalog, tier: Tier, *, random_bytes: RandomBytes | None = None, hook: Hook = no_hook
) -> None:
    """Return if a store may work in the archive at its address, and note the archive's identity if that is new.

    With `random_bytes` an archive that has no identity gets one.

    Raises:
        AnotherArchive: it is not the one that has the store's chunks, or is not there.
        AccessDenied, UnavailableError: it refused, or did not answer.
    """
    noted = catalog.read(lambda view: view.archives()).get(tier.name)
    keys = object_keys(catalog, tier.name)
    found = check_identity(tier, noted, keys, random_bytes=random_bytes, hook=hook)
    if noted is None and found is not None:
        hook("note archive")
        note_archives(catalog, {tier.name: found})


def note_archives(catalog: Catalog, archives: dict[str, bytes]) -> None:
    """Note identities by their addresses, durably; what is noted already stays.

    Raises:
        AnotherArchive: another identity is noted by now.
    """
    while archives:
        before = catalog.read(lambda view: view.runtime_state(ARCHIVES))
        known = before.archives if before else {}
        for address, identity in archives.items():
            if known.get(address, identity) != identity:
                raise refusal(address, f"the catalog notes archive {known[address].hex()} by now")
        txn = catalog.begin_write()
        txn.require_record(RUNTIME_STATE, ARCHIVES, before)
        txn.extend([PutRuntimeState(ARCHIVES, RuntimeRecord(archives={**archives, **known}))])
        try:
            txn.commit()
        except ConflictError:  # Another job has noted another address.
            continue
        return


def known_archives(catalog: Catalog, tier: Tier | None) -> KnownArchives:
    """Return what a catalog knows of archives."""
    keys = [] if tier is None else list(islice(object_keys(catalog, tier.name), PROBES_MAX))
    return KnownArchives(catalog.read(lambda view: view.archives()), keys)


def checked_archives(tier: Tier | None, known: KnownArchives | None) -> dict[str, bytes]:
    """Return what a catalog that is made again notes of archives.

    Raises:
        AnotherArchive: the archive is not the one that was noted, or is not there.
    """
    archives = dict(known.archives) if known else {}
    if tier is not None:
        found = check_identity(tier, archives.get(tier.name), known.keys if known else [])
        archives |= {} if found is None else {tier.name: found}
    return archives


def check_directory(tier: Tier | None) -> None:
    """Raise if the directory of an archive is not there, and the catalog is lost that would say whether it should be.

    Raises:
        AnotherArchive: it is not there.
    """
    if tier is not None and (reason := missing_directory(tier)) is not None:
        raise refusal(tier.name, f"{reason}, and if nothing was ever archived it is to be made first")


def explain_missing(catalog: Catalog, tier: Tier) -> None:
    """Raise if an object is missing because its archive is not there, or is another one; return if it is the right one.

    Raises:
        AnotherArchive: it is not there, or is another one.
    """
    noted = catalog.read(lambda view: view.archives()).get(tier.name)
    if noted is not None and (found := read_identity(tier)) != noted:
        raise another_archive(tier, noted, found)
    if (reason := missing_directory(tier)) is not None:
        raise refusal(tier.name, reason)


def object_keys(catalog: Catalog, address: str) -> Iterator[str]:
    """Yield the keys of the objects that rows say are in an archive; not of rows that are being purged."""
    databases = catalog.read(lambda view: [db_id for db_id, _ in view.dbs()])
    for db_id in databases:
        for _, row in catalog.scan_chunks(db_id):
            where = row.residency
            if isinstance(where, RemoteArchived | LocalAndRemote) and not row.purging and where.object.tier == address:
                yield where.object.key
