"""Small files of JSON that prove themselves: one line with `version`, `checksum` and `body`.

The checksum is the CRC-32C, in 8 hexadecimal digits, of `body` as it stands there.  The version is looked at first.
"""

from pathlib import Path
from typing import TypeVar

import msgspec

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.kernel import crc32c

S = TypeVar("S", bound=msgspec.Struct)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    checksum: str = ""
    body: msgspec.Raw = msgspec.Raw(b"null")


def encode(version: int, body: msgspec.Struct) -> bytes:
    """Return the whole file."""
    raw = msgspec.json.encode(body)
    return msgspec.json.encode(_File(version=version, checksum=_checksum(raw), body=msgspec.Raw(raw))) + b"\n"


def decode(raw: bytes, kind: type[S], version: int, what: str, path: Path, *, oldest: int | None = None) -> S:
    """Return the body of a file of a version from `oldest` on, or of `version` alone; `what` is what errors call it.

    Raises:
        CorruptError: it is not what was written.
        UnsupportedVersion: a later program wrote it.
    """
    try:
        file = msgspec.json.decode(raw, type=_File)
        if not (version if oldest is None else oldest) <= file.version <= version:
            raise UnsupportedVersion(what, file.version, path)
        if _checksum(bytes(file.body)) != file.checksum:
            raise CorruptError(f"{what} does not match its checksum", path, 0)
        return msgspec.json.decode(file.body, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"{what} cannot be read: {error}", path, 0) from None


def _checksum(raw: bytes) -> str:
    return f"{crc32c(raw):08x}"
