"""A store against S3 servers: workers killed at each step, and servers that fail, are slow, or are away."""

import logging
import signal
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from latewood.archive.object_store import ObjectStoreTier
from latewood.catalog.tables import JobRecord
from latewood.errors import TierUnavailable
from latewood.jobs.handlers.store import STEPS
from tests.archive.servers import ACCESS_KEY, SECRET_KEY, Server, free_ports, moto_server, weed_server
from tests.crash import store_scribe
from tests.crash.faulty_server import FaultyServer, Mood, faulty
from tests.crash.test_store_steps import UNUSUAL
from tests.jobs.kit import Killed
from tests.patience import SECONDS_MAX
from tests.runtime.disk import quick_disk
from tests.runtime.pond import KINDS, LAKE, Pond

REMOTE_KINDS: Final = ("archive", "evict", "hydrate", "retain")
AGE_MS: Final = 50_000
KILLS: Final = [
    ("flush", "written"),
    ("flush", "commit chunk"),
    ("checkpoint", "clean log"),
    ("compact", "renamed"),
    ("compact", "commit compaction"),
    ("archive", "put"),
    ("archive", "commit archived"),
    ("evict", "commit evicted"),
    ("evict", "remove file"),
    ("hydrate", "synced"),
    ("hydrate", "commit hydrated"),
    ("retain", "commit purging"),
    ("retain", "commit purged"),
]
"""A sample; a campaign takes all."""
BEFORE: Final = {
    "flush": (),
    "checkpoint": ("flush",),
    "compact": ("flush",),
    "archive": ("flush",),
    "evict": ("flush", "archive"),
    "hydrate": ("flush", "archive", "evict"),
    "retain": ("flush", "archive", "compact", "archive"),
}
"""The jobs that a job needs before it to have all its work to do."""

_processes = get_context("forkserver")
_processes.set_forkserver_preload(["latewood", "pyarrow.parquet", "tests.crash.store_scribe"])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with quick_disk(tmp_path) as directory:
        yield directory


@pytest.fixture(scope="module")
def moto() -> Iterator[Server]:
    with moto_server() as server:
        yield server


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with weed_server(tmp_path_factory.mktemp("weed")) as server:
        yield server


def every_step(kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(kind, step) for kind in kinds for step in STEPS[KINDS[kind]] if step not in UNUSUAL.get(kind, set())]


def make_ready(pond: Pond, kind: str) -> None:
    """Bring a pond, whatever it went through, to where a job of a kind has all its work to do."""
    pond.fill(12)
    if kind in {"compact", "retain"}:
        pond.run("flush")
        pond.fill(12)
    for job in BEFORE[kind]:
        pond.run(job)
    if kind == "retain":
        pond.clock.advance(seconds=100)


def check_after(pond: Pond, kind: str) -> None:
    """Look at what a killed worker left, then let another one go on."""
    check_retention(pond, kind)
    pond.check()
    pond.settle()
    check_retention(pond, kind)
    pond.check()
    pond.check_no_orphans()


def check_retention(pond: Pond, kind: str) -> None:
    """Only what is too old may be gone: by retention, or from a log that still had it, by the next checkpoint."""
    if kind in {"retain", "checkpoint"}:
        pond.learn_floors()
    newest_ns = pond.clock.now_ns() - AGE_MS * 1_000_000
    for shard, floor in pond.floors.items():
        assert all(kept.timestamp_ns < newest_ns for kept in pond.model[shard][:floor])


@pytest.mark.parametrize(("kind", "step"), every_step(REMOTE_KINDS))
def test_a_cut_before_any_step_loses_nothing(home: Path, moto: Server, kind: str, step: str) -> None:
    def steps(name: str) -> None:
        if name == step:
            raise Killed(name)

    with Pond(home, tier=moto.tier(f"{kind}-{step.replace(' ', '-')}")) as pond:
        pond.create(retention_max_age_ms=AGE_MS)
        make_ready(pond, kind)
        pond.steps = steps
        pond.enqueue(kind)
        with pytest.raises(Killed):
            pond.settle()
        pond.steps = lambda _: None
        pond.reopen()
        check_after(pond, kind)


