"""A durable, segmented log for Python programs, and stores of many of them."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from latewood.runtime import Database, DatabaseOptions, DatabaseReader, DatabaseRecord, Store

__all__ = [
    "BadName",
    "ClosedError",
    "CorruptError",
    "DataLost",
    "Database",
    "DatabaseOptions",
    "DatabaseReader",
    "DatabaseRecord",
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
    "Store",
    "UnavailableError",
    "UnsupportedVersion",
    "UsageError",
    "open",
]


def __getattr__(name: str) -> object:
    """Look up what takes longer to import than all the rest when it is asked for: the store, and `__version__`."""
    if name in ("Database", "DatabaseOptions", "DatabaseReader", "DatabaseRecord", "Store"):
        from latewood import runtime  # noqa: PLC0415 - as above

        return getattr(runtime, name)
    if name != "__version__":
        message = f"module 'latewood' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above

    try:
        return version("latewood")
    except PackageNotFoundError:
        return "0+unknown"
