"""What LMDB's errors mean to the caller."""

import errno
from pathlib import Path
from typing import Final

import lmdb

from latewood.errors import (
    CatalogCorrupted,
    CatalogFull,
    DiskFull,
    LatewoodError,
    NotFoundError,
    Poisoned,
    ReadOnlyError,
    StorageError,
    UnsupportedVersion,
    UsageError,
)

_CORRUPTION: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError)
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def is_no_room(error: lmdb.Error) -> bool:
    """Say whether the disk was full: the transaction is gone, the environment is as before."""
    return getattr(error, "code", 0) in _NO_ROOM or isinstance(error, lmdb.DiskError)


def is_fatal(error: lmdb.Error) -> bool:
    """Say whether the environment must not be written any more: a failed write or sync, damage, a panic."""
    return isinstance(error, (lmdb.PanicError, *_CORRUPTION)) or getattr(error, "code", 0) == errno.EIO


def translated(error: lmdb.Error, path: Path) -> LatewoodError:
    """Return the error of ours that tells the caller what to do next."""
    if isinstance(error, lmdb.MapFullError):
        return CatalogFull(f"{path} has come to map_bytes_max; open it with a larger one")
    if is_no_room(error):
        return DiskFull(f"{path}: {error}; free some space and try again")
    if isinstance(error, _CORRUPTION):
        return CatalogCorrupted(f"LMDB says: {error}", path, "", b"")
    if is_fatal(error):
        return Poisoned(f"{path}: {error}; reopen the catalog")
    return _translated_opening(error, path)


def _translated_opening(error: lmdb.Error, path: Path) -> LatewoodError:
    code = getattr(error, "code", 0)
    if code in (errno.ENOENT, errno.ENOTDIR):
        return NotFoundError(f"{path}: {error}")
    if code in _NOT_ALLOWED or isinstance(error, lmdb.ReadonlyError):
        return ReadOnlyError(f"{path}: {error}; check owner and mode, of {path.name}-lock too")
    if isinstance(error, lmdb.VersionMismatchError):
        return UnsupportedVersion("LMDB environment", 0, path)
    if isinstance(error, lmdb.InvalidError):
        return CatalogCorrupted("this is no LMDB file of the 0.9 format", path, "", b"")
    if "already open in this process" in str(error):
        return UsageError(f"{path} is open in this process already; read through that one")
    return StorageError(f"{path}: {error}")
