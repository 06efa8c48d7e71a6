"""Commits: staged records become part of the log, exactly once.

The order of writes, each durable before the next:

1. The target's lock, then the lock of every log that is appended to.
2. The intent: which staged files, and where in each log their records will begin.
3. The records, and a flush of every log.
4. The completion.
5. Only now the intent and the staged files go.

A commit that finds an intent without its completion goes on with *that* intent's files, behind what of them is in the
log; a task that was run again may have made other records of the same batch.

Intents and completions name the logs that they are about.  A log that was deleted and made anew has no record of a
batch, whatever was committed under its name.  If a log lost records, how much of the batch it still has is unknown, and
the commit is refused.

Cut points: docs/crash-safety.md, "spark sink".   Proof: docs/adr/0020-exactly-once-from-spark.md
"""

import copy
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec

from latewood.archive.log_check import ChunkFiles, log_behind
from latewood.clock import Clock, checked
from latewood.errors import AnotherLog, CorruptError, DataLost, LatewoodError
from latewood.format.store_layout import DatabaseLayout
from latewood.fs import FileSystem
from latewood.log.roll import check_payload
from latewood.queue import Queue, open_queue
from latewood.spark import commits_plan as plan
from latewood.spark.commits_files import CommitFiles
from latewood.spark.commits_plan import Intent, Kind, LogNow, Progress, Uncertain, Verdict
from latewood.spark.staging import Hook, StagedFile, append_columns, batches_of, in_order, opened
from latewood.spark.writing_options import LOCK_TIMEOUT_MS, STAGING_AGE_MAX_MS
from latewood.spark.writing_patience import patiently
from latewood.spark.writing_target import Target, check_living, covered_now_of

STEPS: Final = (
    "locked",
    "verified",
    "opened",
    "settled",
    "intended",
    "appended",
    "flushed",
    "closed",
    "completed",
    "removed",
)
"""What another process could see of a commit, in this order; `appended` comes once for each batch of records."""

_MS: Final = 1_000_000
_TXN_PRUNE_EVERY: Final = 64
"""Records of txnIds are looked through at every so many of them, not at every commit."""

_UNCERTAIN: Final = (
    "nobody can tell how much of it is in the log. Look there, then remove {path}: the next commit appends the batch "
    "from its beginning"
)

_logger = logging.getLogger(__name__)


class Batch(NamedTuple):
    """Whose batch it is, and which."""

    query: str
    kind: Kind
    number: int


