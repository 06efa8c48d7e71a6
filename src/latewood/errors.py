"""Every error raised on purpose, sorted by what the caller does next.

LatewoodError
├── UsageError          fix the call; nothing was written
│   ├── BadName         a name that could not be a file name everywhere
│   ├── RecordTooLarge  no segment could ever hold it
│   │   └── PayloadTooLarge     no node of the cluster would take it
│   │       └── MessageTooLarge     no node of any would: no message carries it
│   ├── ReadOnlyError   the log was opened to read
│   └── Owned           a store or a node keeps this log: append through that, or open it to read
├── NotFoundError       nothing is there: check the path or the name
│   ├── KeyNotFound     the key that it was encrypted with is not among those given
│   └── EntryMissing    the parent log does not have, or no longer has, that entry
├── AccessDenied        an object store refused: check the credentials and what they may do
├── ConflictError       another change came first: read again, decide again
│   ├── ObjectConflict  a tier holds other bytes under that name
│   ├── UniqueJobAlreadyPending     a job of this database and kind waits already
│   ├── GateClosed      another job, or a repair that is due, holds the gate
│   ├── LeaseLost       the job is no longer this worker's: stop working on it
│   ├── JobCancelled    the job was called off: stop working on it
│   └── JobStopped      the pool of workers stops: leave the rest to the next attempt
├── JobFailed           no other attempt would do better: mend the cause, `latewood jobs retry`
├── UnavailableError    try again later (the only retryable branch)
│   ├── Locked          another process holds the log, the reader or the catalog
│   ├── DiskFull        free some space; what was acknowledged is safe
│   ├── CatalogFull     the catalog has come to its map_bytes_max: raise it
│   ├── Backpressure    the queue to the writer stayed full; nothing was written
│   ├── Overloaded      a limit of a replica is reached: back off, then try again
│   ├── WaitExpired     the deadline came before the generation
│   ├── ClusterUnavailable  no node answered as leader in time; nothing was written
│   ├── TierUnavailable     an object store did not answer, or not in time
│   │   └── AnotherArchive  the archive's address leads to another archive, or to none: mount the right one
│   ├── TooManyFiles    this process may have no more files open: raise its limit, `ulimit -n`
│   └── StorageError    the operating system refused; its reason is in the text
├── OutcomeUnknown      a cluster may have done it: `client.resolve(error)` tells, and never does it twice
│   └── OutcomeForgotten    nobody can tell any more: look for the records, then append what is missing
├── UnsupportedVersion  upgrade this program; the data is fine
├── CorruptError        stop, keep the files, run `latewood verify`
│   ├── ManifestCorrupted   run `latewood rebuild`
│   ├── Diverged            a partition holds something else than its parent log says
│   │   ├── StrayRecord     a node's files hold a record that the node did not write: `latewood cluster repair`
│   │   └── StrayLog        a node's files hold a log of another partition, node or cluster: the same
│   ├── ReaderAhead         the log went back behind the reader: start it anew
│   ├── LogBehind           a shard's log ends before its chunks: restore the newer copy, or go on without
│   │   └── CatalogBehind   the catalog is older than its chunks: `latewood rebuild --catalog`
│   └── AnotherLog          a position is of another log, or of records that this one lost: begin anew
├── DataLost            a policy removed these records: seek past them
└── ClosedError         reopen
    ├── Poisoned        a sync failed; what was not flushed is in doubt
    ├── DirectoryReplaced   the directory is not the one that was opened: look where that is now
    └── Forked          the parent process owns this log
"""

from pathlib import Path

from latewood.missing import MISSING_MENDS, Missing


class LatewoodError(Exception):
    """The root of every error that Latewood raises on purpose."""


class UsageError(LatewoodError):
    """The call itself is wrong.  Nothing was written."""


class BadName(UsageError):
    """A name that is not `[a-z0-9][a-z0-9_-]{0,63}`, or a reader's that begins as the system's own do."""


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


class PayloadTooLarge(RecordTooLarge):
    """A payload that no node of this cluster would take."""

    def __str__(self) -> str:
        return (
            f"a payload of {self.payload_bytes:,} bytes, and this cluster takes at most {self.payload_bytes_max:,}; "
            "split it, or raise payload_bytes_max in [limits] of every node.toml"
        )


class MessageTooLarge(PayloadTooLarge):
    """A payload that no message to a node could carry."""

    def __str__(self) -> str:
        return (
            f"a payload of {self.payload_bytes:,} bytes, and a message to a node carries at most "
            f"{self.payload_bytes_max:,}, whatever payload_bytes_max says; split it"
        )


