"""Errors of the operating system, sorted by what the caller does next and not by errno."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latewood.errors import DiskFull, LatewoodError, NotFoundError, ReadOnlyError, StorageError, TooManyFiles
from latewood.fs.descriptors import descriptors_max


def translated(error: OSError, path: Path) -> LatewoodError:
    """Return the error of ours that an error of the operating system is."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path}: {reason}; free some space and try again")
    if error.errno == errno.EFBIG:
        return DiskFull(f"{path}: {reason}; raise the limit (`ulimit -f`), or use a smaller segment_bytes_max")
    if error.errno == errno.EMFILE:
        return TooManyFiles(f"{path}: {reason}", *descriptors_max())
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFoundError(f"{path}: {reason}")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyError(f"{path}: {reason}; check its owner and mode")
    whose = ", of all programs together: see `sysctl fs.file-max`" if error.errno == errno.ENFILE else ""
    return StorageError(f"{path}: {reason}{whose}")


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into ours, which name `path`."""
    try:
        yield
    except OSError as error:
        raise translated(error, path) from error
