"""What a commit has done and has still to do.  Pure.

Why a batch is appended exactly once, whatever dies in between, is proved in docs/adr/0020-exactly-once-from-spark.md.
In short: an intent says where in each shard's log our records begin, and is durable before the first of them.  They
are appended under the log's lock, in one fixed order.  So what is in the log from there on is a beginning of ours, and
whatever somebody else has appended since comes behind it.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Literal, TypeAlias

import msgspec

from latewood.errors import UsageError
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


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the target knows of one query; the newest completion is the last, and is never forgotten."""

    query: str
    kind: Kind
    completions: list[Completion]


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


def completed(record: CommitRecord | None, intent: Intent, now_ms: int) -> CommitRecord:
    """Return the record of a query whose intended batch is in the log now."""
    done = Completion(intent.batch, now_ms, sum(intent.rows.values()))
    before = record.completions if record else []
    return CommitRecord(query=intent.query, kind=intent.kind, completions=[*before, done][-COMPLETIONS_KEPT:])


def is_over(record: CommitRecord | None, intent: Intent) -> bool:
    """Say whether an intent was carried out: only its removal is missing."""
    return record is not None and bool(record.completions) and intent.batch <= record.completions[-1].batch


def common(ours: Iterable[object], logged: Iterable[object]) -> int:
    """Return how many of the first items are the same: so many of ours are in the log."""
    count = 0
    for mine, theirs in zip(ours, logged, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def begun(intent: Intent, ends: Mapping[int, int]) -> Intent:
    """Return an intent with the rest of its records about to be appended at the ends of the logs."""
    shards = {shard: Progress(progress.done, ends[shard]) for shard, progress in intent.shards.items()}
    return msgspec.structs.replace(intent, shards=shards)


def settled(intent: Intent, found: Mapping[int, int]) -> Intent:
    """Return an intent with what was found of it counted, so that it no longer matters what is appended behind."""
    shards = dict(intent.shards)
    for shard, count in found.items():
        shards[shard] = Progress(shards[shard].done + count, None)
    return msgspec.structs.replace(intent, shards=shards)


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
