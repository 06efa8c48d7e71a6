"""Settings: everything that a store can be set up with, checked, and where each value came from."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_type_hints
from urllib.parse import urlsplit

from latewood.catalog import CatalogOptions
from latewood.errors import NotFoundError, UsageError
from latewood.fs import FileSystem
from latewood.jobs import JobOptions
from latewood.jobs.worker import WORKERS_MAX
from latewood.limits import MiB
from latewood.settings.fields import Field, fields_of
from latewood.settings.resolve import Resolved, resolve

if TYPE_CHECKING:
    from latewood.archive.object_store import ObjectStoreOptions

T = TypeVar("T")
HIDDEN: Final = "set"
"""What is shown in place of a secret."""
_FILE_BYTES_MAX: Final = 1 * MiB
_WORKERS: Final = 2


class Shown(NamedTuple):
    """One setting, fit to be printed."""

    key: str
    value: object
    origin: str
    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a store is set up with."""

    archive_url: str | None
    """Where chunks are archived to: a URL, or a path from the store's root."""

    object_store: "ObjectStoreOptions | None"
    """How patient the archive's client is, and its credentials; None where nothing of that is installed."""

    key_file: str | None
    """The file with the keys of encrypted chunks: a path from the store's root."""

    key_environment: str | None
    """Or the environment variable that has them."""

    catalog: CatalogOptions
    jobs: JobOptions
    workers: int
    """Jobs at a time."""

    database: Mapping[str, Any]
    """What is set for new databases, by the names of their options."""

    shown: tuple[Shown, ...]
    """Every setting, for people; secrets only as `set`."""


def store_fields(database: type) -> list[Field]:
    """Return every setting that there is; `database` is the class of a database's options."""
    text = _text_field
    own = [text("archive.url"), text("encryption.key_file"), text("encryption.key_environment")]
    archive = _object_store_options()
    return [
        own[0],
        *(fields_of("archive", archive) if archive else ()),
        *own[1:],
        *fields_of("catalog", CatalogOptions),
        Field("jobs.workers", "whole number", is_optional=False, default=_WORKERS),
        *fields_of("jobs", JobOptions),
        *fields_of("database", database),
    ]


def make_settings(
    database: type,
    *,
    file: Mapping[str, object],
    file_name: str,
    environ: Mapping[str, str],
    chosen: Mapping[str, object] | None = None,
) -> Settings:
    """Return settings from a TOML document, the environment and a program's own arguments.  Pure.

    Raises:
        UsageError: a setting is not known, not of its kind, or out of bounds; the text says where it is.
    """
    found = resolve(store_fields(database), file=file, file_name=file_name, environ=environ, chosen=chosen)
    archive = _object_store_options()
    own = {name: found[name].value for name in ("archive.url", "encryption.key_file", "encryption.key_environment")}
    if own["encryption.key_file"] is not None and own["encryption.key_environment"] is not None:
        raise UsageError("set one of encryption.key_file and encryption.key_environment, not both")
    _made(found, "database", database)
    return Settings(
        archive_url=_text(own["archive.url"]),
        object_store=_made(found, "archive", archive) if archive else None,
        key_file=_text(own["encryption.key_file"]),
        key_environment=_text(own["encryption.key_environment"]),
        catalog=_made(found, "catalog", CatalogOptions),
        jobs=_made(found, "jobs", JobOptions),
        workers=_workers(found["jobs.workers"]),
        database=_values(found, "database", database),
        shown=tuple(_shown(one) for one in found.values()),
    )


def read_settings_file(fs: FileSystem, path: Path) -> dict[str, object]:
    """Return the TOML document at a path; an empty one if there is none.

    Raises:
        UsageError: it is not TOML; the text names the line.
    """
    try:
        file = fs.open(path)
    except NotFoundError:
        return {}
    try:
        data = file.pread(_FILE_BYTES_MAX + 1, 0)
    finally:
        file.close()
    if len(data) > _FILE_BYTES_MAX:
        raise UsageError(f"{path}: more than {_FILE_BYTES_MAX:,} bytes are no settings")
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None


def _text_field(key: str) -> Field:
    return Field(key, "text", is_optional=True, default=None)


def _object_store_options() -> "type[ObjectStoreOptions] | None":
    try:
        from latewood.archive.object_store import ObjectStoreOptions  # noqa: PLC0415 - not everybody has obstore
    except ModuleNotFoundError:
        return None
    return ObjectStoreOptions


def _made(found: Mapping[str, Resolved], section: str, options: type[T]) -> T:
    """Make options; what they refuse is told with the places that it came from."""
    values = _values(found, section, options)
    try:
        return options(**values)
    except UsageError as error:
        origins = [one.origin for key, one in found.items() if key.startswith(f"{section}.") and not one.is_default]
        raise UsageError(f"{', '.join(dict.fromkeys(origins))}: [{section}] {error}") from None


def _values(found: Mapping[str, Resolved], section: str, options: type) -> dict[str, Any]:
    """Return what is set of an options class, by the names of its fields."""
    hints = get_type_hints(options)
    values: dict[str, Any] = {}
    for field in fields(options):
        key, hint = f"{section}.{field.name}", hints[field.name]
        if is_dataclass(hint) and isinstance(hint, type):
            values |= {field.name: _made(found, key, hint)} if _has_any(found, key) else {}
        elif key not in found:
            values |= {field.name: dict(_table(found, key))} if _has_any(found, key) else {}
        elif not found[key].is_default:
            values[field.name] = found[key].value
    return values


def _has_any(found: Mapping[str, Resolved], section: str) -> bool:
    return any(key.startswith(f"{section}.") and not one.is_default for key, one in found.items())


def _table(found: Mapping[str, Resolved], section: str) -> Iterator[tuple[str, object]]:
    for key, one in found.items():
        if key.startswith(f"{section}."):
            yield one.field.name, one.value


def _workers(found: Resolved) -> int:
    assert isinstance(found.value, int)
    if not 1 <= found.value <= WORKERS_MAX:
        raise UsageError(f"{found.origin}: jobs.workers must be from 1 to {WORKERS_MAX}, not {found.value}")
    return found.value


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _shown(one: Resolved) -> Shown:
    value = one.value
    if one.field.is_secret or (one.field.key == "archive.url" and _has_credentials(value)):
        value = HIDDEN
    return Shown(one.field.key, value, one.origin, one.field.variable)


def _has_credentials(url: object) -> bool:
    parts = urlsplit(str(url or ""))
    return "@" in parts.netloc or bool(parts.query)
