"""`database.json`: what a database is, beside its files, so that a lost catalog can be made again.

A file of `format/checked_json.py`.  Advisory: the catalog is what counts.   Format: docs/format/store.md
"""

from pathlib import Path
from typing import Final

import msgspec

from latewood.catalog.tables import DbRecord
from latewood.errors import CorruptError, NotFoundError
from latewood.format import checked_json
from latewood.fs import FileSystem, replace_file
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


def store_description(fs: FileSystem, path: Path, db_id: DbId, record: DbRecord, origin: Origin | None = None) -> None:
    """Write it, durably and at once."""
    fs.make_directory(path.parent)
    replace_file(fs, path, checked_json.encode(VERSION, Description(db_id=db_id, record=record, origin=origin)))


def origin_of(fs: FileSystem, path: Path) -> Origin | None:
    """Return where a fork came from, which never changes; None if it is none, or if nobody knows any more.

    Raises:
        UnsupportedVersion: a later program wrote the file.
    """
    try:
        return load_description(fs, path).origin
    except (CorruptError, NotFoundError):
        return None


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
    return checked_json.decode(raw, Description, VERSION, "database.json", path)