class ReadOnlyError(UsageError):
    """The log, or its directory, can only be read."""


class Owned(UsageError):
    """A log that a store or a node of a cluster keeps was opened to append by another program.  Nothing was written.

    What it appended would be served as if the owner had, or be in its way.
    """

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(path, owner)
        self.path, self.owner = path, owner

    def __str__(self) -> str:
        keeper, through = {
            "store": ("a store", "`Store.open(...).database(...)`, or `latewood append STORE/DATABASE`"),
            "node": ("a node of a cluster", "the cluster, with `latewood.connect([ADDRESS]).partition(NUMBER)`"),
        }.get(self.owner, (self.owner, "that"))
        return f"{self.path} is kept by {keeper}; append through {through}; to read it, open it with mode='r'"


class NotFoundError(LatewoodError):
    """There is no such log, reader or record."""


class KeyNotFound(NotFoundError):
    """A chunk is encrypted with a key that is not among those given, or that has another secret under its id."""


class EntryMissing(NotFoundError):
    """An entry that the parent log does not have: not yet, or no longer."""

    def __init__(self, index: int, first_index: int, last_index: int) -> None:
        super().__init__(index, first_index, last_index)
        self.index, self.first_index, self.last_index = index, first_index, last_index

    def __str__(self) -> str:
        return f"entry {self.index} is not among those from {self.first_index} to {self.last_index}"


class AccessDenied(LatewoodError):
    """An object store refused: the credentials are missing, wrong, or may not do this."""


class ConflictError(LatewoodError):
    """Another change came first.  Nothing of this batch was written: read again, decide again."""


class ObjectConflict(ConflictError):
    """A tier holds other bytes under that name.  They were left as they are."""


class UniqueJobAlreadyPending(ConflictError):
    """A job of this database and kind waits already; `job_id` is its id."""

    def __init__(self, db_id: int, kind: int, job_id: int) -> None:
        super().__init__(db_id, kind, job_id)
        self.db_id, self.kind, self.job_id = db_id, kind, job_id

    def __str__(self) -> str:
        return f"job {self.job_id} of kind {self.kind} is already pending for database {self.db_id}"


class GateClosed(ConflictError):
    """Another job of this database and kind is at work, or broke off and awaits its repair."""

    def __init__(self, db_id: int, kind: int, active_job_id: int, repair_job_id: int | None) -> None:
        super().__init__(db_id, kind, active_job_id, repair_job_id)
        self.db_id, self.kind = db_id, kind
        self.active_job_id, self.repair_job_id = active_job_id, repair_job_id

    def __str__(self) -> str:
        why = f"broke off, and only repair job {self.repair_job_id} opens it" if self.repair_job_id else "holds it"
        return (
            f"the gate for jobs of kind {self.kind} of database {self.db_id} is closed: job {self.active_job_id} {why}"
        )


class LeaseLost(ConflictError):
    """The job is not, or no longer, leased to this worker: stop working on it."""


class JobCancelled(ConflictError):
    """The job was called off.  Its handler lets it through, and the job ends."""


class JobStopped(ConflictError):
    """The pool of workers stops.  The handler lets it through, and the job waits for another worker."""


class JobFailed(LatewoodError):
    """What a handler raises when no other attempt would do better."""


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
        if self.path.suffix == ".writer":
            return f"{self.path.with_suffix('')} is being written by {holder}; close it there, or open it with mode='r'"
        return f"{self.path.parent} is being written by {holder}; close it there, or open this one with mode='r'"


class DiskFull(UnavailableError):
    """No room for the next segment.  Everything acknowledged is safe."""


class CatalogFull(UnavailableError):
    """The catalog has come to its ceiling.  Everything acknowledged is safe."""


class Backpressure(UnavailableError):
    """The queue to the writer stayed full.  Nothing was written."""


class Overloaded(UnavailableError):
    """A limit is reached, of one partition or, where `partition_id` is None, of the whole.  Nothing was written."""

    def __init__(self, partition_id: int | None, limit: str, value: int, bound: int) -> None:
        super().__init__(partition_id, limit, value, bound)
        self.partition_id, self.limit, self.value, self.bound = partition_id, limit, value, bound

    def __str__(self) -> str:
        where = "all partitions together" if self.partition_id is None else f"partition {self.partition_id}"
        if self.limit == "frozen":
            return f"{where} is paused, because its machine failed again and again; mend that, then `client.resume`"
        return f"{where}: {self.limit} would be {self.value:,}, at most {self.bound:,}; back off and try again"


