"""A store with one database, and beside it what it must hold: every job is run by name, and everything is compared."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from latewood.archive.directory import DirectoryTier
from latewood.archive.keys import KeyRing
from latewood.archive.names import parse_object_key
from latewood.archive.sink import Hook, no_hook
from latewood.archive.tier import Tier
from latewood.catalog.tables import ChunkRecord, JobKind, JobRecord, WalStateKey
from latewood.errors import UniqueJobAlreadyPending
from latewood.fs import PosixFS
from latewood.jobs import WorkerPool
from latewood.jobs.handlers.chunks import Row, gaps, has_file, live_rows, object_of
from latewood.jobs.handlers.hydrate import HYDRATE
from latewood.jobs.handlers.retain import RETAIN
from latewood.jobs.handlers.store import store_handlers
from latewood.runtime import Database, Store
from latewood.runtime.record import DatabaseRecord
from latewood.runtime.site import DatabaseSite
from latewood.testing import FakeClock
from tests.jobs.kit import OPTIONS

NAME: Final = "clicks"
REMOTE: Final = "remote"
LAKE: Final = "lake"
_TRIES_MAX: Final = 200

KINDS: Final = {
    "flush": JobKind.FLUSH,
    "checkpoint": JobKind.CHECKPOINT,
    "compact": JobKind.COMPACT,
    "archive": JobKind.ARCHIVE,
    "evict": JobKind.EVICT,
    "hydrate": HYDRATE,
    "retain": RETAIN,
    "verify": JobKind.VERIFY,
    "rekey": JobKind.REKEY,
    "mend": JobKind.MEND,
}
USUAL: Final[dict[str, dict[str, Any]]] = {
    "flush": {"seal": True},
    "compact": {"eager": True},
    "evict": {"now": True},
}
"""What makes a job do all that it can."""


class Kept(NamedTuple):
    """A record, as it was appended."""

    timestamp_ns: int
    ext_id: int
    key: bytes | None
    payload: bytes


Model = dict[int, list[Kept]]
"""What was appended to each shard, from sequence 0 on."""


def directory_tier(path: Path) -> DirectoryTier:
    """Return a tier whose name does not change when its directory is copied."""
    tier = DirectoryTier(PosixFS(), path)
    tier.name = "file:///remote"
    return tier


class Pond:
    """A store in `home/lake`, its archive in `home/remote`, and what it must hold."""

    def __init__(
        self,
        home: Path,
        *,
        tier: Tier | None = None,
        keys: KeyRing | None = None,
        clock: FakeClock | None = None,
        model: Model | None = None,
        steps: Hook = no_hook,
    ) -> None:
        self.home, self.clock, self.keys = home, clock or FakeClock(), keys
        self.tier: Any = tier or directory_tier(home / REMOTE)
        self.model: Model = model or {}
        self.floors: dict[int, int] = {}
        """The first sequence of each shard that retention has left; 0 if it is not told."""
        self.steps = steps
        self.store = self._open()

    def _open(self) -> Store:
        return Store.open(self.home / LAKE, tier=self.tier, keys=self.keys, clock=self.clock, catalog_options=OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def reopen(self) -> None:
        """Close the store and open it again."""
        self.store.close()
        self.store = self._open()

    def create(self, shards: int = 2, **options: Any) -> Database:
        """Make the database; segments and chunks are small, and what was replaced goes at once."""
        usual = {"segment_bytes_max": 4096, "grace_ms": 0}
        self.model = {shard: [] for shard in range(shards)}
        return self.store.create_database(NAME, shards=shards, **usual | options)

    @property
    def db(self) -> Database:
        return self.store.database(NAME)

    @property
    def site(self) -> DatabaseSite:
        """The database, as its jobs see it."""
        return self.store.site_of(self.db.db_id)

    @property
    def db_dir(self) -> Path:
        return self.store.layout.located(self.db.record.options.wal_dir).root

    # -- appending --------------------------------------------------------------------------------------------

    def append(self, payload: bytes, key: bytes | None = None, ext_id: int = 0) -> None:
        """Append one record."""
        self.clock.advance(1_001)
        shard, sequence = self.db.append(payload, key, ext_id=ext_id)
        assert sequence == len(self.model[shard])
        self.model[shard].append(Kept(self.clock.now_ns(), ext_id, key, payload))

    def append_many(self, payloads: Sequence[bytes], keys: Sequence[bytes | None] | None = None) -> None:
        """Append a batch."""
        self.clock.advance(1_001)
        placed = {number: iter(span) for number, span in self.db.append_many(payloads, keys).items()}
        if keys is None:
            (shard,) = placed
            where = [shard] * len(payloads)
        else:
            where = [self._shard_of(key, placed) for key in keys]
        for shard, payload, key in zip(where, payloads, keys or [None] * len(payloads), strict=True):
            assert next(placed[shard]) == len(self.model[shard])
            self.model[shard].append(Kept(self.clock.now_ns(), 0, key, payload))

    def _shard_of(self, key: bytes | None, placed: dict[int, Iterator[int]]) -> int:
        from latewood.runtime.sharding import shard_of  # noqa: PLC0415 - what is tested says where

        assert key is not None
        shard = shard_of(key, len(self.model))
        assert shard in placed
        return shard

    def fill(self, count: int) -> None:
        """Append records that can be told apart, with keys, without, and in batches."""
        for number in range(count // 3):
            self.append(b"one-%d" % number, key=b"user-%d" % (number % 7), ext_id=number)
        rest = count - 2 * (count // 3)
        numbers = range(rest)
        self.append_many([b"many-%d" % number for number in numbers], [b"user-%d" % (number % 7) for number in numbers])
        if count // 3:
            self.append_many([b"bare-%d" % number for number in range(count // 3)])

    # -- jobs -------------------------------------------------------------------------------------------------

    def enqueue(self, kind: str, **payload: Any) -> int:
        """Let a job wait; one that waits already is as good."""
        try:
            return self.store.enqueue(KINDS[kind], NAME, **USUAL.get(kind, {}) | payload)
        except UniqueJobAlreadyPending as pending:
            return pending.job_id

    def run(self, kind: str, **payload: Any) -> None:
        """Run a job, and whatever waits, to the end; it must succeed."""
        job_id = self.enqueue(kind, **payload)
        self.settle()
        job = self.store.jobs.get(job_id)
        assert type(job.state).__name__ == "Completed", job

    def settle(self) -> None:
        """Run every job to its end, however long it must wait between its attempts."""
        pool = WorkerPool(self.store.jobs, store_handlers(self.store._site, self.steps), workers=1, name="w")
        for _ in range(_TRIES_MAX):
            while pool.run_next() is not None:
                pool.tick()
            if not self.unfinished():
                return
            self.clock.advance(seconds=600)
            pool.tick()
        raise AssertionError(f"jobs do not end: {self.unfinished()}")

    def unfinished(self) -> list[JobRecord]:
        return [job for job in self.store.jobs.jobs() if not job.is_finished]

    # -- what must hold ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare everything that can be read with what was appended, and look whether the ranges hang together."""
        self.check_ranges()
        for shard in self.model:
            self.check_records(shard, list(self.db.scan(shard=shard)))
        self.check_table()

    def check_records(self, shard: int, found: Sequence[DatabaseRecord]) -> None:
        first = self.floors.get(shard, 0)
        assert [record.sequence for record in found] == list(range(first, len(self.model[shard])))
        assert [Kept(*record[2:]) for record in found] == self.model[shard][first:]

    def check_table(self) -> None:
        table = self.db.to_arrow(columns=["shard", "sequence", "payload"])
        wanted = [
            (shard, sequence, self.model[shard][sequence].payload)
            for shard in self.model
            for sequence in range(self.floors.get(shard, 0), len(self.model[shard]))
        ]
        columns = [table[name].to_pylist() for name in ("shard", "sequence", "payload")]
        assert list(zip(*columns, strict=True)) == wanted

    def check_ranges(self) -> None:
        """Live chunks follow on one another up to where the shard has come, and the log begins no later."""
        states = self.store.catalog.read(lambda view: dict(view.wal_states(self.db.db_id)))
        for shard in self.model:
            state = states[WalStateKey(self.db.db_id, shard)]
            end, log_first = state.last_applied_sequence, self.db.shards[shard].log.first_sequence
            assert gaps(live_rows(self.rows(), shard), end) == []
            assert log_first <= end

    def check_no_orphans(self) -> None:
        """Every file and every object has a row that claims it, and each claim is true."""
        claims = list(self.claims())
        files = {path for path, _ in claims if path is not None}
        found = {path for path in (self.home / LAKE / "databases").glob("*/chunks/*") if path.is_file()}
        assert found == files, "files that no row claims, or claims without a file"
        assert {info.key for info in self.tier.list()} == {key for _, key in claims if key is not None}

    def claims(self) -> Iterable[tuple[Path | None, str | None]]:
        for db_id, _ in self.store.databases():
            site = self.store.site_of(db_id)
            for _, record in self.store.catalog.scan_chunks(db_id):
                named = object_of(record)
                yield (site.chunk_path(record) if has_file(record) else None), named.key if named else None

    def learn_floors(self) -> None:
        """Believe the store what retention has left; floors only rise."""
        for stats in self.db.stats():
            assert stats.first_sequence >= self.floors.get(stats.shard, 0)
            self.floors[stats.shard] = stats.first_sequence

    def rows(self, db: Database | None = None) -> list[Row]:
        db_id = (db or self.db).db_id
        return [Row(key.chunk_id, record) for key, record in self.store.catalog.scan_chunks(db_id)]

    def live(self, db: Database | None = None) -> list[ChunkRecord]:
        return [row.record for row in live_rows(self.rows(db))]

    def files(self) -> list[Path]:
        return sorted((self.home / LAKE / "databases").glob("*/chunks/*"))

    def keys_in_tier(self) -> list[str]:
        keys = [info.key for info in self.tier.list()]
        assert all(parse_object_key(key) for key in keys)
        return keys


@contextmanager
def pond(home: Path, shards: int = 2, **options: Any) -> Iterator[Pond]:
    """Give a pond with an empty database."""
    keys = options.pop("keys", None)
    with Pond(home, keys=keys) as made:
        made.create(shards, **options)
        yield made
