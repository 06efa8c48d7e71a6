"""Everything at once: one appends, others move the records from tier to tier, and all the while they are read.

Each read must begin at the first record and hold every one up to an end that is no earlier than it was before the read:
no gap, no duplicate, nothing in a place where it was not written.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from latewood.errors import UniqueJobAlreadyPending
from latewood.jobs import Backoff, JobOptions
from latewood.runtime import Database, Store
from tests.patience import SECONDS_MAX, wait_until
from tests.runtime import watcher
from tests.runtime.pond import KINDS, LAKE, NAME, REMOTE, USUAL, directory_tier
from tests.runtime.watcher import KEYS, check_columns, check_scan, check_table, payload_of

SHARDS: Final = 2
BATCH: Final = 40
SECONDS: Final = 4
SECONDS_CAMPAIGN: Final = 300
_JOBS: Final = JobOptions(poll_ms=20, backoff=Backoff(first_ms=1, max_ms=5))
_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.runtime.watcher"])


class Crowd:
    """Threads that do something again and again until they are told to end, or one of them meets an error."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.rounds: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def add(self, name: str, act: Callable[[], object], pause_s: float = 0) -> None:
        self._threads.append(threading.Thread(target=self._repeat, args=(name, act, pause_s), name=name))

    def run(self, seconds: float) -> None:
        for thread in self._threads:
            thread.start()
        self.over.wait(seconds)
        self.over.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        if self.errors:
            raise self.errors[0]
        assert not any(thread.is_alive() for thread in self._threads)

    def _repeat(self, name: str, act: Callable[[], object], pause_s: float) -> None:
        try:
            while not self.over.is_set():
                act()
                self.rounds[name] += 1
                self.over.wait(pause_s)
        except BaseException as error:  # noqa: BLE001 - the top of a thread: told to the test
            self.errors.append(error)
            self.over.set()


def appender(db: Database) -> Callable[[], None]:
    """Appends to one shard after the other, as records without a key go, each saying where it should be."""
    ends = [0] * SHARDS
    turns = cycle(range(SHARDS))

    def append() -> None:
        shard = next(turns)
        placed = db.append_many([payload_of(shard, ends[shard] + number) for number in range(BATCH)])
        assert placed == {shard: range(ends[shard], ends[shard] + BATCH)}
        ends[shard] += BATCH

    return append


def in_turns(act: Callable[[int], object]) -> Callable[[], object]:
    """Does the same to one shard after the other."""
    turns = cycle(range(SHARDS))
    return lambda: act(next(turns))


def enqueuer(store: Store, kind: str) -> Callable[[], None]:
    def enqueue() -> None:
        with suppress(UniqueJobAlreadyPending):
            store.enqueue(KINDS[kind], NAME, **USUAL.get(kind, {}))

    return enqueue


def follower(db: Database) -> Callable[[], None]:
    """One reader that is never closed, and commits."""
    reader = db.reader("follower")
    positions = reader.positions

    def follow() -> None:
        for record in reader.poll(1_000, timeout=0.01):
            assert record.sequence == positions[record.shard]
            assert record.payload == payload_of(record.shard, record.sequence)
            positions[record.shard] += 1
        reader.commit()

    return follow


def by_time(db: Database) -> Callable[[], None]:
    """Begins at times that have just passed."""
    chosen: list[datetime] = []
    marks: dict[datetime, int] = {}

    def read() -> None:
        for moment in chosen[-3:]:
            found = [record.sequence for record in db.scan(moment, shard=0)]
            if found:
                assert found == list(range(found[0], found[0] + len(found)))
                assert found[0] <= marks[moment] + BATCH, "a batch may get its time a moment before it can be seen"
        now = datetime.now(UTC)
        marks[now] = db.shards[0].end()
        chosen.append(now)

    return read


@pytest.fixture
def lake(home: Path) -> Iterator[Store]:
    with Store.open(home / LAKE, tier=directory_tier(home / REMOTE), keys=KEYS, job_options=_JOBS) as store:
        store.create_database(NAME, shards=SHARDS, segment_bytes_max=1 << 15, grace_ms=0, chunk_bytes=1 << 18)
        yield store


@pytest.mark.slow
def test_every_read_is_whole_while_everything_moves(home: Path, lake: Store, *, campaign: bool) -> None:
    db, crowd = lake.database(NAME), Crowd()
    crowd.add("append", appender(db), 0.002)
    for kind in KINDS:
        if kind != "verify":
            crowd.add(kind, enqueuer(lake, kind), 0.03)
    keys = cycle([*KEYS.ids, None])
    crowd.add("key", lambda: lake.set_key(NAME, next(keys)), 0.3)
    crowd.add("roll", lambda: [shard.log.roll() for shard in db.shards], 0.05)
    crowd.add("scan", in_turns(lambda shard: check_scan(db, shard)))
    crowd.add("table", in_turns(lambda shard: check_table(db, shard)))
    crowd.add("columns", lambda: check_columns(db))
    crowd.add("follow", follower(db))
    crowd.add("time", by_time(db))
    lake.start_workers(2)
    with watched(home):
        crowd.run(SECONDS_CAMPAIGN if campaign else SECONDS)
    assert all(crowd.rounds[name] for name in ("append", "scan", "table", "columns", "follow", "time")), crowd.rounds
    wait_until(lambda: all(job.is_finished for job in lake.jobs.jobs()))
    check_jobs(lake)
    check_columns(db)


@contextmanager
def watched(home: Path) -> Iterator[None]:
    """Have another process read the store meanwhile; it must have found nothing wrong."""
    ours, theirs = _processes.Pipe()
    other = _processes.Process(target=watcher.watch, args=(home, theirs), daemon=True)
    other.start()
    try:
        yield
        ours.send("end")
        wait_until(ours.poll)
        rounds = ours.recv()
        assert isinstance(rounds, int), rounds
        assert rounds > 0
    finally:
        other.kill()
        other.join(SECONDS_MAX)


def check_jobs(store: Store) -> None:
    """Jobs meet each other, and try again; but each kind was done, and none failed for good."""
    jobs = list(store.jobs.jobs())
    failed = [job for job in jobs if type(job.state).__name__ == "FailedPermanent"]
    assert not failed, [(job.kind, job.last_error) for job in failed[:3]]
    done = {job.kind for job in jobs if type(job.state).__name__ == "Completed"}
    assert {KINDS[kind] for kind in KINDS if kind != "verify"} <= done
