"""A durable, segmented log for Python programs, and stores of many of them."""

from typing import TYPE_CHECKING

from latewood.errors import (
    AnotherLog,
    BadName,
    CatalogBehind,
    ClosedError,
    ClusterUnavailable,
    CorruptError,
    DataLost,
    DirectoryReplaced,
    DiskFull,
    Forked,
    LatewoodError,
    Locked,
    LogBehind,
    ManifestCorrupted,
    NotFoundError,
    OutcomeForgotten,
    OutcomeUnknown,
    Overloaded,
    Owned,
    Poisoned,
    ReaderAhead,
    ReadOnlyError,
    RecordTooLarge,
    StorageError,
    TooManyFiles,
    UnavailableError,
    UnsupportedVersion,
    UsageError,
    WaitExpired,
)
from latewood.kernel import Record
from latewood.log import Life, Log, LogIdentity, LogOptions, LogStats, Mark, Owner
from latewood.queue import Queue, Reader, ReaderInfo, RetentionPolicy
from latewood.queue import open_queue as open  # noqa: A004 - `latewood.open` reads as it should

if TYPE_CHECKING:
    from latewood.replica.client.asynchronous import AsyncClient
    from latewood.replica.client.connecting import connect, connect_async
    from latewood.replica.client.options import ClientOptions
    from latewood.replica.client.partition import AsyncPartition, PartitionReaderInfo
    from latewood.replica.client.reader import AsyncReader
    from latewood.replica.client.synchronous import Client, Partition, PartitionReader
    from latewood.replica.replies import Members, NodeProgress, PartitionInfo, StatusReply
    from latewood.runtime import Database, DatabaseOptions, DatabaseReader, DatabaseRecord, Store

__all__ = [
    "AnotherLog",
    "AsyncClient",
    "AsyncPartition",
    "AsyncReader",
    "BadName",
    "CatalogBehind",
    "Client",
    "ClientOptions",
    "ClosedError",
    "ClusterUnavailable",
    "CorruptError",
    "DataLost",
    "Database",
    "DatabaseOptions",
    "DatabaseReader",
    "DatabaseRecord",
    "DirectoryReplaced",
    "DiskFull",
    "Forked",
    "LatewoodError",
    "Life",
    "Locked",
    "Log",
    "LogBehind",
    "LogIdentity",
    "LogOptions",
    "LogStats",
    "ManifestCorrupted",
    "Mark",
    "Members",
    "NodeProgress",
    "NotFoundError",
    "OutcomeForgotten",
    "OutcomeUnknown",
    "Overloaded",
    "Owned",
    "Owner",
    "Partition",
    "PartitionInfo",
    "PartitionReader",
    "PartitionReaderInfo",
    "Poisoned",
    "Queue",
    "ReadOnlyError",
    "Reader",
    "ReaderAhead",
    "ReaderInfo",
    "Record",
    "RecordTooLarge",
    "RetentionPolicy",
    "StatusReply",
    "StorageError",
    "Store",
    "TooManyFiles",
    "UnavailableError",
    "UnsupportedVersion",
    "UsageError",
    "WaitExpired",
    "connect",
    "connect_async",
    "open",
]

_CLIENT = {
    "AsyncClient": "latewood.replica.client.asynchronous",
    "AsyncPartition": "latewood.replica.client.partition",
    "AsyncReader": "latewood.replica.client.reader",
    "Client": "latewood.replica.client.synchronous",
    "ClientOptions": "latewood.replica.client.options",
    "Members": "latewood.replica.replies",
    "NodeProgress": "latewood.replica.replies",
    "Partition": "latewood.replica.client.synchronous",
    "PartitionInfo": "latewood.replica.replies",
    "PartitionReader": "latewood.replica.client.synchronous",
    "PartitionReaderInfo": "latewood.replica.client.partition",
    "StatusReply": "latewood.replica.replies",
    "connect": "latewood.replica.client.connecting",
    "connect_async": "latewood.replica.client.connecting",
}
"""What talks to a cluster, and where it is."""


def __getattr__(name: str) -> object:
    """Look up what takes longer to import than all the rest when it is asked for: store, client, and `__version__`."""
    if name in ("Database", "DatabaseOptions", "DatabaseReader", "DatabaseRecord", "Store"):
        from latewood import runtime  # noqa: PLC0415 - as above

        return getattr(runtime, name)
    if name in _CLIENT:
        from importlib import import_module  # noqa: PLC0415 - as above

        return getattr(import_module(_CLIENT[name]), name)
    if name != "__version__":
        message = f"module 'latewood' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above

    try:
        return version("latewood")
    except PackageNotFoundError:
        return "0+unknown"
