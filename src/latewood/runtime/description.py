"""`database.json`: what a database is, beside its files, so that a lost catalog can be made again.

One line of JSON: `version`, `checksum` and `database`.  The checksum is the CRC-32C, in 8 hexadecimal digits, of
`database` as it stands there.  Advisory: the catalog is what counts.   Format: docs/format/store.md
"""

from pathlib import Path
from typing import Final

import msgspec

from latewood.catalog.tables import DbRecord
from latewood.errors import CorruptError, NotFoundError, UnsupportedVersion
from latewood.fs import FileSystem, replace_file
from latewood.kernel import crc32c
from latewood.types import DbId

VERSION: Final = 1
_BYTES_MAX: Final = 1 << 20


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Of a fork: where its chunks are that it did not make itself."""

    db_id: DbId
    sequences: tuple[int, ...]
    """Of each shard the first sequence that is the fork's own."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One database."""

    db_id: DbId
    record: DbRecord
    origin: Origin | None = None
    """None: it is no fork."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    checksum: str = ""
    database: msgspec.Raw = msgspec.Raw(b"null")


def store_description(fs: FileSystem, path: Path, db_id: DbId, record: DbRecord, origin: Origin | None = None) -> None:
    """Write it, durably and at once."""
    body = msgspec.json.encode(Description(db_id=db_id, record=record, origin=origin))
    file = _File(version=VERSION, checksum=f"{crc32c(body):08x}", database=msgspec.Raw(body))
    fs.make_directory(path.parent)
    replace_file(fs, path, msgspec.json.encode(file) + b"\n")


def change_description(fs: FileSystem, path: Path, db_id: DbId, record: DbRecord) -> None:
    """Write it anew for a record that has changed; where a fork came from never does."""
    try:
        origin = load_description(fs, path).origin
    except (CorruptError, NotFoundError):
        origin = None
    store_description(fs, path, db_id, record, origin)


def load_description(fs: FileSystem, path: Path) -> Description:
    """Return what a file says.

    Raises:
        NotFoundError: there is none.
        CorruptError: it is not what was written.
        UnsupportedVersion: a later program wrote it.
    """
    file = fs.open(path)
    try:
        raw = file.pread(_BYTES_MAX, 0)
    finally:
        file.close()
    try:
        found = msgspec.json.decode(raw, type=_File)
        if found.version != VERSION:
            raise UnsupportedVersion("database.json", found.version, path)
        if f"{crc32c(bytes(found.database)):08x}" != found.checksum:
            raise CorruptError("the description does not match its checksum", path, 0)
        return msgspec.json.decode(found.database, type=Description)
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the description cannot be read: {error}", path, 0) from None
