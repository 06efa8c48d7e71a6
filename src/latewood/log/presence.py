"""Whether a directory holds a log, may become one, or was on the way to be one when somebody died."""

from pathlib import Path
from typing import Any, Final

from latewood.errors import ManifestCorrupted, NotFoundError, Owned, UsageError
from latewood.format.identity import Owner
from latewood.format.store_layout import CATALOG_NAME, DATABASES_NAME, DESCRIPTION_NAME
from latewood.fs import FileSystem
from latewood.log.creation import is_unborn
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore

_OURS: Final = {
    "identity",
    "index.meta",
    "manifest.1",
    "manifest.2",
    "manifest.current",
    "readers",
    "retention.lock",
    "segments",
    "wake",
    "writer.lock",
}
_HARMLESS: Final = {"lost+found"}
"""What an empty disk has."""
_NAMED_MAX: Final = 3
_NODE_NAME: Final = "node.json"


def directory_of(path: Any) -> Path:
    """Return the path that a caller means.

    Raises:
        UsageError: it is empty, or no path at all.
    """
    try:
        directory = Path(path)
    except TypeError:
        message = f"a log's path is a str or a Path, not {path!r}"
        raise UsageError(message) from None
    if path == "" or "\0" in str(directory):
        message = f'{path!r} is not a path; name the directory of the log, or "." for the current one'
        raise UsageError(message)
    return directory


def check_may_become_log(fs: FileSystem, layout: Layout, store: ManifestStore, owner: Owner) -> None:
    """Refuse to make a log among files that are not of one.  Hidden files, such as .gitkeep, do no harm.

    Nor is one made in the directory of a store, where it would stand for the database of its name.

    Raises:
        Owned: the place is a node's or a store's, and `owner` is nobody.
        UsageError: there is no log yet, and something else is.
    """
    if owner is Owner.ANYBODY:
        _check_is_nobodys(fs, layout)
    if fs.exists(layout.root / "manifest.current"):
        return
    if _is_store(fs, layout.root.parent) and store.is_unfinished_creation():
        store_root, name = layout.root.parent, layout.root.name
        message = (
            f"{layout.root} would be a log within the store {store_root}, which is for databases only; "
            f"use Store.open({str(store_root)!r}).database({name!r}), or name a directory outside of it"
        )
        raise UsageError(message)
    if not fs.exists(layout.root):
        return
    foreign = [name for name in fs.list(layout.root) if _is_foreign(name)]
    if foreign and store.is_unfinished_creation():
        named = ", ".join(foreign[:_NAMED_MAX]) + (", …" if len(foreign) > _NAMED_MAX else "")
        message = f"{layout.root} is not a log, and not empty ({named}); name a new or an empty directory"
        raise UsageError(message)


def check_is_log(fs: FileSystem, layout: Layout, store: ManifestStore) -> None:
    """Do nothing if there is a log, sound or damaged.

    Raises:
        NotFoundError: there is none, or its creation was cut short before it could hold a record.
        CorruptError, UnsupportedVersion: the manifest cannot be read.
    """
    if fs.exists(layout.root / _NODE_NAME) and fs.exists(layout.root / "parent"):
        message = (
            f"{layout.root} is the directory of a node of a cluster: its logs are {layout.root / 'parent'} and those "
            f"in {layout.root / 'partitions'}, and `latewood cluster status` shows a cluster"
        )
        raise NotFoundError(message)
    if not fs.exists(layout.root) or (store.is_unfinished_creation() and not _is_begun(fs, layout)):
        message = f"there is no log at {layout.root}; `latewood init` or opening it to append makes one"
        raise NotFoundError(message)
    # A crash may also have come between the first manifest and the first segment: no record was ever here.
    if store.is_unfinished_creation() or is_unborn(fs, layout, store.load_while_written()):
        message = (
            f"there is no log at {layout.root} yet: its creation was cut short, before it could hold a record; "
            "`latewood init` or opening it to append finishes it"
        )
        raise NotFoundError(message)


def _check_is_nobodys(fs: FileSystem, layout: Layout) -> None:
    """Refuse a directory that is a node's or a store's by its place: for those that append for nobody.

    The log there may have no mark yet, because it is to be made, or an older program made it.

    Raises:
        Owned: it is; nothing was written.
    """
    directory = layout.root.parent
    if layout.root.name == "parent" and fs.exists(directory / _NODE_NAME):
        raise Owned(layout.root, Owner.NODE.name.lower())
    if directory.name in ("partitions", "snapshots") and fs.exists(directory.parent / _NODE_NAME):
        raise Owned(layout.root, Owner.NODE.name.lower())
    if directory.name == "shards" and fs.exists(directory.parent / DESCRIPTION_NAME):
        raise Owned(layout.root, Owner.STORE.name.lower())


def _is_store(fs: FileSystem, root: Path) -> bool:
    """Say whether a directory is a store, maybe one whose catalog is lost."""
    if fs.exists(root / CATALOG_NAME):
        return True
    databases = root / DATABASES_NAME
    if not fs.exists(databases):
        return False
    return any(fs.exists(databases / name / DESCRIPTION_NAME) for name in fs.list(databases))


def _is_begun(fs: FileSystem, layout: Layout) -> bool:
    return any(fs.exists(layout.root / name) for name in ("identity", "manifest.1", "manifest.current"))


def _is_foreign(name: str) -> bool:
    return not name.startswith(".") and name.removesuffix(".tmp") not in _OURS and name not in _HARMLESS


def no_segments(layout: Layout) -> ManifestCorrupted:
    """Return the error of a log whose directory of segments was removed, and with that all of its records."""
    error = ManifestCorrupted("this directory is gone, with all records of the log", layout.segments, 0)
    error.mend = f"restore it from a backup, or move {layout.root} away to begin anew"
    return error
