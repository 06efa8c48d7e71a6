"""What a path names: a log, a database of a store, or a store.  Paths only; nothing is opened.

A log is a directory with a manifest; a store has a catalog; `lake/clicks` is database `clicks` of store `lake`, and its
own directory, `lake/databases/00000001-clicks`, is another name for it.
"""

from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from latewood.errors import NotFoundError, UsageError
from latewood.format.store_layout import CATALOG_NAME, DATABASES_NAME
from latewood.fs import FileSystem

_LOG_MARKS: Final = ("manifest.current", "manifest.1", "manifest.2")


class Place(NamedTuple):
    """Where to read."""

    root: Path
    """The log's directory, or the store's."""
    is_store: bool
    database: str | None = None
    """The only one to read; None: all of the store's."""


def find_place(fs: FileSystem, path: str) -> Place:
    """Return what a path names, or a `file:` URL.

    Raises:
        NotFoundError: nothing of ours is there.
        UsageError: it is no path on this machine's file systems.
    """
    directory = local_path(path)
    if fs.exists(directory / CATALOG_NAME):
        return Place(directory, is_store=True)
    within = fs.exists(directory.parent / CATALOG_NAME)
    if any(fs.exists(directory / name) for name in _LOG_MARKS) and not (within and _is_database(fs, directory)):
        return Place(directory, is_store=False)
    if within:
        return Place(directory.parent, is_store=True, database=directory.name)
    root = directory.parent.parent
    if directory.parent.name == DATABASES_NAME and fs.exists(root / CATALOG_NAME):
        return Place(root, is_store=True, database=directory.name.partition("-")[2])
    raise NotFoundError(f"there is no log, database or store at {directory}")


def _is_database(fs: FileSystem, path: Path) -> bool:
    """Say whether a store has a database of that name: it counts more than a log that somebody put in its way."""
    return any(name.partition("-")[2] == path.name for name in fs.list(path.parent / DATABASES_NAME))


def local_path(path: str) -> Path:
    """Return the directory that a path or a `file:` URL names.

    Raises:
        UsageError: it names none on this machine.
    """
    parts = urlsplit(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path)).absolute()
    if not path or "://" in path:
        raise UsageError(f"{path!r} is no directory on a file system; archived chunks are found through their store")
    return Path(path).absolute()
