"""A worker is killed before each step of each of a store's jobs, and another one goes on.

The job runs once, and at each of its steps the disk and the archive are copied as they are: that is what a process that
is killed there leaves.  Each copy is opened, recovered, and the job run to its end: no record is lost, none is there
twice, no range is missing, and no file or object is left that nobody claims.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from latewood.fs import PosixFS
from latewood.jobs.handlers import store as store_module
from latewood.jobs.handlers.report import load_report
from latewood.jobs.handlers.store import STEPS
from tests.runtime.disk import quick_disk
from tests.runtime.pond import KINDS, Kept, Pond

Prepare = Callable[[Pond], None]


def prepare_flush(pond: Pond) -> None:
    pond.fill(60)


def prepare_checkpoint(pond: Pond) -> None:
    pond.fill(60)
    pond.run("flush")
    pond.fill(30)
    pond.run("flush")


def prepare_compact(pond: Pond) -> None:
    prepare_checkpoint(pond)
    pond.run("checkpoint")
    pond.fill(9)


def prepare_evict(pond: Pond) -> None:
    prepare_compact(pond)
    pond.run("archive")


def prepare_hydrate(pond: Pond) -> None:
    prepare_evict(pond)
    pond.run("evict")


def prepare_retain(pond: Pond) -> None:
    """Some chunks are replaced, some of them archived, and the rest are too old."""
    prepare_evict(pond)
    pond.run("compact")
    pond.run("archive")
    pond.clock.advance(seconds=100)
    pond.fill(30)
    pond.run("flush")
    pond.run("checkpoint")


PREPARE: Final[dict[str, Prepare]] = {
    "flush": prepare_flush,
    "checkpoint": prepare_checkpoint,
    "compact": prepare_compact,
    "archive": prepare_compact,
    "evict": prepare_evict,
    "hydrate": prepare_hydrate,
    "retain": prepare_retain,
    "verify": prepare_evict,
}
OPTIONS: Final = {"retain": {"retention_max_age_ms": 50_000}}
UNUSUAL: Final = {
    "archive": {"remove object"},
    "compact": {"drop compaction"},
    "hydrate": {"present", "remove file", "replace file", "sync directory"},
    "verify": {"commit doubt"},
}
"""Steps that only a meeting with another job, or damage, leads to."""


class Copies:
    """Copies a pond at each step."""

    def __init__(self, home: Path, pond: Pond) -> None:
        self.names: list[str] = []
        self._home, self._pond = home, pond

    def __call__(self, name: str) -> None:
        copy(self._pond.home, self._home / f"{len(self.names):03}")
        self.names.append(name)


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.mdb-lock"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with quick_disk(tmp_path) as directory:
        yield directory


@pytest.mark.parametrize("kind", PREPARE)
def test_a_worker_killed_before_any_step_leaves_nothing_undone(home: Path, kind: str) -> None:
    names = cut_everywhere(home, kind, PREPARE[kind])
    assert names == set(STEPS[KINDS[kind]]) - UNUSUAL.get(kind, set())


def test_a_worker_killed_over_files_that_are_there_leaves_nothing_undone(home: Path) -> None:
    """A whole file and a damaged one have the names of chunks that are to be brought back."""

    def prepare(pond: Pond) -> None:
        prepare_hydrate(pond)
        whole, damaged, *_ = pond.live()
        for record, cut in ((whole, 0), (damaged, 1)):
            data = pond.tier.get(pond.store.site_of(pond.db.db_id).object_key(record), 0, record.size_bytes)
            (pond.db_dir / "chunks" / record.file_name).write_bytes(data[cut:])

    assert cut_everywhere(home, "hydrate", prepare) >= {"present", "replace file", "downloaded"}


def cut_everywhere(home: Path, kind: str, prepare: Prepare) -> set[str]:
    """Cut a job before each of its steps, and return their names."""
    with Pond(home / "whole") as pond:
        pond.create(**OPTIONS.get(kind, {}))
        prepare(pond)
        before = pond.clock.now_ns()
        pond.steps = copies = Copies(home, pond)
        pond.run(kind)
        pond.learn_floors()
        pond.check()
        pond.check_no_orphans()
        wanted = picture(pond)
    for number, name in enumerate(copies.names):
        with Pond(home / f"{number:03}", model=pond.model) as again:
            again.clock.set(before)
            again.learn_floors()
            again.check()
            again.settle()
            again.floors = pond.floors
            assert picture(again) == wanted, f"killed before step {number}, {name!r}"
            again.check()
            again.check_no_orphans()
            again.run("verify")
            assert not findings(again), f"killed before step {number}, {name!r}"
    return set(copies.names)


def test_what_a_killed_worker_left_would_be_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "sweep", lambda _: [])
    with pytest.raises(AssertionError, match=r"killed before step|no row claims"):
        test_a_worker_killed_before_any_step_leaves_nothing_undone(home, "flush")


def test_a_worker_killed_again_and_again_comes_to_an_end(home: Path) -> None:
    """Each attempt is cut one step later than the one before, and what is left of it is what the next one finds."""
    homes = [home / "0"]
    with Pond(homes[0]) as pond:
        pond.create()
        prepare_flush(pond)
        model = pond.model
    for kind in ("flush", "checkpoint", "compact", "archive", "evict", "hydrate"):
        for cut_at in range(40):
            homes.append(home / str(len(homes)))
            if not cut(homes[-2], homes[-1], model, kind, cut_at):
                break
        else:
            raise AssertionError(f"{kind} has more steps than that")
    with Pond(homes[-1], model=model) as pond:
        pond.run("retain")
        pond.check()
        pond.check_no_orphans()


def cut(home: Path, target: Path, model: dict[int, list[Kept]], kind: str, cut_at: int) -> bool:
    """Begin a job, and copy what is there before its step `cut_at`; return whether it came so far."""
    seen: list[str] = []

    def steps(name: str) -> None:
        if len(seen) == cut_at:
            copy(home, target)
        seen.append(name)

    with Pond(home, model=model, steps=steps) as pond:
        pond.enqueue(kind)
        pond.settle()
        pond.check()
    if len(seen) <= cut_at:
        copy(home, target)
    return len(seen) > cut_at


def picture(pond: Pond) -> object:
    """What a job is meant to bring about, whatever names its files got."""
    rows = [
        (record.shard, record.sequence_min, record.sequence_max, type(record.residency).__name__, record.purging)
        for _, record in pond.rows()
    ]
    logs = [shard.log_first_sequence for shard in pond.db.stats()]
    return sorted(rows), logs, len(pond.files()), len(pond.keys_in_tier())


def findings(pond: Pond) -> list[object]:
    site = pond.store.site_of(pond.db.db_id)
    return list(load_report(PosixFS(), site.report_dir).findings)
