"""What a store is opened with: its settings, its archive and its keys.

The thin shell around `latewood.settings`: reads `latewood.toml` in the store's root, and the environment.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from latewood.archive.keys import KeyRing
from latewood.archive.opening import open_tier
from latewood.archive.tier import Tier
from latewood.errors import CatalogCorrupted, NotFoundError, UsageError
from latewood.format.store_layout import DatabaseLayout, StoreLayout, is_store
from latewood.fs import FileSystem
from latewood.runtime.options import DatabaseOptions
from latewood.settings.settings import Settings, make_settings, read_settings_file


def layout_of(fs: FileSystem, root: str | Path) -> StoreLayout:
    """Return where the files of a store are, wherever the current directory will be.

    Raises:
        UsageError: no directory is named.
    """
    if not str(root):
        raise UsageError("a store needs a directory")
    return StoreLayout(fs.absolute(Path(root)))


def hold_directory(fs: FileSystem, layout: StoreLayout, *, writable: bool) -> FileSystem:
    """Return the disk with the store's directory held open, which is made if it is not there and should be.

    Raises:
        CatalogCorrupted: the catalog is lost.
        UsageError: the directory holds something else.
    """
    check_catalog(fs, layout)
    if writable:
        make_directory(fs, layout)
    return fs.rooted(layout.root) if fs.exists(layout.root) else fs


def make_directory(fs: FileSystem, layout: StoreLayout) -> None:
    """Make the directories of a new store.  Beside a catalog nothing is made: whoever only looks leaves nothing behind.

    Raises:
        UsageError: the directory holds something else.
    """
    if is_store(layout.root):
        return
    names = fs.list(layout.root) if fs.exists(layout.root) else []
    foreign = [name for name in names if not name.startswith(".") and name != "latewood.toml"]
    if foreign and foreign != ["databases"]:
        message = f"{layout.root} holds {foreign[0]!r} and is no store; give an empty directory, or a new one"
        raise UsageError(message)
    fs.make_directory(layout.databases)


def check_catalog(fs: FileSystem, layout: StoreLayout) -> None:
    """Raise if a store has databases and no catalog: an empty one in its place would hide them all.

    Raises:
        CatalogCorrupted: the catalog is lost.
    """
    if _file_bytes(fs, layout.catalog) or not fs.exists(layout.databases):
        return
    if any(fs.exists(DatabaseLayout(layout.databases / name).description) for name in fs.list(layout.databases)):
        error = CatalogCorrupted("the catalog is lost", layout.catalog, "", b"")
        error.mend = f"run `latewood rebuild --catalog {layout.root}`"
        raise error


def _file_bytes(fs: FileSystem, path: Path) -> int:
    try:
        file = fs.open(path)
    except NotFoundError:
        return 0
    try:
        return file.size()
    finally:
        file.close()


def load_settings(
    root: Path,
    fs: FileSystem,
    *,
    environ: Mapping[str, str] | None = None,
    chosen: Mapping[str, object] | None = None,
) -> Settings:
    """Return the settings of a store; what was `chosen`, by key, counts first, then `environ`, then the file.

    Raises:
        UsageError: a setting is not understood; the text says where it is, and what would be.
    """
    path = StoreLayout(root).settings
    return make_settings(
        DatabaseOptions,
        file=read_settings_file(fs, path),
        file_name=str(path),
        environ=os.environ if environ is None else environ,
        chosen=chosen,
    )


def open_archive(settings: Settings, root: Path, fs: FileSystem) -> Tier | None:
    """Return the tier that chunks are archived to; None: there is none.  Nothing is sent.

    Raises:
        UsageError: the URL, or a setting of its client, is not understood.
    """
    url = settings.archive_url
    if url is None:
        return None
    try:
        return open_tier(url if urlsplit(url).scheme else str(root / url), fs, settings.object_store)
    except ModuleNotFoundError as error:
        raise UsageError(f"archive.url needs {error.name}: install latewood[archive]") from error


def open_keys(
    settings: Settings, root: Path, fs: FileSystem, environ: Mapping[str, str] | None = None
) -> KeyRing | None:
    """Return the keys of encrypted chunks; None: there are none.

    Raises:
        NotFoundError: there is no such file.
        UsageError: the file or the variable has no keys.
    """
    if settings.key_file is not None:
        return KeyRing.from_file(fs, root / settings.key_file)
    if settings.key_environment is not None:
        return KeyRing.from_environment(os.environ if environ is None else environ, settings.key_environment)
    return None