@pytest.mark.slow
def test_a_process_killed_before_any_step_loses_nothing(home: Path, weed: Server, *, campaign: bool) -> None:
    tier = weed.tier("killed")
    with Pond(home, tier=tier) as pond:
        pond.create(retention_max_age_ms=AGE_MS)
    clock, model, floors = pond.clock, pond.model, pond.floors
    for kind, step in every_step(tuple(BEFORE)) * 3 if campaign else KILLS:
        with Pond(home, tier=tier, clock=clock, model=model) as pond:
            pond.floors = floors
            make_ready(pond, kind)
        arguments = (home, weed.endpoint, "killed", clock.now_ns(), (kind, step, 1))
        child = _processes.Process(target=store_scribe.run_until_step, args=arguments)
        child.start()
        child.join(SECONDS_MAX)
        assert child.exitcode == -signal.SIGKILL, f"{kind} was not killed before {step!r}"
        with Pond(home, tier=tier, clock=clock, model=model) as pond:
            pond.floors = floors
            check_after(pond, kind)


# -- a server in trouble ----------------------------------------------------------------------------------------


@pytest.fixture
def server(moto: Server) -> Iterator[FaultyServer]:
    with faulty(moto.endpoint, free_ports(1)[0]) as found:
        yield found


def tier_of(server: FaultyServer, prefix: str) -> ObjectStoreTier:
    one = Server(server.endpoint, None)  # type: ignore[arg-type]
    return one.tier(prefix, retries_max=1, backoff_ms=1, timeout_ms=300, connect_timeout_ms=300)


def run_all(pond: Pond) -> list[JobRecord]:
    """Run what is due now, and return what is not done."""
    pond.store.run_jobs()
    return pond.unfinished()


@pytest.fixture
def spoken(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logging.disable(logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        yield caplog


def check_silent(spoken: pytest.LogCaptureFixture, pond: Pond) -> None:
    """Nobody may read the credentials anywhere."""
    told = spoken.text + repr(list(pond.store.jobs.jobs())) + repr(pond.tier) + repr(pond.store.settings)
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in told
    files = [path for path in (pond.home / LAKE).rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET_KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize("trouble", ["ill", "slow", "forgetful", "away"])
def test_jobs_wait_for_a_server_in_trouble(
    home: Path, server: FaultyServer, spoken: pytest.LogCaptureFixture, trouble: Mood | str
) -> None:
    with Pond(home, tier=tier_of(server, f"trouble-{trouble}")) as pond:
        pond.create()
        pond.fill(30)
        pond.run("flush")
        pond.run("checkpoint")
        for kind in ("archive", "evict", "hydrate"):
            _be(server, trouble)
            pond.enqueue(kind)
            (job,) = run_all(pond)
            assert job.last_error is not None
            assert job.last_error.kind == TierUnavailable.__name__
            assert run_all(pond) == [job], "it backs off: it is not tried again at once"
            pond.append(b"more", b"key")
            if kind != "hydrate":  # What is only in the archive cannot be read while that is away.
                pond.check()
            _be(server, "well")
            pond.settle()
            assert not [one for one in pond.store.jobs.jobs() if type(one.state).__name__ != "Completed"]
            pond.check()
            pond.check_no_orphans()
        check_silent(spoken, pond)


def _be(server: FaultyServer, mood: Mood | str) -> None:
    server.stop()
    if mood != "away":
        server.mood = mood  # type: ignore[assignment]
        server.start()


def test_a_server_that_fails_now_and_then_costs_nothing(home: Path, server: FaultyServer) -> None:
    with Pond(home, tier=tier_of(server, "moody")) as pond:
        pond.create()
        server.mood = "moody"
        for _ in range(2):
            pond.fill(30)
            for kind in ("flush", "archive", "checkpoint", "evict", "compact", "archive", "retain"):
                pond.run(kind)
        pond.check()
        pond.check_no_orphans()
        assert server.requests > 20


def test_reading_what_is_archived_while_the_server_is_away_says_so(home: Path, server: FaultyServer) -> None:
    with Pond(home, tier=tier_of(server, "reading")) as pond:
        pond.create()
        pond.fill(30)
        for kind in ("flush", "archive", "checkpoint", "evict"):
            pond.run(kind)
        server.stop()
        with pytest.raises(TierUnavailable):
            list(pond.db.scan())
        server.start()
        pond.check()


def test_a_server_away_for_too_long_fails_the_job_and_loses_nothing(home: Path, server: FaultyServer) -> None:
    with Pond(home, tier=tier_of(server, "too-long")) as pond:
        pond.create()
        pond.fill(30)
        pond.run("flush")
        server.mood = "ill"
        job_id = pond.enqueue("archive")
        pond.settle()
        job = pond.store.jobs.get(job_id)
        assert (type(job.state).__name__, job.attempts) == ("FailedPermanent", 5)
        pond.check()
        server.mood = "well"
        pond.run("archive")
        pond.run("checkpoint")
        pond.run("evict")
        pond.check()
        pond.check_no_orphans()
