"""A small store: real logs, a real catalog, chunks and a tier, and a process that can be killed at any step."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Self

from msgspec.structs import replace

from latewood.archive.chunk_reader import ChunkReader, open_chunk
from latewood.archive.directory import DirectoryTier
from latewood.archive.keys import KeyRing
from latewood.archive.names import parse_file_name, parse_object_key
from latewood.archive.object_store import ObjectStoreTier
from latewood.archive.options import ChunkOptions
from latewood.archive.sink import Hook, no_hook
from latewood.archive.tier import Tier, TierSource
from latewood.catalog import Catalog
from latewood.catalog.tables import (
    ChunkKey,
    ChunkRecord,
    Component,
    DbOptions,
    DbRecord,
    JobKind,
    RetentionOptions,
    WalStateKey,
    WalStateRecord,
)
from latewood.errors import LatewoodError, NotFoundError
from latewood.format import keyed
from latewood.fs import FileSystem
from latewood.jobs import JobManager, Outcome, WorkerPool
from latewood.jobs.handlers.chunks import Row, gaps, has_file, has_verified_object, live_rows, object_of
from latewood.jobs.handlers.site import FLUSH_READER
from latewood.jobs.handlers.store import store_handlers
from latewood.log import LogOptions
from latewood.queue import Queue
from latewood.queue.queue import open_queue
from latewood.runtime.archive_identity import check_archive
from latewood.testing import FakeClock, MemFS
from tests.jobs.handlers.rough_engine import RoughEngine, tools_of
from tests.jobs.kit import OPTIONS, Killed, manager_of, reborn
from tests.runtime.disk import quick_disk

DB: Final = 1
FORK: Final = 2
NAME: Final = "clicks"
SHARDS: Final = 2
SMALL: Final = ChunkOptions(row_group_rows=8)
HASH: Final = bytes(32)
_FATAL: Final = ("open", "make_directory", "sync_directory", "rename", "rename_new", "remove", "remove_tree")


class MortalFS:
    """A disk that a dead process cannot change any more: what ran in `finally` would otherwise tidy up after it."""

    def __init__(self, inner: FileSystem, whole: "MortalFS | None" = None) -> None:
        self._inner, self._whole = inner, whole or self
        self.died = False

    @property
    def is_dead(self) -> bool:
        return self._whole.died

    def rooted(self, path: Path) -> "MortalFS":
        return MortalFS(self._inner.rooted(path), self._whole)

    def __getattr__(self, name: str) -> Any:
        if self.is_dead and name in _FATAL:
            raise Killed(name)
        return getattr(self._inner, name)


class MortalTier:
    """A tier that a dead process cannot reach; it counts what it is asked."""

    def __init__(self, inner: Tier, fs: MortalFS) -> None:
        self.name, self._inner, self._fs = inner.name, inner, fs
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if self._fs.is_dead:
            raise Killed(name)
        self.asked.append(name)
        return getattr(self._inner, name)


class Site:
    """A database of the lake, as jobs see it."""

    def __init__(self, lake: "Lake", db_id: int, record: DbRecord) -> None:
        self._lake, self.db_id, self.record = lake, db_id, record
        self.chunk_dir, self.report_dir = Path(record.options.chunk_dir), Path(f"reports/{db_id}")
        self.chunk_options, self.keys, self.keys_to_read = lake.chunk_options, lake.keys, lake.keys_to_read or lake.keys
        self.tier: Tier | None = lake.tier

    def log(self, shard: int) -> Queue:
        return self._lake.logs[self.db_id, shard]

    def chunk_path(self, record: ChunkRecord) -> Path:
        origin = self._lake.database(record.origin_db_id) if record.origin_db_id else self
        return origin.chunk_dir / record.file_name

    def open_chunk(self, record: ChunkRecord) -> ChunkReader:
        try:
            return open_chunk(self._lake.fs, self.chunk_path(record), self.keys_to_read)
        except NotFoundError:
            if (named := object_of(record)) is None or self.tier is None:
                raise
            return ChunkReader(TierSource(self.tier, named.key), self.keys_to_read)

    def check_archive(self, *, make: bool = False, hook: Hook = no_hook) -> None:
        if self.tier is not None:
            random_bytes = self._lake.random_bytes if make else None
            check_archive(self._lake.catalog, self.tier, random_bytes=random_bytes, hook=hook)

    def object_key(self, record: ChunkRecord) -> str:
        name = parse_file_name(record.file_name)
        assert name
        return name.object_key(self._lake.database(record.origin_db_id or self.db_id).record.name)

    def reader_floor(self, shard: int) -> int | None:
        return self._lake.floors.get(shard)

    def readers_held(self) -> AbstractContextManager[object]:
        return nullcontext()

    def sharers(self, file_name: str) -> Sequence[ChunkRecord]:
        others = [db_id for db_id in (DB, FORK) if db_id != self.db_id]
        rows = [record for db_id in others for _, record in self._lake.catalog.scan_chunks(db_id)]
        return [record for record in rows if record.file_name == file_name]


class Lake:
    """A store with one database; `cut_at` kills the process before a step."""

    def __init__(
        self,
        directory: Path,
        *,
        tier: str = "memory",
        has_keys: bool = False,
        chunk_options: ChunkOptions = SMALL,
        is_rough: bool = False,
    ) -> None:
        directory.mkdir()
        self.clock: Any = FakeClock()
        self.fs: Any = MortalFS(MemFS())
        self.catalog = Catalog.open(directory / "catalog.mdb", OPTIONS, clock=self.clock)
        inner = ObjectStoreTier.open("memory:///") if tier == "memory" else DirectoryTier(self.fs, Path("archive"))
        self.tier: Any = MortalTier(inner, self.fs)
        self.chunk_options, self.keys = chunk_options, None if not has_keys else KeyRing({"k": bytes(range(32))}, "k")
        self.keys_to_read: KeyRing | None = None
        self.floors: dict[int, int] = {}
        self.logs: dict[tuple[int, int], Queue] = {}
        self.model: dict[int, list[tuple[bytes | None, bytes]]] = {shard: [] for shard in range(SHARDS)}
        self._random = random.Random(7)
        self._cut_at: int | None = None
        self._cut_name: str | None = None
        self.steps: list[str] = []
        self.on_step: Callable[[str], None] = lambda _: None
        self.engine = RoughEngine(tools_of(self)) if is_rough else None
        self.manager: JobManager
        self._pool: WorkerPool
        self._begin()
        self.make_database(DB, NAME)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for log in self.logs.values():
            log.close()
        self.catalog.close()

    # -- the store, as jobs see it ----------------------------------------------------------------------------

    def database(self, db_id: int) -> Site:
        record = self.catalog.read(lambda view: view.db(db_id))
        if record is None:
            raise NotFoundError(f"there is no database {db_id}")
        return Site(self, db_id, record)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    # -- what a test does -------------------------------------------------------------------------------------

    def fork(self) -> None:
        """Make another database that shares the live chunks of the first."""
        ends = {shard: self.last_applied(shard) for shard in range(SHARDS)}
        self.make_database(FORK, "fork", ends)
        txn = self.catalog.begin_write()
        for row in self.live():
            origin = row.record.origin_db_id or DB
            txn.upsert_chunk(ChunkKey(FORK, row.chunk_id), replace(row.record, origin_db_id=origin))
        for shard, end in ends.items():
            txn.put_wal_state(WalStateKey(FORK, shard), WalStateRecord(last_applied_sequence=end))
        txn.bump_generation(Component.CHUNKS)
        txn.commit()

    def make_database(self, db_id: int, name: str, firsts: "dict[int, int] | None" = None) -> None:
        options = DbOptions(wal_dir=f"wal/{db_id}", chunk_dir=f"chunks/{db_id}")
        txn = self.catalog.begin_write()
        txn.put_db(db_id, DbRecord(name=name, created_at_ms=0, config_hash=HASH, wal_shards=SHARDS, options=options))
        txn.commit()
        for shard in range(SHARDS):
            log = open_queue(
                f"wal/{db_id}/{shard}",
                LogOptions(
                    segment_bytes_max=4096,
                    segment_records_max=16,
                    keyed=True,
                    first_sequence=(firsts or {}).get(shard, 0),
                ),
                fs=self.fs,
                clock=self.clock,
                background=False,
            )
            log.reader(FLUSH_READER).close()
            self.logs[db_id, shard] = log

    def keep(self, db_id: int = DB, **retention: int) -> None:
        """Give a database a policy."""
        record = self.database(db_id).record
        options = replace(record.options, retention=RetentionOptions(**retention))
        txn = self.catalog.begin_write()
        txn.put_db(db_id, replace(record, options=options))
        txn.commit()

    def change(self, row: Row, db_id: int = DB, **changes: Any) -> None:
        """Change a chunk's row behind the jobs' back, as another job would."""
        txn = self.catalog.begin_write()
        txn.upsert_chunk(ChunkKey(db_id, row.chunk_id), replace(row.record, **changes))
        txn.bump_generation(Component.CHUNKS)
        txn.commit()

    def append(self, count: int, shard: int | None = None) -> None:
        """Append records to a shard, or to each."""
        for number in range(SHARDS) if shard is None else [shard]:
            for _ in range(count):
                sequence = len(self.model[number])
                key = None if sequence % 3 == 0 else b"user-%d" % (sequence % 5)
                payload = b"%d/%d " % (number, sequence) + bytes([sequence % 251]) * (sequence % 40)
                self.logs[DB, number].append(keyed.encode(key, payload))
                self.model[number].append((key, payload))
                self.clock.advance(ms=1)

    def run(self, kind: int, payload: dict[str, Any] | None = None, db_id: int = DB) -> Outcome | None:
        """Enqueue a job and run all there are; return what came of the last one."""
        self.manager.enqueue(kind, payload or {}, db_id=db_id, attempts_max=1)
        return self.drain()

    def drain(self) -> Outcome | None:
        outcome = None
        while (found := self._pool.run_next()) is not None:
            outcome = found
        return outcome

    def flush(self, *counts: int) -> None:
        """Append and flush, as often as there are counts: one chunk a shard each time."""
        for count in counts:
            self.append(count)
            assert self.run(JobKind.FLUSH, {"seal": True}) is Outcome.COMPLETED

    def run_cut(self, kind: int, payload: dict[str, Any], cut_at: int | None, second_cut: str | None = None) -> bool:
        """Run a job, kill the process before a step, and let another finish; return whether it came to that.

        With `second_cut` the other is killed too, before a step of that name, and a third finishes.
        """
        self.manager.enqueue(kind, payload, db_id=DB)
        self.steps, self._cut_at = [], cut_at
        if self._survives():
            return False
        self._cut_name = second_cut
        if not self._survives():
            assert self._survives()
        return True

    def _survives(self) -> bool:
        """Run all jobs there are; if the process is killed meanwhile, begin another."""
        try:
            self.drain()
        except Killed:
            self.fs.died = False
            self.catalog = reborn(self.catalog, self.clock)
            self._begin()
            return False
        finally:
            self._cut_at = self._cut_name = None
        return True

    # -- what a test looks at ---------------------------------------------------------------------------------

    def rows(self, db_id: int = DB) -> list[Row]:
        return [Row(key.chunk_id, record) for key, record in self.catalog.scan_chunks(db_id)]

    def live(self, shard: int | None = None, db_id: int = DB) -> list[Row]:
        return live_rows(self.rows(db_id), shard)

    def files(self) -> list[str]:
        return sorted(self.fs.list(self.database(DB).chunk_dir))

    def keys_in_tier(self) -> list[str]:
        return sorted(info.key for info in self.tier._inner.list(""))

    def state(self, shard: int, db_id: int = DB) -> Any:
        return self.catalog.read(lambda view: view.wal_state(db_id, shard))

    def last_applied(self, shard: int, db_id: int = DB) -> int:
        state = self.state(shard, db_id)
        return state.last_applied_sequence if state else 0

    def content(self, shard: int, db_id: int = DB) -> dict[int, tuple[bytes | None, bytes]]:
        """Read a shard: from its live chunks, then from its log."""
        site, found, end = self.database(db_id), dict[int, Any](), self.last_applied(shard, db_id)
        for row in self.live(shard, db_id):
            with site.open_chunk(row.record) as reader:
                found |= _pairs(reader.batches())
        return found | _pairs(site.log(shard).arrow_batches(end, keys=True))

    def check(self, *, deep: bool = True) -> None:
        """Hold what must hold at every moment."""
        for shard in range(SHARDS):
            live, end = self.live(shard), self.last_applied(shard)
            assert gaps(live, end) == [], f"shard {shard}: {[row.record.wal_range for row in live]} up to {end}"
            assert self.logs[DB, shard].first_sequence <= end
            for row in live:
                self._check_claims(row.record)
            if deep:
                floor = live[0].record.sequence_min if live else end
                assert self.content(shard) == dict(enumerate(self.model[shard][floor:], floor))

    def check_no_orphan(self) -> None:
        """Nothing is there that no row names, and no file that its row does not claim."""
        claimed = {row.record.file_name for row in self.rows() if has_file(row.record)}
        assert set(self.files()) <= claimed, set(self.files()) - claimed
        keys = {named.key for row in self.rows() if (named := object_of(row.record))}
        assert set(self.keys_in_tier()) <= keys, set(self.keys_in_tier()) - keys

    def picture(self) -> object:
        """All that a job is meant to bring about, without ids and tokens."""
        rows = sorted(_normal(row.record) for row in self.rows())
        files = sorted(parse_file_name(name)[:3] for name in self.files())  # type: ignore[index]
        objects = sorted(parse_object_key(key)[1][:3] for key in self.keys_in_tier())  # type: ignore[index]
        shards = [
            (
                self.last_applied(shard),
                self.state(shard) and self.state(shard).last_sealed_segment,
                self.logs[DB, shard].first_sequence,
                {reader.name: reader.sequence for reader in self.logs[DB, shard].readers()},
            )
            for shard in range(SHARDS)
        ]
        return {"rows": rows, "files": files, "objects": objects, "shards": shards}

    def _check_claims(self, record: ChunkRecord) -> None:
        site = self.database(DB)
        if has_file(record):
            is_there = self.fs._inner.exists(site.chunk_path(record))
            assert is_there, f"{record.file_name}: its row claims a file"
        if has_verified_object(record):
            named = object_of(record)
            assert named
            assert named.key in self.keys_in_tier(), f"{record.file_name}: its row vouches for an object"

    def _begin(self) -> None:
        self.manager = manager_of(self.catalog, self.clock)
        self._pool = WorkerPool(self.manager, store_handlers(self, self._step, self.engine), workers=1, name="w")

    def _step(self, name: str) -> None:
        self.steps.append(name)
        self.on_step(name)
        if (self._cut_at is not None and len(self.steps) > self._cut_at) or name == self._cut_name:
            self.fs.died = True
            raise Killed(name)


def prove(
    directory: Path,
    prepare: Callable[[Lake], None],
    kind: int,
    payload: dict[str, Any] | None = None,
    *,
    is_damaged: bool = False,
    second_cut: str | None = None,
    **options: Any,
) -> list[str]:
    """Kill a job before each of its steps, let another process finish it, and compare what is there in the end.

    Returns the names of the steps.  What must hold at every moment is looked at before every step; what is damaged
    can be read only at the end.  `second_cut`: the process that finishes it is killed too, before this step.
    """
    case = prepare, kind, payload or {}, options
    with quick_disk(directory) as home:  # A kill loses nothing that was written, so no sync needs to be waited for.
        wanted, names = _outcome(home / "whole", *case, None, deep=not is_damaged)
        assert names, "a job without a step proves nothing"
        for cut_at, name in enumerate(names):
            found, _ = _outcome(home / f"cut-{cut_at}", *case, cut_at, deep=False, second_cut=second_cut)
            where = f"killed before step {cut_at}, {name!r}"
            assert found == wanted, f"{where}, it ends elsewhere:\n{found}\nnot\n{wanted}"
    return names


def _outcome(
    directory: Path,
    prepare: Callable[[Lake], None],
    kind: int,
    payload: dict[str, Any],
    options: dict[str, Any],
    cut_at: int | None,
    *,
    deep: bool,
    second_cut: str | None = None,
) -> tuple[object, list[str]]:
    with Lake(directory, **options) as lake:
        prepare(lake)
        lake.on_step = lambda _: lake.check(deep=deep)
        assert lake.run_cut(kind, payload, cut_at, second_cut) == (cut_at is not None)
        names = list(lake.steps)
        lake.on_step = lambda _: None
        jobs = [job for job in lake.manager.jobs() if job.kind == kind]
        assert all(type(job.state).__name__ == "Completed" for job in jobs), [job.last_error for job in jobs]
        lake.check()
        lake.check_no_orphan()
        picture = lake.picture()
        with suppress(LatewoodError):
            lake.run(kind, payload)  # Twice is once.
        assert lake.picture() == picture
        return picture, names


def _normal(record: ChunkRecord) -> tuple[Any, ...]:
    marks = (record.columns or {}).get("marks", [])
    return (
        record.shard,
        *record.wal_range,
        type(record.residency).__name__,
        getattr(record.residency, "verified", None),
        record.superseded_by is not None,
        len(record.supersedes),
        record.purging,
        [sequence for _, sequence in marks],
        (record.segment_min, record.segment_max),
    )


def _pairs(batches: Iterator[Any] | Any) -> dict[int, tuple[bytes | None, bytes]]:
    found = dict[int, tuple[bytes | None, bytes]]()
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("sequence", "key", "payload"))
        found |= {sequence: (key, payload) for sequence, key, payload in zip(*columns, strict=True)}
    return found
