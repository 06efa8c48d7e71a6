"""What a Spark query writes into: a log, or a database of a store, which is a log for each of its shards.

Looked up on the driver, once, and sent to the tasks, so that an executor needs neither catalog nor store.  A log that
is not there is made; a database is not.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from latewood.errors import ClosedError, CorruptError, NotFoundError, UnsupportedVersion, UsageError
from latewood.format.segment import FLAG_KEYED
from latewood.fs import FileSystem
from latewood.kernel import crc32c
from latewood.log import LogOptions
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.queue import open_queue
from latewood.segment import read_header

if TYPE_CHECKING:
    from latewood.catalog.tables import DbRecord

_DESCRIPTION: Final = "database.json"
_DESCRIPTION_VERSION: Final = 1
_DESCRIPTION_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Target:
    """One log, or all logs of one database."""

    root: Path
    """The log's or the database's directory; what the sink keeps is in `spark/` there."""

    logs: tuple[Path, ...]
    """The directory of each shard's log."""

    keyed: bool = False
    """Whether records may have keys."""

    options: LogOptions = field(default_factory=LogOptions)

    @property
    def state(self) -> Path:
        """What the sink keeps."""
        return self.root / "spark"

    @property
    def staging(self) -> Path:
        """What tasks have written and no commit has appended."""
        return self.state / "staging"


class _Description(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    checksum: str = ""
    database: msgspec.Raw = msgspec.Raw(b"null")


def find_target(fs: FileSystem, path: str) -> Target:
    """Return what a path means, making a log if nothing is there.

    Raises:
        UsageError: it is a store as a whole, one shard of a database, or a directory of something else.
        NotFoundError: the store has no database of that name.
        ClosedError: the database takes no more records.
        CorruptError: what says so is damaged.
    """
    root = local_path(path)
    if fs.exists(root / _DESCRIPTION):
        return _database(fs, root)
    if root.parent.name == "shards" and fs.exists(root.parent.parent / _DESCRIPTION):
        raise UsageError(f"{root} is one shard; write to the database at {root.parent.parent}, or by its name")
    if _is_store(fs, root):
        raise UsageError(f"{root} is a store; name one of its databases: {root / 'NAME'}")
    if _is_store(fs, root.parent):
        return _named_database(fs, root)
    return _log(fs, root)


def local_path(path: str) -> Path:
    """Return the directory that a path or a `file:` URL names.

    Raises:
        UsageError: it names none on this machine.
    """
    parts = urlsplit(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path)).absolute()
    if not path or "://" in path:
        raise UsageError(f"{path!r} is no directory that logs could be in; give a path on a file system")
    return Path(path).absolute()


def _log(fs: FileSystem, root: Path) -> Target:
    try:
        keyed = _is_keyed(fs, root)
    except NotFoundError:  # There is none, or its creation was cut short: opening it makes or finishes it.
        open_queue(root, fs=fs, background=False).close()
        keyed = _is_keyed(fs, root)
    return Target(root=root, logs=(root,), keyed=keyed, options=LogOptions(keyed=keyed))


def _is_keyed(fs: FileSystem, root: Path) -> bool:
    layout = Layout(root)
    if not fs.exists(root / "manifest.current"):
        raise NotFoundError(f"there is no log at {root}")
    file = fs.open(layout.absolute(ManifestStore(fs, layout).load_while_written().active.path))
    try:
        return bool(read_header(file).flags & FLAG_KEYED)
    finally:
        file.close()


def _is_store(fs: FileSystem, root: Path) -> bool:
    return fs.exists(root / "catalog.mdb") and fs.exists(root / "databases")


def _named_database(fs: FileSystem, path: Path) -> Target:
    databases = path.parent / "databases"
    gone: ClosedError | None = None
    for name in reversed(fs.list(databases)):  # The last of that name is the one that lives.
        if name.partition("-")[2] == path.name and fs.exists(databases / name / _DESCRIPTION):
            try:
                return _database(fs, databases / name)
            except ClosedError as error:
                gone = gone or error
    if gone:
        raise gone
    raise NotFoundError(f"there is no database {path.name!r} in the store at {path.parent}")


def _database(fs: FileSystem, root: Path) -> Target:
    record = _described(fs, root / _DESCRIPTION)
    from latewood.catalog.tables import DbActive  # noqa: PLC0415 - only the driver needs the catalog's types

    if not isinstance(record.status, DbActive):
        raise ClosedError(f"database {record.name!r} takes no more records: it is being drained, or gone")
    options = LogOptions(
        segment_bytes_max=record.options.segment_bytes_max,
        segment_age_max_ms=record.options.segment_age_max_ms,
        keyed=record.options.keyed,
    )
    logs = tuple(root / "shards" / f"{shard:05}" for shard in range(record.wal_shards))
    return Target(root=root, logs=logs, keyed=record.options.keyed, options=options)


def _described(fs: FileSystem, path: Path) -> "DbRecord":
    """Return what `database.json` says.   Format: docs/format/store.md."""
    from latewood.catalog.tables import DbRecord  # noqa: PLC0415 - only the driver needs the catalog's types

    class Named(msgspec.Struct, frozen=True):
        record: DbRecord

    file = fs.open(path)
    try:
        raw = file.pread(_DESCRIPTION_BYTES_MAX, 0)
    finally:
        file.close()
    try:
        found = msgspec.json.decode(raw, type=_Description)
        if found.version != _DESCRIPTION_VERSION:
            raise UnsupportedVersion(_DESCRIPTION, found.version, path)
        if f"{crc32c(bytes(found.database)):08x}" != found.checksum:
            raise CorruptError("the description does not match its checksum", path, 0)
        return msgspec.json.decode(found.database, type=Named).record
    except msgspec.MsgspecError as error:
        raise CorruptError(f"the description cannot be read: {error}", path, 0) from None
