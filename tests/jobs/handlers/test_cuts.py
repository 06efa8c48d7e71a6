"""Every job, killed before every one of its steps and finished by another process, ends in the same state.

At every step the live chunks of each shard are contiguous, where their rows say they are, and hold what was appended;
in the end no orphan is left, and running the job once more changes nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from latewood.archive.options import ChunkOptions
from latewood.catalog.tables import JobKind
from latewood.jobs.handlers.hydrate import HYDRATE
from latewood.jobs.handlers.repair import MEND
from latewood.jobs.handlers.retain import RETAIN
from latewood.jobs.handlers.store import STEPS
from tests.jobs.handlers.damage import break_file, break_object
from tests.jobs.handlers.lake import Lake, prove

DAY_MS = 24 * 3600 * 1000
FLUSHED = {"written", "synced", "renamed", "durable"}


def appended(lake: Lake) -> None:
    lake.append(40)


def flushed(lake: Lake) -> None:
    lake.flush(20, 21)


def archived(lake: Lake) -> None:
    flushed(lake)
    lake.run(JobKind.ARCHIVE)


def evicted(lake: Lake) -> None:
    archived(lake)
    lake.run(JobKind.EVICT, {"now": True})


def compacted(lake: Lake) -> None:
    archived(lake)
    lake.run(JobKind.COMPACT, {"grace_ms": 1000})
    lake.run(JobKind.ARCHIVE)
    lake.clock.advance(ms=1001)


def expiring(lake: Lake) -> None:
    """The first two chunks of each shard are old; the last is not.  The grace of what goes is over at once."""
    lake.flush(20, 21)
    lake.run(JobKind.ARCHIVE)
    lake.clock.advance(ms=DAY_MS)
    lake.flush(22)
    lake.keep(max_age_ms=DAY_MS // 2)


def with_bad_files(lake: Lake) -> None:
    archived(lake)
    for row in lake.live(0):
        break_file(lake, row)


def with_bad_objects(lake: Lake) -> None:
    archived(lake)
    for row in lake.live(0):
        break_object(lake, row)


def with_bad_chunks(lake: Lake) -> None:
    flushed(lake)
    for row in lake.live(0):
        break_file(lake, row)


class Case(NamedTuple):
    """A job, what was before it, and the steps that it must come to."""

    prepare: Callable[[Lake], None]
    kind: int
    payload: dict[str, Any]
    steps: set[str]
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


BEGUN = {"mark archive", "note archive"}
UPLOADED = {"checked", "put", "verified", "commit archived"}
REMOVED = {"remove file", "sync directory"}
LET_GO = {"move reader", "clean log"}
CASES = {
    "flush": Case(appended, JobKind.FLUSH, {"seal": True}, {"seal", *FLUSHED, "commit chunk"}),
    "flush of several chunks": Case(
        appended,
        JobKind.FLUSH,
        {"seal": True},
        {"seal", *FLUSHED, "commit chunk"},
        {"chunk_options": ChunkOptions(chunk_bytes=2000, row_group_rows=8)},
    ),
    "flush, encrypted": Case(appended, JobKind.FLUSH, {}, {*FLUSHED, "commit chunk"}, {"has_keys": True}),
    "checkpoint": Case(flushed, JobKind.CHECKPOINT, {}, {*LET_GO, "note checkpoint"}),
    "compact": Case(flushed, JobKind.COMPACT, {}, {*FLUSHED, "commit compaction"}),
    "compact of archived chunks": Case(archived, JobKind.COMPACT, {}, {*FLUSHED, "commit compaction"}),
    "compact of evicted chunks": Case(evicted, JobKind.COMPACT, {}, {*FLUSHED, "commit compaction"}),
    "archive": Case(flushed, JobKind.ARCHIVE, {}, {*BEGUN, *UPLOADED}),
    "archive to a directory": Case(flushed, JobKind.ARCHIVE, {}, {*BEGUN, *UPLOADED}, {"tier": "directory"}),
    "evict": Case(archived, JobKind.EVICT, {"now": True}, {"confirmed", "commit evicted", *REMOVED}),
    "hydrate": Case(evicted, HYDRATE, {}, {"downloaded", *FLUSHED, "commit hydrated"}),
    "hydrate from a directory": Case(
        evicted, HYDRATE, {}, {"downloaded", *FLUSHED, "commit hydrated"}, {"tier": "directory"}
    ),
    "retain after a compaction": Case(
        compacted, RETAIN, {}, {"commit purging", "remove object", *REMOVED, "commit purged", *LET_GO}
    ),
    "retain by age": Case(
        expiring, RETAIN, {"grace_ms": 0}, {"commit expired", "remove object", *REMOVED, "commit purged", *LET_GO}
    ),
    "verify": Case(archived, JobKind.VERIFY, {}, {"write report"}),
    "mend files from objects": Case(
        with_bad_files, MEND, {}, {*FLUSHED, "replace file", "sync directory"}, {"is_damaged": True}
    ),
    "mend objects from files": Case(with_bad_objects, MEND, {}, {"commit doubt", "remove object", *UPLOADED}),
    "mend chunks from the log": Case(with_bad_chunks, MEND, {}, {*FLUSHED, "commit replaced"}, {"is_damaged": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_job_killed_at_any_step_ends_in_the_same_state(tmp_path: Path, case: Case) -> None:
    steps = prove(tmp_path, case.prepare, case.kind, case.payload, **case.options)
    assert set(steps) == case.steps
    assert case.steps <= {*STEPS[case.kind], "remove orphan"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flush", "compact", "hydrate", "mend files from objects"])
def test_a_job_killed_a_second_time_while_orphans_go_ends_in_the_same_state(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    is_damaged = "is_damaged" in case.options
    steps = prove(tmp_path, case.prepare, case.kind, case.payload, is_damaged=is_damaged, second_cut="remove orphan")
    assert set(steps) == case.steps
