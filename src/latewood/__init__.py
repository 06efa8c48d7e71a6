"""A durable, segmented log for Python programs."""

from latewood.errors import (
    BadName,
    ClosedError,
    CorruptError,
    DataLost,
    DiskFull,
    Forked,
    LatewoodError,
    Locked,
    ManifestCorrupted,
    NotFoundError,
    Poisoned,
    ReaderAhead,
    ReadOnlyError,
    RecordTooLarge,
    StorageError,
    UnavailableError,
    UnsupportedVersion,
    UsageError,
)
from latewood.kernel import Record
from latewood.log import Log, LogOptions, LogStats
from latewood.queue import Queue, Reader, ReaderInfo, RetentionPolicy
from latewood.queue import open_queue as open  # noqa: A004 - `latewood.open` reads as it should

__all__ = [
    "BadName",
    "ClosedError",
    "CorruptError",
    "DataLost",
    "DiskFull",
    "Forked",
    "LatewoodError",
    "Locked",
    "Log",
    "LogOptions",
    "LogStats",
    "ManifestCorrupted",
    "NotFoundError",
    "Poisoned",
    "Queue",
    "ReadOnlyError",
    "Reader",
    "ReaderAhead",
    "ReaderInfo",
    "Record",
    "RecordTooLarge",
    "RetentionPolicy",
    "StorageError",
    "UnavailableError",
    "UnsupportedVersion",
    "UsageError",
    "open",
]


def __getattr__(name: str) -> str:
    """Look up `__version__` when it is asked for: what knows it takes longer to import than all the rest."""
    if name != "__version__":
        message = f"module 'latewood' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above

    try:
        return version("latewood")
    except PackageNotFoundError:
        return "0+unknown"