class WaitExpired(UnavailableError):
    """The deadline came before what was waited for."""


class ClusterUnavailable(UnavailableError):
    """No node of a cluster could be reached, or none of them led, until the deadline.  Nothing was written."""


class TierUnavailable(UnavailableError):
    """An object store did not answer, not in time, or with an error of its own."""


class AnotherArchive(TierUnavailable):
    """The address of a store's archive leads to another one than the one that has its chunks, or to none."""


class TooManyFiles(UnavailableError):
    """This process has as many files open as it may, or nearly.  Everything acknowledged is safe.

    `limit` is how many it may have, `hard_limit` what that may be raised to, `wanted` what it should be, if known.
    """

    def __init__(self, what: str, limit: int, hard_limit: int, wanted: int | None = None) -> None:
        super().__init__(what, limit, hard_limit, wanted)
        self.what, self.limit, self.hard_limit, self.wanted = what, limit, hard_limit, wanted

    def __str__(self) -> str:
        number = f"{self.wanted}" if self.wanted else "NUMBER"
        above = self.wanted is not None and self.wanted > self.hard_limit
        hard = f"the hard limit, {self.hard_limit:,}, " + ("must be raised as well" if above else "is the most")
        return (
            f"{self.what}: this process may have {self.limit:,} files open; raise that before the program starts "
            f"(`ulimit -n {number}`; {hard}), or have fewer shards, logs and readers open"
        )


class StorageError(UnavailableError):
    """The operating system refused a file operation."""


class OutcomeUnknown(LatewoodError):
    """The answer did not come, so it may have been done or not.  The same call again might do it twice.

    `parts` names the requests, for `client.resolve(error)`: that finds out, and does what was not done.
    """

    def __init__(self, reason: str, parts: tuple[object, ...] = ()) -> None:
        super().__init__(reason, parts)
        self.reason, self.parts = reason, parts

    def __str__(self) -> str:
        resolve = "`client.resolve(error)` finds out without doing it twice"
        return f"{self.reason}; it may have been done: {resolve if self.parts else 'look before you repeat'}"


class OutcomeForgotten(OutcomeUnknown):
    """The answer did not come, and nodes remember the request no more: `client.resolve` cannot help, only a look."""

    def __str__(self) -> str:
        look = "look for the records with `partition.scan`, from `partition.find_timestamp` on"
        return f"{self.reason}; {look}, and append what is missing"


class UnsupportedVersion(LatewoodError):
    """The file is sound but newer than this program."""

    def __init__(self, what: str, version: int, path: Path) -> None:
        super().__init__(what, version, path)
        self.what, self.version, self.path = what, version, path

    def __str__(self) -> str:
        return f"{self.path}: {self.what} version {self.version} is not known to this Latewood; upgrade this program"


class CorruptError(LatewoodError):
    """Stored bytes are not the bytes that were written."""

    mend = "keep the files and run `latewood verify`"
    _has_offset = True  # Else all that is at `path` is meant.

    def __init__(self, reason: str, path: Path, offset: int) -> None:
        super().__init__(reason, path, offset)
        self.reason, self.path, self.offset = reason, path, offset

    def __str__(self) -> str:
        where = f"{self.path} at byte {self.offset}" if self._has_offset else f"{self.path}"
        return f"{where}: {self.reason}; {self.mend}"


class ManifestCorrupted(CorruptError):
    """The manifest is not sound, or does not agree with the segments."""

    mend = "run `latewood rebuild` to make it again from the segments"


class Diverged(CorruptError):
    """A partition holds something else than its parent log says, or misses what stood before."""

    mend = "stop this node, keep its files, and replace it: remove it from the cluster, and add one with a new id"


class StrayRecord(Diverged):
    """A partition of a node holds a record that its parent log does not have, so another program wrote it.

    Nothing of the partition was served.  A repair keeps the records before it, and sets aside the rest.
    """

    mend = "stop this node, and `latewood cluster repair --config node.toml` keeps what is the node's, and no more"

    def __init__(self, reason: str, path: Path, partition_id: int, sequence: int) -> None:
        super().__init__(reason, path, sequence)
        self.args = (reason, path, partition_id, sequence)  # so that it pickles
        self.partition_id, self.sequence = partition_id, sequence

    def __str__(self) -> str:
        return f"{self.path}: record {self.sequence} of partition {self.partition_id} {self.reason}; {self.mend}"


class StrayLog(Diverged):
    """A directory of a node holds another log than the one that it is for: nothing in it was served.

    It was copied or moved there from another partition, node or cluster, or another program made it.
    """

    _has_offset = False
    mend = "stop this node, and `latewood cluster repair --config node.toml` sets it aside"

    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(reason, path, 0)
        self.args = (reason, path)  # so that it pickles


