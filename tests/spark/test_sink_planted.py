"""Bugs that must show, planted one at a time: each would append a batch twice, in part, or lose it."""

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import pytest

from latewood import LatewoodError
from latewood.spark.commits import Batch, Committer
from latewood.spark.commits_files import CommitFiles
from latewood.spark.commits_plan import Intent
from latewood.spark.staging import StagingWriter
from latewood.testing import MemFS
from tests.crash.mortal import Killed, MortalFS
from tests.spark.sink_story import QUERY, committer, logged, make_target, stage
from tests.spark.test_sink_crash import (
    begin,
    check,
    die,
    die_twice,
    operations,
    retry,
)

pytestmark = pytest.mark.slow
OTHER: Final = "5f0c2c0e-0000-4000-8000-000000000002"
Scene = Callable[[], None]


def dies_and_then_the_power_fails() -> None:
    count, _ = operations("stream")
    for number in range(count - 25, count + 1):
        fs, target, batch, files = begin()
        fs.dies_at = number
        die(fs, target, batch, files)
        retry(fs, target, batch)
        for survivor in islice(fs.survivors(40), 40):
            retry(survivor, target, batch)
            check(survivor, target, batch)


def dies_and_is_tried_again() -> None:
    count, _ = operations("stream")
    for number in range(count // 3, count, 2):
        fs, target, batch, files = begin()
        fs.dies_at = number
        die(fs, target, batch, files)
        retry(fs, target, batch)
        check(fs, target, batch)


def dies_twice_beside_another_writer() -> None:
    count, _ = operations("stream")
    for number in range(count // 2, count, 7):
        for later in range(30, count, 5):
            die_twice(number, later)


def fails_and_is_aborted() -> None:
    count, _ = operations("stream")
    for number in range(count // 2, count, 2):
        fs, target, batch, files = begin()
        fs.fails_at, fs.failure = number, LatewoodError("EIO")
        with suppress(LatewoodError):
            committer(fs, target).commit(batch, files)
            continue
        committer(fs, target).abort(batch, files)
        retry(fs, target, batch)
        check(fs, target, batch)


def power_fails_as_it_begins() -> None:
    fs, target, batch, files = begin()
    for _, survivor in fs.cuts_during(lambda disk: committer(disk, target).commit(batch, files), limit=6):
        retry(survivor, target, batch)
        check(survivor, target, batch)


def writes_the_same_as_another_query() -> None:
    """One query dies after some of its records; another appends the very same ones; then the first goes on."""
    steps = [0]

    def trap(step: str) -> None:
        steps[0] += step == "appended"
        if steps[0] == 2:
            raise Killed

    fs = MemFS()
    target = make_target(fs, shards=1)
    rows = [[(0, b"same")]] * 4
    first, second = Batch(QUERY, "stream", 0), Batch(OTHER, "stream", 0)
    files = stage(fs, target, first, rows)
    with pytest.raises(Killed):
        committer(fs, target, hook=trap).commit(first, files)
    committer(fs, target).commit(second, stage(fs, target, second, rows))
    committer(fs, target).commit(first, stage(fs, target, first, rows))
    assert logged(fs, target) == [[b"same"] * 8]


SCENES: Final[tuple[Scene, ...]] = (
    dies_and_then_the_power_fails,
    dies_and_is_tried_again,
    fails_and_is_aborted,
    power_fails_as_it_begins,
    writes_the_same_as_another_query,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_without_a_bug_nothing_shows(scene: Scene) -> None:
    scene()


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def abort_all(self: Committer, batch: Batch, staged: Any) -> None:
    del batch
    self._files.remove_staged([file.name for file in staged])


def unsynced(self: StagingWriter) -> Any:
    file, self._file = self._file, _Unsynced(self._file)
    try:
        return STAGING_FINISH(self)
    finally:
        self._file = file


STAGING_FINISH: Final = StagingWriter.finish


class _Unsynced:
    def __init__(self, file: Any) -> None:
        self._file = file

    def sync(self) -> None:
        """Forget to."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize(
    ("owner", "name", "bug", "scene"),
    [
        (CommitFiles, "sync_records", nothing, dies_and_then_the_power_fails),
        (CommitFiles, "store_intent", nothing, dies_and_is_tried_again),
        (Committer, "_finish_interrupted", lambda _self, _query: False, dies_and_is_tried_again),
        (Committer, "_done", lambda *_: 0, dies_and_is_tried_again),
        (Committer, "abort", abort_all, fails_and_is_aborted),
        (Committer, "_settle_other", nothing, writes_the_same_as_another_query),
        (StagingWriter, "finish", unsynced, power_fails_as_it_begins),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_bug_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, bug: Callable[..., Any], scene: Scene
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, LatewoodError)):
        scene()


def test_a_retry_that_does_not_say_anew_where_it_begins_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(self: Committer, intent: Intent, logs: Any) -> Intent:
        """Count what is there, but leave the stored intent as it was."""
        found = SETTLE_ALL(self, intent, logs)
        if any(progress.start is not None for progress in intent.shards.values()):
            monkeypatch.setattr(CommitFiles, "store_intent", nothing)
        return found

    def bury(fs: MortalFS) -> None:
        monkeypatch.setattr(CommitFiles, "store_intent", STORE_INTENT)
        BURY(fs)

    monkeypatch.setattr(Committer, "_settle_all", stale)
    monkeypatch.setattr(MortalFS, "bury", bury)
    with pytest.raises(AssertionError):
        dies_twice_beside_another_writer()


SETTLE_ALL: Final = Committer._settle_all
STORE_INTENT: Final = CommitFiles.store_intent
BURY: Final = MortalFS.bury
