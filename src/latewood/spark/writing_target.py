"""What a Spark query writes into: a log, or a database of a store, which is a log for each of its shards.

Looked up on the driver, once, and sent to the tasks, so that an executor needs neither catalog nor store.  A log that
is not there is made; a database is not.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from latewood.errors import ClosedError, NotFoundError, UsageError
from latewood.format.identity import Owner
from latewood.format.segment import FLAG_KEYED
from latewood.format.store_layout import (
    CATALOG_NAME,
    DATABASES_NAME,
    DESCRIPTION_NAME,
    DatabaseLayout,
    StoreLayout,
)
from latewood.fs import FileSystem
from latewood.log import LogOptions
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.queue import open_queue
from latewood.segment import read_header
from latewood.spark.place import local_path

if TYPE_CHECKING:
    from latewood.catalog.tables import DbRecord


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

    is_database: bool = False

    covered: tuple[int, ...] = ()
    """For each shard of a database, where its chunks ended when the query began; its log must not end before that."""

    identities: tuple[bytes | None, ...] = ()
    """For each shard of a database, the identity of its log; None where the catalog does not note it."""

    @property
    def owner(self) -> Owner:
        """Who appends to the logs: shards are the store's, and this is how it appends from Spark."""
        return Owner.STORE if self.is_database else Owner.ANYBODY

    @property
    def state(self) -> Path:
        """What the sink keeps."""
        return self.root / "spark"

    @property
    def staging(self) -> Path:
        """What tasks have written and no commit has appended."""
        return self.state / "staging"


def find_target(fs: FileSystem, path: str) -> Target:
    """Return what a path means, making a log if nothing is there.

    Raises:
        UsageError: it is a store as a whole, one shard of a database, or a directory of something else.
        NotFoundError: the store has no database of that name.
        ClosedError: the database takes no more records.
        CorruptError: what says so is damaged.
    """
    root = local_path(path)
    if fs.exists(root / DESCRIPTION_NAME):
        return _database(fs, root)
    if root.parent.name == "shards" and fs.exists(root.parent.parent / DESCRIPTION_NAME):
        raise UsageError(f"{root} is one shard; write to the database at {root.parent.parent}, or by its name")
    if _is_store(fs, root):
        raise UsageError(f"{root} is a store; name one of its databases: {root / 'NAME'}")
    if _is_store(fs, root.parent):
        return _named_database(fs, root)
    return _log(fs, root)


def check_there(fs: FileSystem, target: Target) -> None:
    """Refuse a target that was deleted since the query began, before anything is made in its place.

    Raises:
        ClosedError: it was.
    """
    if not fs.exists(DatabaseLayout(target.root).description if target.is_database else target.root):
        message = (
            f"{target.root} is gone since this query began: start the query again, to write into what has its name now"
        )
        raise ClosedError(message)


def check_living(fs: FileSystem, target: Target) -> None:
    """Refuse a target that was deleted or dropped since the query began: no reader would find what is written there.

    Raises:
        ClosedError: it was, or it is being drained.
    """
    check_there(fs, target)
    if target.is_database:
        _check_active(_load_record(fs, target.root))


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
    return fs.exists(root / CATALOG_NAME) and fs.exists(root / DATABASES_NAME)


def _named_database(fs: FileSystem, path: Path) -> Target:
    databases = path.parent / DATABASES_NAME
    gone: ClosedError | None = None
    for name in reversed(fs.list(databases)):  # The last of that name is the one that lives.
        if name.partition("-")[2] == path.name and fs.exists(databases / name / DESCRIPTION_NAME):
            try:
                return _database(fs, databases / name)
            except ClosedError as error:
                gone = gone or error
    if gone:
        raise gone
    raise NotFoundError(f"there is no database {path.name!r} in the store at {path.parent}")


def _database(fs: FileSystem, root: Path) -> Target:
    files, record = DatabaseLayout(root), _load_record(fs, root)
    _check_active(record)
    options = LogOptions(
        segment_bytes_max=record.options.segment_bytes_max,
        segment_age_max_ms=record.options.segment_age_max_ms,
        keyed=record.options.keyed,
    )
    logs = tuple(files.shard(shard) for shard in range(record.wal_shards))
    applied = _covered(StoreLayout(root.parent.parent).catalog, record.name) or {}
    return Target(
        root=root,
        logs=logs,
        keyed=record.options.keyed,
        options=options,
        is_database=True,
        covered=tuple(applied.get(shard, 0) for shard in range(record.wal_shards)),
        identities=tuple(record.log_identity(shard) for shard in range(record.wal_shards)),
    )


def _load_record(fs: FileSystem, root: Path) -> "DbRecord":
    """Return what the database in a directory says that it is.

    Raises:
        NotFoundError: there is none.
        CorruptError: what says so is damaged.
    """
    from latewood.catalog.description import load_description  # noqa: PLC0415 - only the driver needs the catalog

    return load_description(fs, DatabaseLayout(root).description).record


def _check_active(record: "DbRecord") -> None:
    from latewood.catalog.tables import DbActive  # noqa: PLC0415 - as above

    if not isinstance(record.status, DbActive):
        raise ClosedError(f"database {record.name!r} takes no more records: it is being drained, or gone")


def covered_now_of(target: Target, shard: int) -> int | None:
    """Return how far chunks of a shard of a database go now; None where the catalog cannot be asked."""
    known = _covered(StoreLayout(target.root.parent.parent).catalog, target.root.name.partition("-")[2])
    return None if known is None else known.get(shard, 0)


def _covered(path: Path, name: str) -> dict[int, int] | None:
    """Return how far chunks of each shard go; None where the catalog cannot be asked: this program has it open."""
    from latewood.catalog import Catalog  # noqa: PLC0415 - only the driver needs the catalog

    with suppress(NotFoundError, UsageError), Catalog.open(path, mode="r") as catalog:
        found = catalog.read(lambda view: view.db_by_name(name))
        if found is not None:
            states = catalog.read(lambda view: list(view.wal_states(found[0])))
            return {key.shard: state.last_applied_sequence for key, state in states}
    return None
