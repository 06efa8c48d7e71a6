"""STORE and STORE/DATABASE: how commands find a store and its databases, and how they open them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from latewood.cli.arguments import PATH
from latewood.cli.place import is_database, is_store, no_store
from latewood.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from latewood.runtime import Database, Store
    from latewood.runtime.store import Mode
    from latewood.tasks.engine import Engine

F = TypeVar("F", bound=Callable[..., Any])


class DatabasePath(NamedTuple):
    """A database, as `lake/clicks` names it."""

    root: Path
    name: str


class StorePlace(NamedTuple):
    """A store, and the databases of it that were named; none: all."""

    root: Path
    names: tuple[str, ...]


def store_argument(function: F) -> F:
    """Give a command its STORE, as `path`."""
    return click.argument("path", metavar="STORE", type=PATH)(function)


def databases_argument(function: F) -> F:
    """Give a command `STORE [DATABASE]...`, as `path` and `names`; `lake/clicks` is understood too."""
    names = click.argument("names", metavar="[DATABASE]...", nargs=-1)
    return store_argument(names(function))


def database_argument(function: F) -> F:
    """Give a command `STORE/DATABASE`, as `place`."""
    return click.argument("place", metavar="STORE/DATABASE", type=PATH, callback=_database_path)(function)


def database_at(path: Path) -> DatabasePath | None:
    """Return the database that a path names; None if it names a log, or nothing.

    Where both are, a log in the directory of a store and a database of its name, it is the database.

    Raises:
        UsageError: it names a store.
    """
    if is_store(path):
        message = f"{path} is a store; name one of its databases, as in {path / 'clicks'}: `latewood db ls` lists them"
        raise UsageError(message)
    return DatabasePath(path.parent, path.name) if is_database(path) else None


def located(path: Path, names: Sequence[str]) -> StorePlace:
    """Return the store at a path, or around it.

    Raises:
        NotFoundError: there is none.
    """
    if is_store(path):
        return StorePlace(path, tuple(names))
    if is_database(path):
        return StorePlace(path.parent, (path.name, *names))
    raise no_store(path)


def open_store(root: Path, mode: "Mode" = "r", engine: "Engine | None" = None) -> "Store":
    """Open a store that must be there; `engine` does what its jobs do to files.

    Raises:
        NotFoundError: there is none.
        Locked: another process has it open to write, and so wants this.
    """
    if not is_store(root):
        raise no_store(root)
    from latewood.runtime import Store  # noqa: PLC0415 - LMDB and Arrow are loaded only when a command runs

    store = Store.open(root if engine is None else root.absolute(), mode=mode)  # Executors have another directory.
    store.engine = engine
    return store


def find_database(store: "Store", name: str) -> "Database":
    """Return a database by its name.

    Raises:
        NotFoundError: there is none; the text says which there are.
    """
    try:
        return store.database(name)
    except NotFoundError as error:
        if not any(record.name == name for _, record in store.databases()):
            there = ", ".join(record.name for _, record in store.databases()) or "none"
            error.add_note(f"{store.layout.root} has {there}; `latewood db create` makes one")
        raise


def chosen_names(store: "Store", names: Sequence[str]) -> list[str]:
    """Return these databases, or all.

    Raises:
        NotFoundError: one is not there.
    """
    there = [record.name for _, record in store.databases()]
    for name in names:
        if name not in there:
            find_database(store, name)
    return list(dict.fromkeys(names)) or there


def _database_path(context: click.Context, parameter: click.Parameter, path: Path) -> DatabasePath:
    del parameter
    found = database_at(path) if path.name else None
    if found is not None:
        return found
    if path.exists():
        message = f"{path} is no database of a store; write it as STORE/DATABASE, such as lake/clicks"
        raise click.UsageError(message, context)
    message = f"there is no store at {path.parent}; `latewood db create` makes one"
    raise NotFoundError(message)
