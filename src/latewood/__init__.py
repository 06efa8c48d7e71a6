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
