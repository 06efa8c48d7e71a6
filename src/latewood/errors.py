"""Every error raised on purpose, sorted by what the caller does next.

LatewoodError
├── UsageError          fix the call; nothing was written
│   ├── BadName         a name that could not be a file name everywhere
│   ├── RecordTooLarge  no segment could ever hold it
│   └── ReadOnlyError   the log was opened to read
├── NotFoundError       nothing is there: check the path or the name
├── UnavailableError    try again later (the only retryable branch)
│   ├── Locked          another process holds the log, or the reader
│   ├── DiskFull        free some space; what was acknowledged is safe
│   └── StorageError    the operating system refused; its reason is in the text
├── UnsupportedVersion  upgrade this program; the data is fine
├── CorruptError        stop, keep the files, run `latewood verify`
│   └── ManifestCorrupted   run `latewood rebuild`
├── DataLost            a policy removed these records: seek past them
└── ClosedError         reopen
    ├── Poisoned        a sync failed; what was not flushed is in doubt
    └── Forked          the parent process owns this log
"""

from pathlib import Path


class LatewoodError(Exception):
    """The root of every error that Latewood raises on purpose."""


class UsageError(LatewoodError):
    """The call itself is wrong.  Nothing was written."""


class BadName(UsageError):
    """A name that is not `[a-z0-9][a-z0-9_-]{0,63}`."""


class RecordTooLarge(UsageError):
    """A payload that no segment of this log could hold."""

    def __init__(self, payload_bytes: int, payload_bytes_max: int) -> None:
        super().__init__(payload_bytes, payload_bytes_max)  # positional, so it pickles
        self.payload_bytes, self.payload_bytes_max = payload_bytes, payload_bytes_max

    def __str__(self) -> str:
        return (
            f"a payload of {self.payload_bytes:,} bytes does not fit a segment of this log, which holds at most "
            f"{self.payload_bytes_max:,}; split it, or open the log with a larger segment_bytes_max"
        )


class ReadOnlyError(UsageError):
    """The log, or its directory, can only be read."""


class NotFoundError(LatewoodError):
    """There is no such log, reader or record."""


class UnavailableError(LatewoodError):
    """It did not work now; the same call may work later."""


class Locked(UnavailableError):
    """A living process holds the log, or the reader, that the lock file is of."""

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(path, pid)
        self.path, self.pid = path, pid

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        if self.path.parent.name == "readers":
            return f"reader {self.path.stem!r} is open in {holder}; close it there, or use another name"
        if self.path.name == "retention.lock":
            return f"{holder} is cleaning {self.path.parent} up, or claiming old records; try again"
        return f"{self.path.parent} is being written by {holder}; close it there, or open this one with mode='r'"


class DiskFull(UnavailableError):
    """No room for the next segment.  Everything acknowledged is safe."""


class StorageError(UnavailableError):
    """The operating system refused a file operation."""


class UnsupportedVersion(LatewoodError):
    """The file is sound but newer than this program."""

    def __init__(self, what: str, version: int, path: Path) -> None:
        super().__init__(what, version, path)
        self.what, self.version, self.path = what, version, path

    def __str__(self) -> str:
        return f"{self.path}: {self.what} version {self.version} is not known to this Latewood; upgrade it"


class CorruptError(LatewoodError):
    """Stored bytes are not the bytes that were written."""

    mend = "keep the files and run `latewood verify`"

    def __init__(self, reason: str, path: Path, offset: int) -> None:
        super().__init__(reason, path, offset)
        self.reason, self.path, self.offset = reason, path, offset

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.reason}; {self.mend}"


class ManifestCorrupted(CorruptError):
    """The manifest is not sound, or does not agree with the segments."""

    mend = "run `latewood rebuild` to make it again from the segments"


class DataLost(LatewoodError):
    """Records that were removed, mostly by a policy, before this reader came to them."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__(start, stop)
        self.start, self.stop = start, stop

    def __str__(self) -> str:
        return (
            f"records {self.start} to {self.stop - 1} are gone, by retention or before a rebuild; "
            f"seek to {self.stop} to go on without them"
        )


class ClosedError(LatewoodError):
    """The object is closed.  Open it again."""


class Poisoned(ClosedError):
    """A sync failed, so the writer stopped.  Reopen the log to learn what is durable."""


class Forked(ClosedError):
    """This log belongs to the parent process.  Open it again in the child."""
