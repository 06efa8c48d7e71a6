"""A worker is killed before each step of each of a store's jobs, and another one goes on.

The job runs once, and at each of its steps the disk and the archive are copied as they are: that is what a process that
is killed there leaves.  Each copy is opened, recovered, and the job run to its end: no record is lost, none is there
twice, no range is missing, and no file or object is left that nobody claims.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from latewood.archive.directory import DirectoryTier
from latewood.archive.identity import IDENTITY_STEPS
from latewood.archive.keys import KeyRing
from latewood.archive.sink import FILE_STEPS
from latewood.archive.transfer import UPLOAD_STEPS
from latewood.catalog.tables import ChunkKey, Completed, Component, JobKind, LocalAndRemote
from latewood.fs import PosixFS
from latewood.jobs import WorkerPool
from latewood.jobs.handlers import Handlers, archive, compact, hydrate, rekey, repair
from latewood.jobs.handlers import store as store_module
from latewood.jobs.handlers.chunks import live_rows
from latewood.jobs.handlers.report import load_report
from latewood.jobs.handlers.staging import STAGED_STEPS
from latewood.jobs.handlers.store import STEPS, store_handlers
from tests.runtime.disk import quick_disk
from tests.runtime.pond import KINDS, NAME, REMOTE, Kept, Pond

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


def prepare_rekey(pond: Pond) -> None:
    """Some chunks are archived, some are only local, and another key is to be used from now on."""
    prepare_evict(pond)
    pond.fill(30)
    pond.run("flush")
    pond.store.set_key(NAME, "new")


def prepare_present(pond: Pond) -> None:
    """A whole file and a damaged one have the names of chunks that are to be brought back."""
    prepare_hydrate(pond)
    whole, damaged, *_ = pond.live()
    for record, cut in ((whole, 0), (damaged, 1)):
        data = pond.tier.get(pond.site.object_key(record), 0, record.size_bytes)
        (pond.db_dir / "chunks" / record.file_name).write_bytes(data[cut:])


def prepare_bad_object(pond: Pond) -> None:
    prepare_evict(pond)
    path = pond.home / REMOTE / pond.site.object_key(pond.live()[0])
    path.write_bytes(path.read_bytes()[:-1])


def prepare_other_object(pond: Pond) -> None:
    """Other bytes, as many, took the place of an object."""
    prepare_evict(pond)
    path = pond.home / REMOTE / pond.site.object_key(pond.live()[0])
    path.write_bytes(path.read_bytes()[::-1])


def prepare_bad_file(pond: Pond) -> None:
    prepare_evict(pond)
    break_file(pond)


def prepare_bad_chunk(pond: Pond) -> None:
    """A file is damaged, and only the log has its records."""
    pond.fill(60)
    pond.run("flush")
    break_file(pond)


def prepare_doubt(pond: Pond) -> None:
    """A row does not vouch for an object that is whole: a scrub met a tier that was not well."""
    prepare_evict(pond)
    row = live_rows(pond.rows())[0]
    assert isinstance(row.record.residency, LocalAndRemote)
    residency = replace(row.record.residency, verified=False)
    txn = pond.store.catalog.begin_write()
    txn.upsert_chunk(ChunkKey(pond.db.db_id, row.chunk_id), replace(row.record, residency=residency))
    txn.bump_generation(Component.CHUNKS)
    txn.commit()


def break_file(pond: Pond) -> None:
    path = pond.site.chunk_path(pond.live()[0])
    path.write_bytes(path.read_bytes()[:-1])


MADE: Final = set(FILE_STEPS)
BEGUN: Final = set(IDENTITY_STEPS)
UPLOADED: Final = {*UPLOAD_STEPS, "commit archived"}
REMOVED: Final = {"remove file", "sync directory"}
LET_GO: Final = {"move reader", "clean log"}
OLD: Final = {"retention_max_age_ms": 50_000}
KEYS: Final = KeyRing({"new": bytes(range(32)), "old": bytes(range(100, 132))}, "old")


class Scene(NamedTuple):
    """A job, what was before it, and the steps that it must come to: each of them is cut."""

    kind: str
    prepare: Prepare
    steps: AbstractSet[str]
    meets_at: str | None = None
    """Before this step another job, which lets go of all that is old, comes in between."""
    is_damaged: bool = False
    """What is there can be read only in the end."""
    options: Mapping[str, Any] = {}
    keys: KeyRing | None = None
    follows: AbstractSet[str] = frozenset()
    """Steps of the job that this one brings about."""


SCENES: Final = {
    "flush": Scene("flush", prepare_flush, {"seal", *MADE, "commit chunk"}),
    "checkpoint": Scene("checkpoint", prepare_checkpoint, {*LET_GO, "note checkpoint"}),
    "compact": Scene("compact", prepare_compact, {*MADE, "commit compaction"}),
    "compact what retention takes": Scene(
        "compact", prepare_compact, {*MADE, "drop compaction"}, "durable", options=OLD
    ),
    "archive": Scene("archive", prepare_compact, {*BEGUN, *UPLOADED}),
    "archive what retention takes": Scene(
        "archive", prepare_compact, {*BEGUN, *UPLOAD_STEPS, "remove object"}, "checked", options=OLD
    ),
    "evict": Scene("evict", prepare_evict, {"confirmed", "commit evicted", *REMOVED}),
    "evict what was replaced": Scene(
        "evict",
        prepare_other_object,
        {"confirmed", "commit evicted", *REMOVED},
        is_damaged=True,
        follows={*UPLOADED, "commit doubt", "remove object"},
    ),
    "hydrate": Scene("hydrate", prepare_hydrate, {"downloaded", *MADE, "commit hydrated"}),
    "hydrate over files": Scene(
        "hydrate",
        prepare_present,
        {"downloaded", *MADE, "commit hydrated", "present", "replace file", "sync directory"},
    ),
    "hydrate what retention takes": Scene(
        "hydrate", prepare_hydrate, {"downloaded", *MADE, *REMOVED}, "downloaded", options=OLD
    ),
    "retain": Scene(
        "retain",
        prepare_retain,
        {"commit expired", "commit purging", "remove object", *REMOVED, "commit purged", *LET_GO},
        options=OLD,
    ),
    "verify": Scene("verify", prepare_evict, {"write report"}),
    "verify a bad object": Scene(
        "verify",
        prepare_bad_object,
        {"write report", "commit doubt"},
        is_damaged=True,
        follows={*UPLOADED, "remove object"},
    ),
    "rekey": Scene("rekey", prepare_rekey, {*MADE, "commit rekeyed"}, options={"key_id": "old"}, keys=KEYS),
    "rekey what retention takes": Scene(
        "rekey",
        prepare_rekey,
        {*MADE, "drop rekeyed"},
        "durable",
        options={**OLD, "key_id": "old"},
        keys=KEYS,
    ),
    "mend a file": Scene("mend", prepare_bad_file, {*MADE, "replace file", "sync directory"}, is_damaged=True),
    "mend an object": Scene("mend", prepare_bad_object, {*UPLOADED, "commit doubt", "remove object"}, is_damaged=True),
    "mend a doubt": Scene("mend", prepare_doubt, {"commit proved"}),
    "mend from the log": Scene("mend", prepare_bad_chunk, {*MADE, "commit replaced"}, is_damaged=True),
    "mend what retention takes": Scene(
        "mend", prepare_bad_chunk, {*MADE, "drop replacement"}, "durable", is_damaged=True, options=OLD
    ),
}
"""Every step of every job is in one of them; a test says so."""

UNUSUAL: Final = {kind: set(STEPS[KINDS[kind]]) - SCENES[kind].steps for kind in SCENES if kind in KINDS}
"""Steps that only a meeting with another job, damage, or another engine leads to."""


class Copies:
    """Copies a pond at each step; before one of them another job comes in between, once, and runs to its end."""

    def __init__(self, home: Path, pond: Pond, meets_at: str | None = None) -> None:
        self.names: list[str] = []
        self._home, self._pond, self._meets_at = home, pond, meets_at

    def __call__(self, name: str) -> None:
        if name == self._meets_at:
            self._meets_at = None
            retain_beside(self._pond)
        copy(self._pond.home, self._home / f"{len(self.names):03}")
        self.names.append(name)


def retain_beside(pond: Pond) -> None:
    """Let go of what is too old, while another job is at work: a worker of its own runs nothing else."""
    job_id = pond.store.enqueue(JobKind.RETAIN, NAME)
    handlers = Handlers()
    everything = store_handlers(pond.store._site)
    handlers.register(JobKind.RETAIN, lambda context: everything.of(context.job)(context))
    WorkerPool(pond.store.jobs, handlers, workers=1, name="beside").run_next()
    assert isinstance(pond.store.jobs.get(job_id).state, Completed)


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.mdb-lock"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with quick_disk(tmp_path) as directory:
        yield directory


def test_every_step_of_every_job_is_in_a_scene() -> None:
    met: dict[int, set[str]] = {}
    for scene in SCENES.values():
        met.setdefault(KINDS[scene.kind], set()).update(scene.steps)
    assert met == {kind: set(steps) - set(STAGED_STEPS) for kind, steps in STEPS.items()}


@pytest.mark.parametrize("name", SCENES)
def test_a_worker_killed_before_any_step_leaves_nothing_undone(home: Path, name: str) -> None:
    scene = SCENES[name]
    assert cut_everywhere(home, scene) - {"remove orphan"} == scene.steps | scene.follows


def cut_everywhere(home: Path, scene: Scene) -> set[str]:
    """Cut a job before each of its steps, and return their names."""
    with Pond(home / "whole", keys=scene.keys) as pond:
        pond.create(**scene.options)
        scene.prepare(pond)
        if scene.meets_at is not None:
            pond.clock.advance(seconds=100)
        before = pond.clock.now_ns()
        pond.steps = copies = Copies(home, pond, scene.meets_at)
        pond.run(scene.kind)
        pond.learn_floors()
        pond.check()
        pond.check_no_orphans()
        wanted = picture(pond)
    for number, name in enumerate(copies.names):
        with Pond(home / f"{number:03}", model=pond.model, keys=scene.keys) as again:
            again.clock.set(before)
            again.learn_floors()
            if not scene.is_damaged:
                again.check()
            again.settle()
            if scene.meets_at is None:
                again.floors = pond.floors
                assert picture(again) == wanted, f"killed before step {number}, {name!r}"
            else:  # What retention would have taken in between it takes now.
                again.run("retain")
                again.learn_floors()
                assert again.floors == pond.floors, f"killed before step {number}, {name!r}"
            again.check()
            again.check_no_orphans()
            again.run("verify")
            assert not findings(again), f"killed before step {number}, {name!r}"
    return set(copies.names)


def test_an_upload_killed_within_a_put_leaves_nothing_unfinished(home: Path) -> None:
    with Pond(home / "whole") as pond:
        pond.create()
        prepare_compact(pond)
        pond.tier._hook = copies = Copies(home, pond)
        pond.run("archive")
        wanted = picture(pond)
        assert unfinished_objects(pond) == []
    assert set(copies.names) == set(FILE_STEPS)
    for number, name in enumerate(copies.names):
        with Pond(home / f"{number:03}", model=pond.model) as again:
            assert len(unfinished_objects(again)) == (2 if name in {"written", "synced"} else 1)
            again.settle()
            assert picture(again) == wanted, f"killed after {name!r}, number {number}"
            assert unfinished_objects(again) == [], f"killed after {name!r}, number {number}"
            again.check()
            again.check_no_orphans()


def unfinished_objects(pond: Pond) -> list[Path]:
    """What puts are at work on, or have left: files under other names than objects have, and their locks."""
    return [path for path in (pond.home / REMOTE).rglob("*") if path.suffix in {".tmp", ".lock"}]


def test_what_a_killed_put_left_would_be_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectoryTier, "sweep", lambda *_: ())
    with pytest.raises(AssertionError, match=r"killed after"):
        test_an_upload_killed_within_a_put_leaves_nothing_unfinished(home)


def test_what_a_killed_worker_left_would_be_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "sweep", lambda _: [])
    with pytest.raises(AssertionError, match=r"killed before step|no row claims"):
        test_a_worker_killed_before_any_step_leaves_nothing_undone(home, "flush")


@pytest.mark.parametrize(
    ("module", "forgotten", "name"),
    [
        (archive, "remove_object", "archive what retention takes"),
        (compact, "remove_temporary", "compact what retention takes"),
        (hydrate, "remove_file", "hydrate what retention takes"),
        (rekey, "remove_temporary", "rekey what retention takes"),
        (repair, "remove_temporary", "mend what retention takes"),
    ],
)
def test_what_a_meeting_left_would_be_found(
    home: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, forgotten: str, name: str
) -> None:
    monkeypatch.setattr(module, forgotten, lambda *_: None)
    with pytest.raises(AssertionError):
        cut_everywhere(home, SCENES[name])


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
