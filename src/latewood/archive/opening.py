"""A tier from its URL, or from the path of a directory."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from latewood.archive.directory import DirectoryTier
from latewood.archive.tier import Tier
from latewood.errors import UsageError
from latewood.forking import no_fork
from latewood.fs import FileSystem

if TYPE_CHECKING:
    from latewood.archive.object_store import ObjectStoreOptions


def open_tier(url: str, fs: FileSystem, options: "ObjectStoreOptions | None" = None) -> Tier:
    """Return the tier at a URL; a path and a `file:` URL are a directory, where what is put is synced.

    Nothing is sent or read.  Needs `latewood[archive]` for object stores.

    Raises:
        UsageError: the URL, or a setting, is not understood.
    """
    parts = urlsplit(url)
    if not parts.scheme or (parts.scheme == "file" and not parts.netloc):
        if not parts.path:
            raise UsageError("a tier needs a path or a URL")
        return DirectoryTier(fs, Path(unquote(parts.path) if parts.scheme else url))
    with no_fork():
        from latewood.archive.object_store import ObjectStoreTier  # noqa: PLC0415 - only for those who have one

    return ObjectStoreTier.open(url, options)
