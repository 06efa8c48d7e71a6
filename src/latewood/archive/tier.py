"""What Latewood asks of a place for chunks, and no more.

Every tier passes the one suite in `tests/archive/tier_suite.py`.  Errors surface as `NotFoundError`, `AccessDenied`,
`ObjectConflict`, `CorruptError`, `UsageError`, and `UnavailableError` for all that may work later.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from latewood.archive.names import IDENTITY_KEY
from latewood.archive.sink import Hook, no_hook
from latewood.archive.source import Digest, Source
from latewood.errors import CorruptError, NotFoundError, ObjectConflict, UsageError
from latewood.kernel import crc32c
from latewood.limits import TIER_PIECE_BYTES

_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_KEY_CHARS_MAX: Final = 512


class ObjectInfo(NamedTuple):
    """What a tier knows about an object without reading it."""

    key: str
    size: int
    etag: str | None = None
    version_id: str | None = None


class Tier(Protocol):
    """Objects by key.  An object is seen whole or not at all, and never changes.  Thread-safe."""

    name: str
    """What errors and the catalog call it; without credentials."""

    def put(self, key: str, source: Source, digest: Digest) -> ObjectInfo:
        """Make an object with the bytes of `source`, durable on return, if there is none.

        One that exists with the same bytes is a success: so an upload can be repeated.

        Raises:
            ObjectConflict: there is one with other bytes.
        """
        ...

    def get(self, key: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes of an object at `offset`.

        Raises:
            NotFoundError: there is no such object.
            CorruptError: it is shorter than that.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Return what is known about an object.

        Raises:
            NotFoundError: there is no such object.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects under a prefix, which is empty or ends with `/`; the archive's identity is none of them."""
        ...

    def sweep(self, prefix: str, hook: Hook = no_hook) -> Sequence[str]:
        """Remove what puts that were killed have left directly under a prefix, and return what to call it.

        Only what is surely nobody's goes.  `hook` is told `remove orphan` before each.
        """
        ...


class TierSource:
    """An object, read where it is."""

    def __init__(self, tier: Tier, key: str) -> None:
        """Look the object up.

        Raises:
            NotFoundError: there is no such object.
        """
        self.path, self._tier, self._key = Path(key), tier, key
        self.size = tier.head(key).size

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes at `offset`."""
        if not length:
            return b""
        return self._tier.get(self._key, offset, length)

    def close(self) -> None:
        """Nothing is held."""


def verify_object(tier: Tier, key: str, digest: Digest) -> ObjectInfo:
    """Read all of an object back and return what is known about it.

    Raises:
        NotFoundError: there is no such object.
        CorruptError: its length or checksum is another one.
    """
    info = tier.head(key)
    if info.size != digest.size:
        raise CorruptError(f"in {tier.name}: {info.size:,} bytes, not {digest.size:,}", Path(key), 0)
    checksum = 0
    for offset in range(0, info.size, TIER_PIECE_BYTES):
        checksum = crc32c(tier.get(key, offset, min(TIER_PIECE_BYTES, info.size - offset)), checksum)
    if checksum != digest.checksum:
        raise CorruptError(f"in {tier.name}: checksum {checksum:08x}, not {digest.checksum:08x}", Path(key), 0)
    return info


def confirm_object(tier: Tier, known: ObjectInfo, digest: Digest | None) -> ObjectInfo:
    """Return what is known about an object now, if it has the bytes that it had when it was verified.

    `known` is what the tier said then.  If it says the same now the object was not replaced; else it is read back, as
    it is if the tier said nothing then.

    Raises:
        NotFoundError: there is no such object.
        CorruptError: it has other bytes.
        UsageError: it must be read back, and `digest` is None.
    """
    info = tier.head(known.key)
    if info.size != known.size:
        raise CorruptError(f"in {tier.name}: {info.size:,} bytes, not {known.size:,}", Path(known.key), 0)
    if info.etag is not None and info.etag == known.etag and info.version_id in (None, known.version_id):
        return info
    if digest is None:
        raise UsageError(f"{tier.name}: {known.key} may have been replaced, and its row has no checksum to tell")
    return verify_object(tier, known.key, digest)


def settle_existing(tier: Tier, key: str, digest: Digest) -> ObjectInfo:
    """Return the object that was there before, if it has the same bytes.

    Raises:
        ObjectConflict: it has others.
        NotFoundError: it went away meanwhile.
    """
    try:
        return verify_object(tier, key, digest)
    except CorruptError as error:
        raise ObjectConflict(f"{tier.name}: {key} exists with other bytes: {error.reason}") from None


def find(tier: Tier, key: str) -> ObjectInfo | None:
    """Return what is known about an object, or None if there is none."""
    try:
        return tier.head(key)
    except NotFoundError:
        return None


def check_key(key: str) -> str:
    """Return `key` if every tier can store it.

    Raises:
        UsageError: it is empty, too long, or has parts that a path cannot have.
    """
    if key == IDENTITY_KEY:
        return key
    if len(key) > _KEY_CHARS_MAX or not _KEY.fullmatch(key):
        raise UsageError(f"{key[:80]!r} is no key of an object: parts of letters, digits, '.', '_', '-' divided by '/'")
    return key


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is one that every tier understands alike.

    Raises:
        UsageError: it is neither empty nor a key with `/` behind it.
    """
    if prefix and not prefix.endswith("/"):
        raise UsageError(f"a prefix is empty or ends with '/', unlike {prefix[:80]!r}")
    if prefix:
        check_key(prefix[:-1])
    return prefix
