"""Where a store's archive and keys are: names that a task may carry, and what they stand for on the machine it runs on.

A task never carries a secret.  Credentials and keys come from the environment of the executor, or from the settings and
key files of the store, which it shares.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from latewood.archive.keys import KeyRing
from latewood.archive.opening import open_tier
from latewood.archive.tier import Tier
from latewood.errors import KeyNotFound, NotFoundError, UsageError
from latewood.format.store_layout import StoreLayout
from latewood.fs import FileSystem
from latewood.limits import MiB
from latewood.spark.options import ReadOptions

_SETTINGS_BYTES_MAX: Final = 1 * MiB
_PREFIX: Final = "LATEWOOD_"
_CLIENT_PREFIX: Final = "LATEWOOD_ARCHIVE_SETTINGS__"
_TRUE: Final = ("true", "yes", "on", "1")


class ArchiveNames(NamedTuple):
    """Which archive and which keys; no secrets."""

    root: str
    """The store's directory: its settings may have credentials."""
    url: str | None = None
    key_file: str | None = None
    key_environment: str | None = None


def archive_names(fs: FileSystem, root: Path, options: ReadOptions, environ: Mapping[str, str]) -> ArchiveNames:
    """Return the archive and keys of a store: what the options say counts first, then the environment, then its file.

    Raises:
        UsageError: the settings cannot be read.
    """
    settings = _settings(fs, root)
    archive, encryption = _table(settings, "archive"), _table(settings, "encryption")
    keys = [
        (options.key_file, options.key_environment),
        (environ.get(f"{_PREFIX}ENCRYPTION_KEY_FILE"), environ.get(f"{_PREFIX}ENCRYPTION_KEY_ENVIRONMENT")),
        (encryption.get("key_file"), encryption.get("key_environment")),
    ]
    key_file, key_environment = next((pair for pair in keys if any(pair)), (None, None))
    named = {
        "url": options.archive_url or environ.get(f"{_PREFIX}ARCHIVE_URL") or archive.get("url"),
        "key_file": key_file,  # Whoever names a file or a variable means that one, whatever is named further down.
        "key_environment": key_environment,
    }
    return ArchiveNames(str(root), **{name: str(value) for name, value in named.items() if value})


def open_archive(fs: FileSystem, names: ArchiveNames, environ: Mapping[str, str] | None = None) -> Tier:
    """Return the archive.  Nothing is sent.

    Raises:
        NotFoundError: the store has none.
        UsageError: a setting is not understood, or what reads it is not installed.
    """
    if names.url is None:
        raise NotFoundError("a chunk is archived, and the store has no archive: set archiveUrl, or `archive.url`")
    url = names.url if urlsplit(names.url).scheme else str(Path(names.root) / names.url)
    scheme = urlsplit(url).scheme
    if scheme in ("", "file"):
        return open_tier(url, fs)
    try:
        from latewood.archive.object_store import ObjectStoreOptions  # noqa: PLC0415 - only for those who have one
    except ModuleNotFoundError as error:
        raise UsageError(f"the archive needs {error.name} on every executor: install latewood[archive]") from error
    environ = os.environ if environ is None else environ
    table = _table(_settings(fs, Path(names.root)), "archive")
    client = {str(name): str(value) for name, value in _table(table, "settings").items()}
    client |= {
        name.removeprefix(_CLIENT_PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(_CLIENT_PREFIX)
    }
    allow_http = str(environ.get(f"{_PREFIX}ARCHIVE_ALLOW_HTTP", table.get("allow_http", ""))).lower() in _TRUE
    return open_tier(url, fs, ObjectStoreOptions(settings=client, allow_http=allow_http))


def open_keys(fs: FileSystem, names: ArchiveNames, environ: Mapping[str, str] | None = None) -> KeyRing | None:
    """Return the keys of encrypted chunks; None: there are none.

    Raises:
        KeyNotFound: the file is not there.
        UsageError: the file or the variable has no keys.
    """
    if names.key_file is not None:
        path = Path(names.root) / names.key_file
        try:
            return KeyRing.from_file(fs, path)
        except NotFoundError as error:
            message = f"the key file {path} is not there: see the option keyFile, or the setting `encryption.key_file`"
            raise KeyNotFound(message) from error
    if names.key_environment is not None:
        return KeyRing.from_environment(os.environ if environ is None else environ, names.key_environment)
    return None


def _settings(fs: FileSystem, root: Path) -> Mapping[str, Any]:
    path = StoreLayout(root).settings
    try:
        file = fs.open(path)
    except NotFoundError:
        return {}
    try:
        data = file.pread(_SETTINGS_BYTES_MAX, 0)
    finally:
        file.close()
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None


def _table(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = settings.get(name, {})
    return table if isinstance(table, dict) else {}
