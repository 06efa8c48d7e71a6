"""What a path names, and what to do with it: so that a command that is given another thing says which is for that.

Looks at names only; nothing is opened.
"""

from enum import Enum, auto
from pathlib import Path
from typing import Final

from latewood.errors import NotFoundError, UsageError
from latewood.format.store_layout import CATALOG_NAME, DATABASES_NAME, DESCRIPTION_NAME

_OF_A_LOG: Final = ("manifest.current", "manifest.1", "manifest.2", "segments")
_SHARD_DEPTH: Final = 4
"""`databases/00000001-clicks/shards/00000` within a store."""


class Kind(Enum):
    """What is at a path, or is named by it."""

    LOG = auto()
    SHARD = auto()
    """The log of a shard, within the directory of a store."""
    STORE = auto()
    DATABASE = auto()
    """STORE/NAME: a store is around it, and has a database of that name, or nothing is there."""
    FILE = auto()
    DIRECTORY = auto()
    """One that is none of these."""
    NOTHING = auto()


def kind_of(path: Path) -> Kind:
    """Say what a path names."""
    if is_store(path):
        return Kind.STORE
    if is_database(path):
        return Kind.DATABASE
    if any((path / name).exists() for name in _OF_A_LOG):
        return Kind.LOG if store_around(path) is None else Kind.SHARD
    if path.exists():
        return Kind.DIRECTORY if path.is_dir() else Kind.FILE
    return Kind.NOTHING


def is_store(path: Path) -> bool:
    """Say whether a directory is a store: has a catalog or, if that is lost, a database that says what it is.

    What is wrong with a store without a catalog, `Store.open` says.
    """
    return (path / CATALOG_NAME).exists() or any((path / DATABASES_NAME).glob(f"*/{DESCRIPTION_NAME}"))


def is_database(path: Path) -> bool:
    """Say whether STORE/NAME names a database; whatever else is there under that name comes second."""
    if not path.name or not is_store(path.parent):
        return False
    return not path.exists() or any(
        description.parent.name.partition("-")[2] == path.name
        for description in (path.parent / DATABASES_NAME).glob(f"*/{DESCRIPTION_NAME}")
    )


def store_around(path: Path) -> Path | None:
    """Return the store whose shard a directory is; None if it is none's."""
    around = path.absolute().parents
    if len(around) < _SHARD_DEPTH or around[2].name != DATABASES_NAME or around[0].name != "shards":
        return None
    return around[3] if is_store(around[3]) else None


def node_around(path: Path) -> Path | None:
    """Return the directory of the node of a cluster that a log is a part of; None if it is none's."""
    return next((above for above in path.absolute().parents[:2] if (above / "node.json").exists()), None)


def no_store(path: Path) -> NotFoundError:
    """Return the error of a command that needs a store, and was given something else."""
    match kind_of(path):
        case Kind.DATABASE:
            text = f"{path} names a database, and this is about a store: give {path.parent}"
        case Kind.LOG:
            text = f"{path} is a log, not a store: `latewood info` shows it, and `latewood db create` makes a store"
        case Kind.SHARD:
            text = f"{path} is a shard, and this is about a store: give {store_around(path)}"
        case Kind.FILE:
            text = f"{path} is a file, not a store: give the directory of one"
        case Kind.DIRECTORY if (path / "node.json").exists():
            text = f"{path} is the directory of a node of a cluster, not a store: `latewood cluster` is for those"
        case _:
            text = f"there is no store at {path}; `latewood db create` makes one"
    return NotFoundError(text)


def check_free(path: Path, remedy: str) -> None:
    """Raise if what is made at a path would lie within a store, where it would hide a database of that name.

    Raises:
        UsageError: it would; `remedy` says what to do instead.
    """
    around = next((one for one in path.absolute().parents if is_store(one)), None)
    if around is not None and not is_store(path) and kind_of(path) not in (Kind.LOG, Kind.SHARD):
        raise UsageError(f"{path} is within the store {around}, which is for databases only; {remedy}")


def check_no_shard(path: Path, remedy: str) -> None:
    """Raise if a log is a shard of a store, which only the store may change.

    Raises:
        UsageError: it is; `remedy` says what to do instead.
    """
    around = store_around(path)
    if around is not None:
        raise UsageError(f"{path} is a shard of the store {around}, which alone may do that; {remedy}")


def check_rebuildable(path: Path, *, is_catalog: bool) -> None:
    """Raise if a path cannot be what `latewood rebuild` was asked for: a log, or with --catalog a store.

    Raises:
        UsageError, NotFoundError: it is another thing; the text says how that is made again.
    """
    node = node_around(path)
    if node is not None:
        raise UsageError(
            f"{path} is a part of {node}, a node of a cluster: `latewood cluster repair --config FILE` mends what can "
            f"be mended; a log that forgets what it had promised would have the others forget it, too"
        )
    kind = kind_of(path)
    if is_catalog and kind not in (Kind.STORE, Kind.DIRECTORY, Kind.NOTHING):  # One without a catalog is a directory.
        raise no_store(path)
    if not is_catalog and kind is Kind.STORE:
        raise UsageError(
            f"{path} is no log: `latewood rebuild --catalog {path}` makes a catalog again, the manifest of a shard is "
            f"made again by its directory, {path / DATABASES_NAME}/…/shards/00000, and `latewood rebuild "
            f"{path / 'DATABASE'}` finds logs that end before their chunks do"
        )


def check_is_directory(path: Path) -> None:
    """Raise NotFoundError unless a path is a directory."""
    if not path.is_dir():
        raise NotFoundError(f"{path}: there is no such directory; name one, such as that of a log or a store")
