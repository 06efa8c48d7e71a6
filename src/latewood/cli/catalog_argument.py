"""CATALOG: the argument of the commands that look at a catalog, and how they open it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from latewood.cli.arguments import PATH
from latewood.cli.place import Kind, is_store, kind_of, no_store
from latewood.errors import NotFoundError
from latewood.format.store_layout import CATALOG_NAME

if TYPE_CHECKING:
    from latewood.catalog import Catalog, Mode

F = TypeVar("F", bound=Callable[..., Any])


def catalog_argument(function: F) -> F:
    """Give a command its CATALOG, as `path`: the file, or the one in the directory that was named."""
    return click.argument("path", metavar="CATALOG", type=PATH, callback=_catalog_file)(function)


def check_is_there(path: Path) -> None:
    """Raise NotFoundError if there is no catalog: opening one to write would make it."""
    if path.exists():
        return
    named = path.parent if path.name == CATALOG_NAME else path
    if kind_of(named) in (Kind.DATABASE, Kind.LOG, Kind.SHARD):
        raise no_store(named)
    if named.is_dir() and is_store(named):
        raise NotFoundError(f"the catalog of {named} is lost: run `latewood rebuild --catalog {named}`")
    message = f"there is no catalog at {path}; give a store, which `latewood db create` makes, or the file of a catalog"
    raise NotFoundError(message)


def open_catalog(path: Path, mode: "Mode" = "r") -> "Catalog":
    """Open a catalog that must be there.

    Raises:
        NotFoundError: there is none.
        Locked: another process writes it, and so wants this.
    """
    from latewood.catalog import Catalog  # noqa: PLC0415 - LMDB is loaded only when a command runs

    check_is_there(path)
    return Catalog.open(path, mode=mode)


def _catalog_file(context: click.Context, parameter: click.Parameter, path: Path) -> Path:
    del context, parameter
    return path / CATALOG_NAME if path.is_dir() else path
