"""What all rows of the catalog share: how a record becomes bytes, and how its bytes are proved.

Header of every value, `HEADER_SIZE` bytes, then the body:

| offset | size | field          | type | meaning                                                       |
| -----: | ---: | -------------- | ---- | ------------------------------------------------------------- |
|      0 |    2 | record_version | u16  | the table's version; all of them have this header           |
|      2 |    4 | checksum       | u32  | CRC-32C of table name, 0 byte, key, record_version, then body |
|      6 |    n | body           | [u8] | MessagePack: an array, one element for each field             |

Little-endian.  LMDB has no checksums of its own, so table and key are in the sum too: a flipped key, or a row that
turned up in another table, is found like a flipped value.  Within one version new fields may only come at the end
and with a default: elements that are missing get it, elements beyond the last known field are skipped.
Format: docs/format/catalog.md
"""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from latewood.errors import CatalogCorrupted, UnsupportedVersion, UsageError
from latewood.kernel import crc32c
from latewood.limits import CATALOG_VALUE_BYTES_MAX, check_name

HEADER_SIZE: Final = 6
_LAYOUT: Final = struct.Struct(
    "<"
    "H"  # record_version
    "I"  # checksum
)
assert _LAYOUT.size == HEADER_SIZE
_VERSION: Final = struct.Struct("<H")
_ENCODER: Final = msgspec.msgpack.Encoder()


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The base of every stored value.  Field order is the order on disk."""


K = TypeVar("K")
R = TypeVar("R", bound=Record)
Upgrade = Callable[[bytes], Any]
"""Makes a record of the present version from the body of an older one."""


class KeyCodec(Protocol[K]):
    """Bytes that sort as the keys do, and back."""

    size: int | None

    def pack(self, key: K) -> bytes:
        """Return the key's bytes."""
        ...

    def unpack(self, raw: bytes) -> K:
        """Return the key; raises ValueError if these bytes are none."""
        ...


class NumberKey:
    """One big-endian number."""

    def __init__(self, code: str = "Q") -> None:
        self._layout = struct.Struct(f">{code}")
        self.size: int | None = self._layout.size

    def pack(self, key: int) -> bytes:
        """Return the key's bytes."""
        return self._layout.pack(key)

    def unpack(self, raw: bytes) -> int:
        """Return the key."""
        number: int
        (number,) = self._layout.unpack(raw)
        return number


class TupleKey(Generic[K]):
    """Several big-endian numbers, a named tuple in memory.  Pad bytes (`x`) are written as zeros and must be zeros."""

    def __init__(self, layout: str, make: Callable[..., K]) -> None:
        self._layout, self._make = struct.Struct(layout), make
        self.size: int | None = self._layout.size

    def pack(self, key: K) -> bytes:
        """Return the key's bytes."""
        return self._layout.pack(*key)  # type: ignore[misc]  # K is a named tuple, which its bound cannot say

    def unpack(self, raw: bytes) -> K:
        """Return the key."""
        return self._make(*self._layout.unpack(raw))


class NameKey:
    """A name that could be a file name."""

    size: int | None = None

    def pack(self, key: str) -> bytes:
        """Return the key's bytes."""
        return check_name(key, "a catalog").encode()

    def unpack(self, raw: bytes) -> str:
        """Return the key."""
        return raw.decode()


class Table(Generic[K, R]):
    """One table: its name, its keys, its records, their version and what older ones become."""

    def __init__(
        self,
        name: str,
        number: int,
        keys: KeyCodec[K],
        record: type[R],
        *,
        version: int,
        older: Mapping[int, Upgrade] | None = None,
        is_logged: bool = True,
    ) -> None:
        self.name, self.number, self.record, self.version = name, number, record, version
        self.is_logged = is_logged
        """Whether the change log tells of this table's rows."""
        self.older = older or {}
        self._keys = keys
        self._decoder = msgspec.msgpack.Decoder(record)
        self._salt = name.encode() + b"\0"
        self._version_bytes = _VERSION.pack(version)

    def pack_key(self, key: K) -> bytes:
        """Return a key's bytes.

        Raises:
            UsageError: the key does not fit.
        """
        try:
            return self._keys.pack(key)
        except (struct.error, TypeError) as error:
            message = f"{key!r} cannot be a key of table {self.name!r}: {error}"
            raise UsageError(message) from error

    def unpack_key(self, raw: bytes, path: Path) -> K:
        """Return the key that these bytes are.

        Raises:
            CatalogCorrupted: they are none.
        """
        try:
            return self._keys.unpack(raw)
        except (struct.error, ValueError) as error:
            raise CatalogCorrupted(f"no such key can be: {error}", path, self.name, raw) from error

    def encode(self, key: bytes, record: R) -> bytes:
        """Return a record's value under `key`.

        Raises:
            UsageError: a field holds what it cannot hold, or all of it is too large.
        """
        try:
            body = _ENCODER.encode(record)
            self._decoder.decode(body)  # Construction checks no types: what could not be read is not written.
        except (msgspec.MsgspecError, OverflowError, TypeError, ValueError, RecursionError) as error:
            message = f"this {type(record).__name__} cannot be stored: {error}"
            raise UsageError(message) from error
        if len(body) > CATALOG_VALUE_BYTES_MAX:
            message = f"this {type(record).__name__} has {len(body):,} bytes; at most {CATALOG_VALUE_BYTES_MAX:,}"
            raise UsageError(message)
        head = self._version_bytes
        checksum = crc32c(body, crc32c(self._salt + key + head))
        return head + checksum.to_bytes(4, "little") + body

    def decode(self, key: bytes, value: bytes, path: Path) -> R:
        """Return the record in a value, brought to the present version.

        Raises:
            CatalogCorrupted: key or value are not what was written.
            UnsupportedVersion: a later program wrote it.
        """
        if len(value) < HEADER_SIZE:
            raise CatalogCorrupted(f"cut short at {len(value)} bytes", path, self.name, key)
        version, stored = _LAYOUT.unpack_from(value)
        body = value[HEADER_SIZE:]
        if stored != crc32c(body, crc32c(self._salt + key + value[:2])):
            raise CatalogCorrupted("the checksum does not match", path, self.name, key)
        if version == self.version:
            return self._decoded(self._decoder.decode, body, key, path)
        if version in self.older:
            return self._decoded(self.older[version], body, key, path)
        raise UnsupportedVersion(f"catalog table {self.name!r}", version, path)

    def version_of(self, value: bytes) -> int:
        """Return the version that a value says it has, nothing checked."""
        return int.from_bytes(value[:2], "little")

    def _decoded(self, decode: Callable[[bytes], R], body: bytes, key: bytes, path: Path) -> R:
        try:
            return decode(body)
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            raise CatalogCorrupted(f"a sound value that cannot be read: {error}", path, self.name, key) from error
