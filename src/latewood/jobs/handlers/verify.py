"""Verify: a scrub of every checksum in every tier.

Reads all that there is: the logs' segments, the chunks' files and objects, and whether they follow on one another.
What it found is written to `verify.json`.  An object that is not what it should be stops being vouched for at once, so
that no eviction trusts it, and a repair is enqueued together with the completion.   Order: docs/crash-safety.md
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from latewood.archive.chunk_reader import ChunkReader
from latewood.archive.identity import foreign_objects
from latewood.archive.names import ChunkName, parse_object_key, shard_prefix
from latewood.archive.tier import Tier, TierSource
from latewood.catalog import CatalogView, Op
from latewood.catalog.job_ops import EnqueueJob
from latewood.catalog.tables import ChunkRecord, WalStateRecord
from latewood.errors import AnotherLog, CorruptError, LogBehind, NotFoundError, UnsupportedVersion
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import Row, doubted, gaps, has_file, live_rows, object_of
from latewood.jobs.handlers.mending import mending
from latewood.jobs.handlers.orphans import strays
from latewood.jobs.handlers.proof import MISSING, Looked, look_of, looked_at_all
from latewood.jobs.handlers.registry import Result
from latewood.jobs.handlers.report import FINDINGS_MAX, ScrubFinding, ScrubReport, Severity, store_report
from latewood.log.layout import Layout
from latewood.log.verify import Verification
from latewood.queue.verify import verify_queue
from latewood.tasks.segments import looks_at_records

if TYPE_CHECKING:
    from latewood.types import ChunkId

STEPS: Final = ("commit doubt", "write report")
_UNKNOWN_CHUNKS: Final = (
    "if the catalog is an older copy, `latewood rebuild --catalog {store}` counts in what no row names"
)
_BEFORE_LOG: Final = (
    "no row names this object, and neither other chunks nor the log have its records: the catalog is older than its "
    "archive; `latewood rebuild --catalog {store}` counts it in"
)
_BEYOND_LOG: Final = (
    "no row names this object, and the log ends before its records: the store is an older copy than its archive; "
    "append nothing, and restore the newer copy, or count the chunk in with `latewood rebuild --catalog` of the store"
)


def verify(attempt: Attempt) -> Result:
    """Check everything, write down what was found, and have what is broken repaired.

    Raises:
        JobFailed: the archive is not the one that has the store's chunks, or is not there.
    """
    if attempt.db.tier is not None:
        attempt.tier()
    scrub = _Scrub(attempt)
    for shard in attempt.shards:
        scrub.log(shard)
    live = [row.chunk_id for row in live_rows(scrub.rows)]
    with closing(looked_at_all(attempt, live, partial(look_of, attempt))) as found:
        for looked in found:
            scrub.chunk(looked)
    scrub.strays()
    ops = mending(attempt, sorted(scrub.broken))
    attempt.step("write report")
    store_report(attempt.fs, attempt.db.report_dir, scrub.report(ops))
    return ops


class _Scrub:
    """One run over a database."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._states, self.rows = attempt.context.read(lambda view: _snapshot(view, attempt))
        self.broken: set[ChunkId] = set()
        self._missing: dict[int, tuple[int, int]] = {}
        """Of each shard what neither the chunks of the catalog nor the log have."""
        self._store = attempt.db.chunk_dir.parent.parent.parent
        self._unknown_chunks = _UNKNOWN_CHUNKS.format(store=self._store)
        self._findings: list[ScrubFinding] = []
        self._segments = self._records = self._files = self._objects = self._bytes = 0
        self._total = sum(_places(row.record) * row.record.size_bytes for row in live_rows(self.rows))

    def log(self, shard: int) -> None:
        """Check a log in depth, and that the chunks before it leave no gap."""
        try:
            log = self._attempt.db.log(shard)
        except LogBehind as error:
            self._note("damage", str(error.path), f"{error.reason}; {error.mend}", shard=shard)
            return
        self._readers(shard)
        found = self._verified(Layout(log.path))
        if not found.is_sound:  # Segments may have been retired under it: only what is found twice is believed.
            found = self._verified(Layout(log.path))
        self._segments += found.segments_checked
        self._records += found.records_checked
        for finding in found.findings:
            self._note(finding.severity, str(finding.path), f"at byte {finding.offset}: {finding.problem}", shard=shard)
        known = self._states.get(shard, WalStateRecord())
        for start, stop in gaps(live_rows(self.rows, shard), known.last_applied_sequence):
            if any(first <= start and stop <= end for first, end in known.lost):
                problem = f"records {start} to {stop - 1} are lost: `latewood rebuild --accept-loss` accepted that"
                self._note("warning", str(log.path), problem, shard=shard)
                continue
            problem = f"chunks leave records {start} to {stop - 1} out, or hold them twice"
            self._note("damage", str(log.path), problem, shard=shard)
        first = log.first_sequence  # Before the state: that is never behind it, and both only rise.
        state = self._attempt.context.read(lambda view: view.wal_state(self._attempt.db_id, shard)) or WalStateRecord()
        if first > state.last_applied_sequence:
            problem = f"neither chunks nor the log have records {state.last_applied_sequence} to {first - 1}"
            self._note("damage", str(log.path), f"{problem}; {self._unknown_chunks}", shard=shard)
            self._missing[shard] = (state.last_applied_sequence, first)

    def _readers(self, shard: int) -> None:
        """Note a reader whose position is damaged or in another log: retention lets nothing go because of it."""
        try:
            self._attempt.db.reader_floor(shard)
        except CorruptError as error:
            problem = f"{error.reason}; {error.mend}" if isinstance(error, AnotherLog) else error.reason
            self._note("damage", str(error.path), problem, shard=shard)

    def chunk(self, looked: Looked) -> None:
        """Note what is wrong with a chunk wherever its row says that it is."""
        record, seen, row = looked.record, looked.seen, Row(looked.chunk_id, looked.record)
        if seen.unreadable is not None:  # Nothing to repair: a key or a tier is not given.
            self._note("damage", record.file_name, f"it cannot be read: {seen.unreadable}", row)
            return
        self._took(record)
        if seen.local is not None:
            is_harmless = seen.local == MISSING and object_of(record) is not None
            path = str(self._attempt.db.chunk_path(record))
            self._note("warning" if is_harmless else "damage", path, seen.local, row)
        if seen.remote is not None:
            self._note("damage", self._attempt.db.object_key(record), seen.remote, row)
            self._attempt.change("commit doubt", row.chunk_id, doubted)
        if seen.local is not None or seen.remote is not None:
            self.broken.add(row.chunk_id)

    def strays(self) -> None:
        """Note files and objects that no row names, and that no job will ever remove: they may be only copies."""
        for file_name in strays(self._attempt):
            problem = f"no row names it; it may be an only copy; {self._unknown_chunks}"
            self._note("warning", str(self._attempt.db.chunk_dir / file_name), problem)
        if self._attempt.db.tier is not None:
            foreign: dict[tuple[int, bytes], list[str]] = {}
            for key, name in self._unknown_keys(self._attempt.db.tier):
                if name is not None and (log := self._foreign_log(self._attempt.db.tier, key, name)) is not None:
                    foreign.setdefault((name.shard, log), []).append(key)
                elif name is not None and self._is_beyond_log(name):
                    self._note("damage", key, _BEYOND_LOG, shard=name.shard)
                elif name is not None and self._is_missing(name):
                    self._note("damage", key, _BEFORE_LOG.format(store=self._store), shard=name.shard)
                else:
                    self._note("warning", key, "no row names this object; it may be an only copy")
            for (shard, log), keys in foreign.items():
                self._note("warning", keys[0], foreign_objects(len(keys), log), shard=shard)

    def report(self, ops: list[Op]) -> ScrubReport:
        """Return what was found."""
        mend = next((op.record.job_id for op in ops if isinstance(op, EnqueueJob)), None)
        return ScrubReport(
            job_id=self._attempt.job_id,
            database=self._attempt.db.record.name,
            at_ms=self._attempt.now_ms(),
            segments=self._segments,
            records=self._records,
            files=self._files,
            objects=self._objects,
            bytes=self._bytes,
            damaged=sum(finding.severity == "damage" for finding in self._findings),
            mend_job_id=mend,
            findings=tuple(self._findings[:FINDINGS_MAX]),
        )

    def _verified(self, layout: Layout) -> Verification:
        """Check a log; its segments are looked at by the engine, if that does more than a few threads here would."""
        engine, check = self._attempt.engine, self._attempt.context.check
        looks = partial(looks_at_records, engine, layout, check=check) if engine.lanes > 1 else None
        return verify_queue(self._attempt.fs, layout, deep=True, looks=looks)

    def _is_beyond_log(self, name: ChunkName) -> bool:
        """Say whether a chunk has records that its shard's log has not come to."""
        try:
            return name.sequence_max >= self._attempt.db.log(name.shard).next_sequence
        except LogBehind:  # That is told already.
            return False

    def _is_missing(self, name: ChunkName) -> bool:
        """Say whether a chunk has records that neither the chunks of the catalog nor the log of its shard have."""
        start, stop = self._missing.get(name.shard, (0, 0))
        return name.sequence_min < stop and name.sequence_max >= start

    def _unknown_keys(self, tier: Tier) -> Iterator[tuple[str, ChunkName | None]]:
        db = self._attempt.db
        known = {named.key for row in self.rows if (named := object_of(row.record))}
        known |= {db.object_key(row.record) for row in self.rows}
        for shard in self._attempt.shards:
            for info in tier.list(shard_prefix(db.record.name, shard)):
                parsed = parse_object_key(info.key)
                if info.key not in known and not (parsed and db.sharers(parsed[1].file_name)):
                    yield info.key, parsed[1] if parsed else None

    def _foreign_log(self, tier: Tier, key: str, name: ChunkName) -> bytes | None:
        """Return the log that an object was made of, if that is another one than its shard's; None: nobody can say."""
        own = self._attempt.db.record.log_identity(name.shard)
        try:
            with ChunkReader(TierSource(tier, key), self._attempt.db.keys_to_read) as reader:
                mark = reader.meta.mark
        except (CorruptError, NotFoundError, UnsupportedVersion):
            return None
        return None if own is None or mark is None or mark.identity == own else mark.identity

    def _took(self, record: ChunkRecord) -> None:
        self._files += has_file(record)
        self._objects += object_of(record) is not None
        self._bytes += _places(record) * record.size_bytes
        self._attempt.context.progress(self._bytes, max(self._bytes, self._total))

    def _note(
        self, severity: Severity, where: str, problem: str, row: Row | None = None, *, shard: int | None = None
    ) -> None:
        self._findings.append(
            ScrubFinding(
                severity=severity,
                where=where,
                problem=problem,
                shard=row.record.shard if row else shard,
                chunk_id=row.chunk_id if row else None,
            )
        )


def _snapshot(view: CatalogView, attempt: Attempt) -> tuple[dict[int, WalStateRecord], list[Row]]:
    states = {key.shard: state for key, state in view.wal_states(attempt.db_id)}
    return states, [Row(key.chunk_id, record) for key, record in view.chunks(attempt.db_id)]


def _places(record: ChunkRecord) -> int:
    return has_file(record) + (object_of(record) is not None)