class Committer:
    """Commits into one target.  One thread of any number of processes at a time: the target's lock says so."""

    def __init__(
        self,
        fs: FileSystem,
        target: Target,
        *,
        clock: Clock | None = None,
        lock_timeout_ms: int = LOCK_TIMEOUT_MS,
        staging_age_max_ms: int = STAGING_AGE_MAX_MS,
        hook: Hook | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fs, self._target, self._clock = fs, target, checked(clock)
        self._lock_timeout_ms, self._staging_age_max_ms = lock_timeout_ms, staging_age_max_ms
        self._step = hook or _no_hook
        self._sleep = sleep
        self._files = CommitFiles(fs, target.state)
        self._chunks = ChunkFiles(fs, DatabaseLayout(target.root).chunks) if target.is_database else None

    def commit(self, batch: Batch, staged: Sequence[StagedFile]) -> bool:
        """Append the records of a batch, unless they are in the log; return whether this call did something.

        Durable on return.  If it raises, the batch is in the log not at all, in part or as a whole, and calling it
        again, in any process and with whatever files, makes it whole.

        Raises:
            Locked: another writer did not let go of a log in time; nothing was written.
            RecordTooLarge: one of them is, for this log; nothing was written.
            CorruptError: a staged file is not what its task wrote, or what is known of a commit is damaged.
            DiskFull: there is no room; free some and commit again.
            DataLost: what an interrupted commit had appended was retired before it could be counted.
            AnotherLog: the log lost records since, and the batch, or a part of it, may be among them.
            UsageError: the checkpoint was reset; nothing was written.
            LogBehind: the log of a shard is not there, or ends before its chunks do; nothing was written.
            ClosedError: the target was dropped or deleted since the query began; nothing was written.
            DirectoryReplaced: the target's directory was moved or replaced meanwhile.
        """
        check_living(self._fs, self._target)  # Before anything is made in a directory that is gone.
        with self._held() as held:
            return held._commit(batch, staged)  # noqa: SLF001 - it is one of these, too

    @contextmanager
    def _held(self) -> Iterator["Committer"]:
        """Hold the target's directory open: intent, records and completion go into the same one."""
        held = copy.copy(self)
        held._fs = self._fs.rooted(self._target.root)  # noqa: SLF001 - as above
        held._files = CommitFiles(held._fs, self._target.state)  # noqa: SLF001
        try:
            yield held
            held._fs.check_root()  # noqa: SLF001 - before Spark is told that the batch is done
        finally:
            held._fs.close()  # noqa: SLF001

    def _commit(self, batch: Batch, staged: Sequence[StagedFile]) -> bool:
        self._files.prepare()
        with self._locked():
            check_living(self._fs, self._target)
            self._step("locked")
            changed = self._finish_interrupted(batch.query)
            if self._verdict(batch) is Verdict.SKIP:
                self._files.sync_records()  # Whoever completed it may have been killed before that.
                self._clear(batch)
                return changed
            if not staged:
                return changed
            self._carry_out(self._new_intent(batch, in_order(staged)), is_new=True)
            return True

    def abort(self, batch: Batch, staged: Iterable[StagedFile]) -> None:
        """Remove what tasks of a batch have staged, unless a commit has begun to append it.

        Spark calls this after a commit that raised, too.  That one's files are what the next commit goes on with.
        """
        intent = self._files.intent(batch.query)
        kept = {file.name for file in intent.files} if intent else set()
        self._files.remove_staged([file.name for file in staged if file.name not in kept])

    def _verdict(self, batch: Batch) -> Verdict:
        """Say whether a batch is in the logs that are here.

        Raises:
            AnotherLog: they lost records since it was committed, maybe its own.
            UsageError: the checkpoint was reset.
        """
        record = self._files.record(batch.query)
        if record is None or not plan.has_come(record, batch.number):
            return Verdict.APPEND
        logs = {shard: self._look(shard) for shard in record.ends}
        if plan.has_moved(record, logs):
            _logger.warning(
                "batch %d of query %s was committed into a log that was at %s before; it is appended to the one that "
                "is there now",
                batch.number,
                batch.query,
                self._target.root,
            )
            self._files.begin_anew(batch.query)
            return Verdict.APPEND
        verdict = plan.verdict(record, batch.number)
        if (reason := plan.lost_part(record, logs)) is not None:
            path = self._files.record_path(batch.query)
            reason = f"batch {batch.number} of query {batch.query} was committed: {reason}"
            raise AnotherLog(reason, path, _UNCERTAIN.format(path=path))
        return verdict

    # -- one intent -------------------------------------------------------------------------------------------

    def _finish_interrupted(self, query: str) -> bool:
        intent = self._files.intent(query)
        if intent is None:
            return False
        if plan.is_over(self._files.record(query), intent):
            return False  # Only its removal is missing, and the verdict will be to skip.
        try:
            self._carry_out(intent, is_new=False)
        except (CorruptError, DataLost) as error:
            uncertain = _UNCERTAIN.format(path=self._files.intent_path(query))
            error.add_note(f"batch {intent.batch} of query {query} was interrupted and cannot be finished: {uncertain}")
            raise
        return True

    def _new_intent(self, batch: Batch, files: list[StagedFile]) -> Intent:
        """Return the intent of a batch whose files are all proved to be sound."""
        rows: Counter[int] = Counter()
        for file in files:
            with opened(self._fs, self._files.staging, file) as reader:
                for frame in reader.frames:
                    reader.body(frame)
                    rows[frame.shard] += frame.rows
        self._step("verified")
        now_ns = self._clock.now_ns()
        return Intent(
            query=batch.query,
            kind=batch.kind,
            batch=batch.number,
            begun_ms=now_ns // _MS,
            timestamp_ns=now_ns,
            files=files,
            rows=dict(sorted(rows.items())),
            shards={shard: Progress(0, None) for shard in sorted(rows)},
        )

    def _carry_out(self, intent: Intent, *, is_new: bool) -> None:
        with self._opened_logs(list(intent.shards)) as logs:
            self._step("opened")
            if is_new:
                self._check_sizes(intent, logs)
            intent = self._settle_all(intent, logs)
            self._step("settled")
            # Now nothing of anybody lies uncounted behind the ends, and all before them is durable.
            intent = plan.begun(intent, _now(logs))
            self._files.store_intent(intent)
            self._step("intended")
            for shard, log in logs.items():
                self._append(intent, shard, log)
            for log in logs.values():
                log.flush()
            self._step("flushed")
            ends = _now(logs)
        self._step("closed")
        if intent.kind != "once":
            record = self._files.record(intent.query)
            self._files.store_record(plan.completed(record, intent, self._now_ms(), ends))
            self._step("completed")
        self._clear(Batch(intent.query, intent.kind, intent.batch))

    def _check_sizes(self, intent: Intent, logs: dict[int, Queue]) -> None:
        """Refuse what no segment can hold now: behind the intent it could never be finished."""
        for file in intent.files:
            with opened(self._fs, self._files.staging, file) as reader:
                for frame in reader.frames:
                    check_payload(frame.payload_bytes_max, logs[frame.shard].options.file_bytes_max)

    def _append(self, intent: Intent, shard: int, log: Queue) -> None:
        skip = intent.shards[shard].done
        for records in batches_of(self._fs, self._files.staging, intent.files, shard, skip):
            columns = append_columns(records, intent.timestamp_ns)
            log.append_many(columns.payloads, ext_ids=columns.ext_ids, timestamps_ns=columns.timestamps_ns)
            self._step("appended")

    # -- counting what is there -------------------------------------------------------------------------------

    def _settle_all(self, intent: Intent, logs: dict[int, Queue]) -> Intent:
        """Count what is in the logs of every interrupted intent, before anything is appended behind it."""
        for log in logs.values():
            log.flush()  # What is counted must be durable, and so must all before a new beginning.
        for other in self._files.intents():
            if other.query != intent.query and plan.unsettled(other, logs):
                self._settle_other(other, logs)
        return self._settled(intent, logs)

    def _settle_other(self, intent: Intent, logs: dict[int, Queue]) -> None:
        """Count another query's records.  One that cannot be counted can never be finished, so nobody waits for it."""
        try:
            intent = self._settled(intent, logs)
        except (CorruptError, DataLost) as error:
            _logger.warning("batch %d of query %s cannot be finished: %s", intent.batch, intent.query, error)
        else:
            self._files.store_intent(intent)

    def _settled(self, intent: Intent, logs: dict[int, Queue]) -> Intent:
        now = _now(logs)
        intent = self._kept(intent, now)
        done = {shard: progress.done for shard, progress in intent.shards.items() if shard in logs}
        done |= {shard: self._done(intent, shard, logs[shard]) for shard in plan.unsettled(intent, logs)}
        return plan.settled(intent, done, now)

    def _kept(self, intent: Intent, now: Mapping[int, LogNow]) -> Intent:
        """Return what is still true of an intent in the logs that are here."""
        shards = dict(intent.shards)
        for shard in shards.keys() & now.keys():
            try:
                shards[shard] = plan.kept(shards[shard], now[shard])
            except Uncertain as error:
                path = self._files.intent_path(intent.query)
                raise AnotherLog(f"in shard {shard}, {error}", path, _UNCERTAIN.format(path=path)) from None
            if shards[shard] != intent.shards[shard]:
                _logger.warning(
                    "batch %d of query %s was begun in a log of shard %d that is there no more; it begins anew in %s",
                    intent.batch,
                    intent.query,
                    shard,
                    self._target.logs[shard],
                )
        return msgspec.structs.replace(intent, shards=shards)

    def _done(self, intent: Intent, shard: int, log: Queue) -> int:
        """Return how many records of an intent are in a log."""
        done, start = intent.shards[shard].done, intent.shards[shard].start
        assert start is not None
        if log.next_sequence < start:
            reason = f"the log ends at {log.next_sequence}, before the commit of batch {intent.batch} began at {start}"
            raise CorruptError(reason, self._files.intent_path(intent.query), 0)
        staged = (
            row
            for records in batches_of(self._fs, self._files.staging, intent.files, shard, done)
            for row in append_columns(records, intent.timestamp_ns).rows()
        )
        logged = ((record.timestamp_ns, record.ext_id, record.payload) for record in log.scan(start))
        return done + plan.common(staged, logged)

    # -- locks ------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = patiently(lambda: self._fs.lock(self._files.lock), self._lock_timeout_ms, self._sleep)
        try:
            yield
        finally:
            lock.close()

    @contextmanager
    def _opened_logs(self, shards: list[int]) -> Iterator[dict[int, Queue]]:
        """Open the logs of shards to append, all or none: whoever waits holds none of them."""
        logs, closing = patiently(lambda: self._open_logs(shards), self._lock_timeout_ms, self._sleep)
        with closing:
            yield logs

    def _open_logs(self, shards: list[int]) -> tuple[dict[int, Queue], ExitStack]:
        with ExitStack() as undo:
            logs = {}
            for shard in shards:
                path, options = self._target.logs[shard], self._target.options
                self._check_covered(shard)
                log = open_queue(
                    path,
                    options,
                    fs=self._fs,
                    clock=self._clock,
                    background=False,
                    owner=self._target.owner,
                    birth=self._target.identities[shard] if self._target.identities else None,
                )
                logs[shard] = undo.enter_context(log)
            return logs, undo.pop_all()

    def _look(self, shard: int) -> LogNow:
        """Return which log a shard has, and where it ends."""
        self._check_covered(shard)
        with open_queue(self._target.logs[shard], mode="r", fs=self._fs, clock=self._clock) as log:
            return LogNow(log.identity, log.next_sequence)

    def _check_covered(self, shard: int) -> None:
        """Refuse a shard of a database whose log is not there, is another one, or ends before its chunks do.

        None is made here.

        Raises:
            LogBehind: it is so.
        """
        target = self._target
        if not target.is_database:
            return
        path, covered, wanted = target.logs[shard], target.covered[shard], target.identities[shard]
        covered_now = partial(covered_now_of, target, shard)
        behind = log_behind(self._fs, path, covered, wanted, self._chunks, shard, covered_now)
        if behind is not None:
            raise behind

    # -- what is left behind ----------------------------------------------------------------------------------

    def _clear(self, batch: Batch) -> None:
        """Remove what nobody needs any more.  The batch is in the log: whatever fails here is tried again next time."""
        try:
            self._files.remove_intent(batch.query)
            done, now_ms = (batch.query, batch.number), self._now_ms()
            intents, staged = self._living_intents(), self._files.staged()
            self._files.remove_staged(plan.left_behind(staged, intents, done, now_ms, self._staging_age_max_ms))
            self._prune_txns(batch.kind, now_ms)
        except LatewoodError as error:
            _logger.warning("after the commit of batch %d of query %s: %s", batch.number, batch.query, error)
        self._step("removed")

    def _living_intents(self) -> list[Intent]:
        """Return the intents that somebody may still finish; old ones of writes that nobody can repeat go."""
        living = []
        for intent in self._files.intents():
            if intent.kind == "once" and self._now_ms() - intent.begun_ms > self._staging_age_max_ms:
                self._files.remove_intent(intent.query)
            else:
                living.append(intent)
        return living

    def _prune_txns(self, kind: Kind, now_ms: int) -> None:
        names = self._files.txn_names() if kind == "txn" else []
        if len(names) <= plan.TXNS_KEPT or len(names) % _TXN_PRUNE_EVERY:
            return
        records = {name: record for name in names if (record := self._files.record(name)) and record.completions}
        for name in plan.forgettable(records, now_ms):
            self._files.remove_record(name)

    def _now_ms(self) -> int:
        return self._clock.now_ns() // _MS


def _now(logs: dict[int, Queue]) -> dict[int, LogNow]:
    return {shard: LogNow(log.identity, log.next_sequence) for shard, log in logs.items()}


def _no_hook(step: str) -> None:
    """Let the work go on."""
    del step