class ReaderAhead(CorruptError):
    """A reader has read records that its log does not have any more, and others take their numbers.

    No crash does this: an older copy of the log was restored, or it was rebuilt without its end.
    """

    _has_offset = False

    def __init__(self, path: Path, start: int, stop: int) -> None:
        super().__init__(f"the reader stands at {stop}, and the log went back to {start}", path, 0)
        self.args = path, start, stop  # so that it pickles
        self.start, self.stop = start, stop
        name = path.stem
        self.mend = (
            f"an older copy was restored, or its end is lost: to read all that was appended since, "
            f"`latewood readers seek {path.parent.parent} {name} --sequence {start}` "
            f"or `log.reader({name!r}, start={start})`"
        )


class LogBehind(CorruptError):
    """The log of a shard is not there, or is another log, or ends before the chunks that were made of it.

    No crash does this: an older copy of the log was restored, its directory was removed, or another log put there.
    What is in chunks can be read; nothing is appended, because new records would get the numbers of old ones.
    """

    _has_offset = False
    _advice = (
        "restore the newer copy of {path}, or give up what only that log had: `latewood rebuild --accept-loss "
        "{database}` keeps what is there under another name, and goes on behind the chunks"
    )

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason, path, 0)
        self.args = path, reason  # so that it pickles
        directory = path.parent.parent  # lake/databases/00000001-clicks/shards/00000: commands call it lake/clicks.
        store, name = directory.parent.parent, directory.name.partition("-")[2]
        self.mend = self._advice.format(path=path, store=store, database=store / name)


class CatalogBehind(LogBehind):
    """The catalog is an older copy, and lacks chunks before the log of a shard.  What it knows is read."""

    _advice = "nothing is lost: restore the newer catalog, or close the store and `latewood rebuild --catalog {store}`"


class AnotherLog(CorruptError):
    """A stored position, or a file, is of another log than the one here, or of records that this one lost.

    No crash does this: the log was deleted and made anew, a copy of it was restored, or it was rebuilt.  `path` names
    what stores the position, and `mend` says what to do with that.
    """

    _has_offset = False

    def __init__(self, reason: str, path: Path, mend: str) -> None:
        super().__init__(reason, path, 0)
        self.args = reason, path, mend  # so that it pickles
        self.mend = mend


class CatalogCorrupted(CorruptError):
    """A row of the catalog is not the row that was written."""

    mend = "keep the file and run `latewood catalog check`"

    def __init__(self, reason: str, path: Path, table: str, key: bytes) -> None:
        super().__init__(reason, path, 0)
        self.args = (reason, path, table, key)  # what it is made from again when it is unpickled
        self.table, self.key = table, key

    def __str__(self) -> str:
        where = f"table {self.table!r}, key {self.key.hex() or 'none'}" if self.table else "as a whole"
        return f"{self.path}, {where}: {self.reason}; {self.mend}"


class DataLost(LatewoodError):
    """Records that were removed, mostly by a policy, before this reader came to them."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__(start, stop)
        self.start, self.stop = start, stop

    def __str__(self) -> str:
        lost = f"records {self.start} to {self.stop - 1} are gone, by retention or before a rebuild"
        return f"{lost}; seek to {self.stop} to go on without them"


class ChangesLost(DataLost):
    """The change log dropped changes that this cursor had not acknowledged; `start` and `stop` are generations."""

    def __str__(self) -> str:
        lost = f"changes of generations {self.start} to {self.stop - 1} were dropped, the change log was full"
        return f"{lost}; read the tables anew, then acknowledge generation {self.stop - 1}"


class ClosedError(LatewoodError):
    """The object is closed.  Open it again."""


class Poisoned(ClosedError):
    """A sync failed, so the writer stopped.  Reopen the log to learn what is durable."""


class DirectoryReplaced(ClosedError):
    """The path leads to another directory, or catalog, than was opened, or to none; or its lock file was removed."""

    def __init__(self, path: Path, reason: str, missing: Missing = "another") -> None:
        super().__init__(path, reason, missing)
        self.path, self.reason, self.missing = path, reason, missing

    def __str__(self) -> str:
        what = "" if self.missing == "lock" else " is not what was opened any more"
        return f"{self.path}{what}: {self.reason}; {MISSING_MENDS[self.missing].replace('{path}', str(self.path))}"


class Forked(ClosedError):
    """This log belongs to the parent process.  Open it again in the child."""
