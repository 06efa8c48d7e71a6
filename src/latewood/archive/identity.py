"""An archive's identity: one small object at its root, made before anything else is put there.

An address is where an archive is found, never which archive it is: the disk that belongs there may not be mounted.  The
store's catalog notes the identity before a row says that a chunk is in the archive, and no job works in another one.
Nothing here is asked for each chunk.   Format: docs/format/store.md   Order: docs/crash-safety.md
"""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import msgspec

from latewood.archive.directory import DirectoryTier
from latewood.archive.names import IDENTITY_KEY, RandomBytes
from latewood.archive.sink import Hook, no_hook
from latewood.archive.source import BytesSource, Digest
from latewood.archive.tier import Tier, find
from latewood.errors import AnotherArchive, NotFoundError, ObjectConflict
from latewood.format import checked_json
from latewood.kernel import crc32c

IDENTITY_BYTES: Final = 16
IDENTITY_STEPS: Final = ("mark archive", "note archive")
VERSION: Final = 1
PROBES_MAX: Final = 100
"""So many objects that rows name are looked for in an archive of which nothing is noted, until one is there.  With more
an archive is known that has lost many; each costs a request."""


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    identity: Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{2 * IDENTITY_BYTES}}}$")]


def read_identity(tier: Tier) -> bytes | None:
    """Return the identity of the archive that is there; None: it has none, or is not there.

    Raises:
        CorruptError: the object is not what was written.
        UnsupportedVersion: a later program wrote it.
        AccessDenied, UnavailableError: the archive refused, or did not answer.
    """
    info = find(tier, IDENTITY_KEY)
    if info is None:
        return None
    try:
        raw = tier.get(IDENTITY_KEY, 0, info.size)
    except NotFoundError:
        return None
    what, path = f"the identity of the archive {tier.name}", Path(IDENTITY_KEY)
    return bytes.fromhex(checked_json.decode(raw, _Body, VERSION, what, path).identity)


def make_identity(tier: Tier, random_bytes: RandomBytes) -> bytes:
    """Return the identity of an archive, made durably if it has none: of two stores that begin at once one makes it.

    Raises:
        CorruptError, UnsupportedVersion: as `read_identity`.
        AccessDenied, UnavailableError: the archive refused, or did not answer.
    """
    identity = random_bytes(IDENTITY_BYTES)
    raw = checked_json.encode(VERSION, _Body(identity=identity.hex()))
    try:
        tier.put(IDENTITY_KEY, BytesSource(raw, Path(IDENTITY_KEY)), Digest(len(raw), crc32c(raw)))
    except ObjectConflict:
        found = read_identity(tier)
        if found is None:
            raise
        return found
    return identity


def check_identity(
    tier: Tier,
    noted: bytes | None,
    keys: Iterable[str],
    *,
    random_bytes: RandomBytes | None = None,
    hook: Hook = no_hook,
) -> bytes | None:
    """Return the identity of an archive that may be worked in; None: it has none yet.

    `noted` is what the catalog notes of this address, `keys` are the objects that rows say are there.  With
    `random_bytes` an archive that has no identity gets one.

    Raises:
        AnotherArchive: the one that was noted, or that has one of the objects, is not there.
        CorruptError, UnsupportedVersion, AccessDenied, UnavailableError: as `read_identity`.
    """
    found = read_identity(tier)
    if noted is not None:
        if found != noted:
            raise another_archive(tier, noted, found)
        return found
    wanted = list(islice(keys, PROBES_MAX))
    if wanted and all(find(tier, key) is None for key in wanted):
        reason = missing_directory(tier) or "it has none of the objects that the catalog says are there"
        raise refusal(tier.name, reason)
    if found is not None or random_bytes is None:
        return found
    if not wanted and isinstance(tier, DirectoryTier) and (parent := tier.missing_parent()) is not None:
        raise refusal(tier.name, f"the directory {parent}, which it should be in, is not there")
    hook("mark archive")
    return make_identity(tier, random_bytes)


def refusal(address: str, reason: str) -> AnotherArchive:
    """Return the error of an address that does not lead to the archive of a store."""
    return AnotherArchive(
        f"{address} is not the archive of this store: {reason}. Is its disk mounted? Is `archive.url` the right "
        "address? Nothing was changed"
    )


def another_archive(tier: Tier, noted: bytes, found: bytes | None) -> AnotherArchive:
    """Return the error of an archive that is not the one that the catalog notes."""
    if found is not None:
        return refusal(tier.name, f"it is archive {found.hex()}, and the catalog notes {noted.hex()}")
    reason = missing_directory(tier) or f"it has no {IDENTITY_KEY}, and the catalog notes archive {noted.hex()}"
    return refusal(tier.name, reason)


def missing_directory(tier: Tier) -> str | None:
    """Say that the directory of an archive is not there; None: it is, or the archive is no directory."""
    if isinstance(tier, DirectoryTier) and not tier.is_there():
        return f"the archive's directory {tier.root} is not there"
    return None


def foreign_objects(count: int, log: bytes) -> str:
    """Say what objects of another store are, which lie where a database has its own."""
    objects = "an object" if count == 1 else f"{count:,} objects"
    return (
        f"{objects} of another store (log identity {log.hex()}) under this database's prefix, ignored here: "
        "give each store an `archive.url` of its own"
    )
