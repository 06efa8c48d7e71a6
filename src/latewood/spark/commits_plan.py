"""What a commit has done and has still to do.  Pure.

Why a batch is appended exactly once, whatever dies in between, is proved in docs/adr/0020-exactly-once-from-spark.md.
In short: an intent says where in each shard's log our records begin, and is durable before the first of them.  They
are appended under the log's lock, in one fixed order.  So what is in the log from there on is a beginning of ours, and
whatever somebody else has appended since comes behind it.

All of that is said of one log, which is named: of a log that was deleted and made anew it says that nothing is there.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from latewood.errors import UsageError
from latewood.format.identity import LogIdentity, Mark
from latewood.format.mark import mark_texts, parse_mark
from latewood.log.identity import stranger_reason
from latewood.spark.staging import StagedFile, StagedName

COMPLETIONS_KEPT: Final = 100
"""Of one query.  Only the last one counts; the others tell a replay from a checkpoint that was reset."""

TXNS_KEPT: Final = 1024
"""The records of so many txnIds stay, however old they are."""

TXN_AGE_MIN_MS: Final = 30 * 24 * 3_600_000
"""No txnId is forgotten before."""

Kind: TypeAlias = Literal["stream", "txn", "once"]
"""A streaming query; a batch write with a txnId; one without, which nobody can repeat."""


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far the records of a batch have come in one shard."""

    done: int
    """So many are in the log, durably, before `start`."""

    start: int | None
    """The others, as far as they are there, begin here; None: none is."""

    log: str | None = None
    life: str | None = None
    """Of which log that is said; None: an older program stored it, or the log has no identity."""

    end: int = 0
    """Where the log ended when that was said: what is `done` lies before."""

    @property
    def mark(self) -> Mark | None:
        """Return `log` and `life` as one."""
        return parse_mark(self.log, self.life)


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is being appended.  Once this is durable, it will be in the log, and no other in its place."""

    query: str
    kind: Kind
    batch: int
    begun_ms: int
    timestamp_ns: int
    """Of records that have none of their own."""
    files: list[StagedFile]
    rows: dict[int, int]
    """So many records go into each shard."""
    shards: dict[int, Progress]


class Completion(msgspec.Struct, frozen=True, array_like=True):
    """A batch that is in the log, all of it, durably."""

    batch: int
    at_ms: int
    rows: int


class LogEnd(msgspec.Struct, frozen=True, array_like=True):
    """Where a log ended when all records of a batch were in it."""

    log: str | None
    life: str | None
    sequence: int

    @property
    def mark(self) -> Mark | None:
        """Return `log` and `life` as one."""
        return parse_mark(self.log, self.life)


class LogNow(NamedTuple):
    """A shard's log, as it is now."""

    identity: LogIdentity | None
    end: int
    """The sequence of its next record."""

    @property
    def mark(self) -> Mark | None:
        """What a position in it carries."""
        return self.identity.mark if self.identity is not None else None


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the target knows of one query; the newest completion is the last, and is never forgotten."""

    query: str
    kind: Kind
    completions: list[Completion]
    ends: dict[int, LogEnd] = {}
    """Of the newest completion: each log that has records of it."""


class Uncertain(Exception):  # becomes an AnotherLog where the file is known
    """How much of a batch is in a log cannot be determined."""


class Verdict(Enum):
    """What a commit has to do."""

    SKIP = "the batch is in the log"
    APPEND = "it is not"


def verdict(record: CommitRecord | None, batch: int) -> Verdict:
    """Say whether a batch is in the log already.

    Raises:
        UsageError: its number is far below that of the last batch: another query's, or a checkpoint that was reset.
    """
    if record is None or not record.completions or batch > record.completions[-1].batch:
        return Verdict.APPEND
    if batch >= record.completions[0].batch:
        return Verdict.SKIP
    raise UsageError(
        f"batch {batch} of query {record.query} was committed long ago: the log has its batch "
        f"{record.completions[-1].batch}. If the checkpoint was reset, begin with a new one: its query has another id"
    )


def has_come(record: CommitRecord | None, batch: int) -> bool:
    """Say whether a batch, or one behind it, was completed, in whatever log."""
    return record is not None and bool(record.completions) and batch <= record.completions[-1].batch


def completed(record: CommitRecord | None, intent: Intent, now_ms: int, logs: Mapping[int, LogNow]) -> CommitRecord:
    """Return the record of a query whose intended batch is in the logs now.

    What was completed in another log that was here does not count for this one.
    """
    done = Completion(intent.batch, now_ms, sum(intent.rows.values()))
    ends = {shard: LogEnd(*mark_texts(log.mark), log.end) for shard, log in logs.items()}
    before = record.completions if record and not has_moved(record, logs) else []
    kept = [*before, done][-COMPLETIONS_KEPT:]
    return CommitRecord(query=intent.query, kind=intent.kind, completions=kept, ends=ends)


def has_moved(record: CommitRecord, logs: Mapping[int, LogNow]) -> bool:
    """Say whether a query's last batch is in other logs than these: all of them were deleted since, and made anew.

    Of shards that are not among `logs` nothing is known.
    """
    known = [(end, logs[shard]) for shard, end in record.ends.items() if shard in logs]
    return bool(known) and all(is_another(log, end.mark) for end, log in known)


def is_another(log: LogNow, mark: Mark | None) -> bool:
    """Say whether a mark is of another log."""
    return log.identity is not None and mark is not None and log.identity.identity != mark.identity


def lost_part(record: CommitRecord, logs: Mapping[int, LogNow]) -> str | None:
    """Return why a batch that was completed may not be in the logs as a whole; None: it is."""
    for shard, end in record.ends.items():
        log = logs[shard]
        reason = stranger_reason(log.identity, end.mark, end.sequence)
        if reason is None and log.end < end.sequence:
            reason = f"the log ends at {log.end}: it was restored from an older copy"
        if reason is not None:
            return f"it was in the log of shard {shard} up to {end.sequence}, and {reason}"
    return None


def is_over(record: CommitRecord | None, intent: Intent) -> bool:
    """Say whether an intent was carried out: only its removal is missing."""
    return has_come(record, intent.batch)


def common(ours: Iterable[object], logged: Iterable[object]) -> int:
    """Return how many of the first items are the same: so many of ours are in the log."""
    count = 0
    for mine, theirs in zip(ours, logged, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def begun(intent: Intent, logs: Mapping[int, LogNow]) -> Intent:
    """Return an intent with the rest of its records about to be appended at the ends of the logs."""
    shards = {
        shard: Progress(progress.done, logs[shard].end, *mark_texts(logs[shard].mark), logs[shard].end)
        for shard, progress in intent.shards.items()
    }
    return msgspec.structs.replace(intent, shards=shards)


def settled(intent: Intent, done: Mapping[int, int], logs: Mapping[int, LogNow]) -> Intent:
    """Return an intent with what is in the logs counted, so that it no longer matters what is appended behind.

    `done` is how many of its records are in each of `logs`.
    """
    shards = dict(intent.shards)
    for shard, count in done.items():
        shards[shard] = Progress(count, None, *mark_texts(logs[shard].mark), logs[shard].end)
    return msgspec.structs.replace(intent, shards=shards)


def kept(progress: Progress, log: LogNow) -> Progress:
    """Return what is still true of an intent's progress in the log that is here.

    In another log nothing of it is.  If this one lost records, what was counted lies before the loss, or is uncertain.

    Raises:
        Uncertain: how much of what was counted was lost cannot be determined.
    """
    reason = stranger_reason(log.identity, progress.mark, progress.end)
    if reason is None and progress.start is None and log.end < progress.end:
        reason = f"the log went back from {progress.end} to {log.end}: it was restored from an older copy"
    if reason is None:
        return progress
    if progress.done and not is_another(log, progress.mark):
        raise Uncertain(f"{progress.done} of its records were counted, and {reason}")
    return Progress(0, None)


def unsettled(intent: Intent, shards: Iterable[int]) -> list[int]:
    """Return those of the shards in which records of an intent may lie that are not counted."""
    return [shard for shard in shards if shard in intent.shards and intent.shards[shard].start is not None]


def left_behind(
    names: Sequence[str], intents: Sequence[Intent], done: tuple[str, int], now_ms: int, age_max_ms: int
) -> list[str]:
    """Return the staged files that nobody needs: of a query up to the batch that is done, or old and in no intent."""
    kept = {file.name for intent in intents for file in intent.files}
    found = []
    for text in names:
        name = StagedName.parse(text)
        if name is None or text in kept:
            continue
        is_done = name.query == done[0] and name.batch <= done[1]
        if is_done or now_ms - name.made_ms > age_max_ms:
            found.append(text)
    return found


def forgettable(txns: Mapping[str, CommitRecord], now_ms: int) -> list[str]:
    """Return which records of txnIds may go: those beyond the newest that are old, too."""
    newest = sorted(txns, key=lambda name: txns[name].completions[-1].at_ms, reverse=True)
    return [name for name in newest[TXNS_KEPT:] if now_ms - txns[name].completions[-1].at_ms > TXN_AGE_MIN_MS]
