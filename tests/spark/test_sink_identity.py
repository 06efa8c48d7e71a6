"""What a sink remembers is about one log: made anew, it has no record of what was committed.  Without Spark."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import pytest

import latewood
from latewood.errors import AnotherLog, ClosedError, CorruptError, DirectoryReplaced, Owned, Poisoned
from latewood.format.identity import Life, LogIdentity, Owner
from latewood.fs import FileSystem, PosixFS
from latewood.queue import open_queue
from latewood.runtime import Store
from latewood.spark import commits_plan as plan
from latewood.spark.commits import Batch
from latewood.spark.commits_files import CommitFiles
from latewood.spark.commits_plan import CommitRecord, Completion, LogEnd, LogNow, Progress
from latewood.spark.sink import Sink
from latewood.spark.staging import StagedFile
from latewood.spark.writing_columns import Columns
from latewood.spark.writing_options import parse_write_options
from latewood.spark.writing_target import Target, find_target
from latewood.testing import FakeClock, MemFS
from tests.crash.mortal import Killed, MortalFS
from tests.spark.sink_story import QUERY, ROLLING, committer, expected, logged, make_target, rows_of, stage

OTHER: Final = "5f0c2c0e-0000-4000-8000-000000000002"
BATCH: Final = Batch(QUERY, "stream", 1)
FIRST: Final = rows_of("first")
SECOND: Final = rows_of("second")
CUTS: Final = ("intended", "appended", "flushed", "closed")


class Cut(Exception):
    """The process ends here."""


def remake(fs: FileSystem, target: Target, *shards: int) -> None:
    """Delete logs, and make them anew; what the sink keeps lies elsewhere, and stays."""
    for shard in shards:
        fs.remove_tree(target.logs[shard])
        open_queue(target.logs[shard], ROLLING, fs=fs, clock=FakeClock(), background=False).close()


def keep(fs: FileSystem, root: Path) -> dict[Path, bytes]:
    """Return a copy of a log."""
    found = {}
    for path in fs.walk(root):
        file = fs.open(path)
        found[path] = file.pread(file.size(), 0)
        file.close()
    return found


def restore(fs: FileSystem, root: Path, copy: dict[Path, bytes]) -> None:
    """Put a copy of a log in its place."""
    fs.remove_tree(root)
    for path, raw in copy.items():
        fs.make_directory(path.parent)
        file = fs.open(path, create=True)
        file.pwrite(raw, 0)
        file.close()


def cut(fs: FileSystem, target: Target, batch: Batch, files: list[StagedFile], at: str, times: int = 1) -> None:
    """Commit, and end with the n-th step of this name."""
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += name == at
        if seen == times:
            raise Cut

    with pytest.raises(Cut):
        committer(fs, target, hook=step).commit(batch, files)


def retry(fs: FileSystem, target: Target, batch: Batch = BATCH) -> bool:
    """Commit as Spark does when it repeats a batch: its tasks have made other records."""
    return committer(fs, target).commit(batch, stage(fs, target, batch, SECOND))


def whole(tasks: list[list[tuple[int, bytes]]]) -> list[list[bytes]]:
    return [expected(tasks, shard) for shard in range(2)]


# -- a directory that is replaced while a batch is committed ----------------------------------------------------------


@pytest.mark.parametrize("at", ["locked", "opened", "intended", "appended", "flushed", "closed", "completed"])
@pytest.mark.parametrize("is_database", [True, False])
def test_a_commit_into_a_directory_that_is_replaced_meanwhile_is_not_acknowledged(
    tmp_path: Path, at: str, *, is_database: bool
) -> None:
    fs, shards, root = PosixFS(), 2 if is_database else 1, tmp_path / "target"
    target = make_target(fs, shards, root)
    if not is_database:
        shutil.copytree(target.logs[0], root, dirs_exist_ok=True)
        target = replace(target, logs=(root,))
    copy = tmp_path / "copy"

    def state() -> dict[Path, bytes]:
        return keep(fs, root)

    def swap(step: str) -> None:
        if step == at and not copy.exists():
            shutil.copytree(root, copy)
            root.rename(tmp_path / "elsewhere")
            shutil.copytree(copy, root)
            found.append(state())

    found: list[dict[Path, bytes]] = []
    files = stage(fs, target, BATCH, rows_of("first", shards=shards))
    with pytest.raises(DirectoryReplaced):
        committer(fs, target, hook=swap).commit(BATCH, files)
    assert [state()] == found


# -- a batch that was committed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stream", "txn"])
def test_a_batch_that_is_in_a_log_which_is_gone_is_appended_to_the_new_one(kind: plan.Kind) -> None:
    fs, batch = MemFS(), Batch(QUERY, kind, 0)
    target = make_target(fs)
    committer(fs, target).commit(batch, stage(fs, target, batch, FIRST))
    remake(fs, target, 0, 1)
    for _ in range(2):
        retry(fs, target, batch)
        assert logged(fs, target) == whole(SECOND)


def test_a_batch_that_is_in_one_of_the_logs_still_is_neither_skipped_nor_appended_twice() -> None:
    fs = MemFS()
    target = make_target(fs)
    committer(fs, target).commit(BATCH, stage(fs, target, BATCH, FIRST))
    remake(fs, target, 1)
    record = target.state / "commits" / f"{QUERY}.json"
    with pytest.raises(AnotherLog, match=f"then remove {record}: the next commit appends the batch"):
        retry(fs, target)
    assert logged(fs, target) == [expected(FIRST, 0), []]
    fs.remove(record)
    retry(fs, target)
    assert logged(fs, target) == [expected(FIRST, 0) + expected(SECOND, 0), expected(SECOND, 1)]


def test_a_batch_that_an_older_copy_of_the_log_does_not_have_is_not_skipped() -> None:
    fs = MemFS()
    target = make_target(fs)
    copy = keep(fs, target.logs[1])
    committer(fs, target).commit(BATCH, stage(fs, target, BATCH, FIRST))
    restore(fs, target.logs[1], copy)
    with pytest.raises(AnotherLog, match="restored from an older copy"):
        retry(fs, target)
    assert logged(fs, target) == [expected(FIRST, 0), []]


def test_a_query_goes_on_in_a_log_that_was_made_anew() -> None:
    fs = MemFS()
    target = make_target(fs)
    for number, rows in ((0, FIRST), (1, SECOND)):
        batch = Batch(QUERY, "stream", number)
        committer(fs, target).commit(batch, stage(fs, target, batch, rows))
        if number == 0:
            remake(fs, target, 0, 1)
    assert logged(fs, target) == whole(SECOND)
    assert not retry(fs, target)
    record = CommitFiles(fs, target.state).record(QUERY)
    assert record is not None
    assert [done.batch for done in record.completions] == [1], "batch 0 is not in this log"


def test_a_batch_that_retention_has_taken_is_skipped() -> None:
    fs = MemFS()
    target = make_target(fs, shards=1)
    rows = [[row for row in task if row[0] == 0] for task in FIRST]
    committer(fs, target).commit(BATCH, stage(fs, target, BATCH, rows))
    with open_queue(target.logs[0], ROLLING, fs=fs, clock=FakeClock(), background=False) as log:
        log.append_many([b"more"] * 100)
        log.reader("all", start="latest").close()
        log.cleanup()
        assert log.first_sequence > 12
    assert not committer(fs, target).commit(BATCH, stage(fs, target, BATCH, rows))


# -- a commit that was interrupted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [(0,), (1,), (0, 1)], ids=["first", "second", "both"])
@pytest.mark.parametrize("at", CUTS)
def test_an_interrupted_batch_is_whole_in_logs_that_were_made_anew(at: str, shards: tuple[int, ...]) -> None:
    fs = MemFS()
    target = make_target(fs)
    cut(fs, target, BATCH, stage(fs, target, BATCH, FIRST), at)
    remake(fs, target, *shards)
    retry(fs, target)
    assert logged(fs, target) == whole(FIRST)
    retry(fs, target)
    assert logged(fs, target) == whole(FIRST)


def test_what_another_query_has_counted_is_not_taken_for_what_is_in_a_new_log() -> None:
    fs = MemFS()
    target = make_target(fs)
    cut(fs, target, BATCH, stage(fs, target, BATCH, FIRST), "flushed")
    other = Batch(OTHER, "stream", 0)
    committer(fs, target).commit(other, stage(fs, target, other, rows_of("other")))
    remake(fs, target, 0, 1)
    retry(fs, target)
    assert logged(fs, target) == whole(FIRST)


def test_another_query_counts_nothing_in_a_new_log() -> None:
    fs = MemFS()
    target = make_target(fs)
    cut(fs, target, BATCH, stage(fs, target, BATCH, FIRST), "flushed")
    remake(fs, target, 0, 1)
    other = Batch(OTHER, "stream", 0)
    committer(fs, target).commit(other, stage(fs, target, other, FIRST))
    retry(fs, target)
    assert logged(fs, target) == [records + records for records in whole(FIRST)]


def test_what_was_counted_in_a_log_that_went_back_since_is_refused() -> None:
    fs = MemFS()
    target = make_target(fs)
    copy = keep(fs, target.logs[0])
    cut(fs, target, BATCH, stage(fs, target, BATCH, FIRST), "flushed")
    other = Batch(OTHER, "stream", 0)
    committer(fs, target).commit(other, stage(fs, target, other, rows_of("other")))
    restore(fs, target.logs[0], copy)
    with pytest.raises(AnotherLog, match="nobody can tell how much of it is in the log"):
        retry(fs, target)
    with pytest.raises(CorruptError):
        retry(fs, target)
    assert logged(fs, target)[0] == []


def test_whatever_is_cut_after_a_log_was_made_anew_the_batch_is_in_it_once() -> None:
    """The old completion and the old intent are still there, if the first commit was cut before it removed them."""
    for first in ("completed", "removed"):
        count = 0
        while True:
            fs = MortalFS()
            target = make_target(fs)
            cut(fs, target, BATCH, stage(fs, target, BATCH, FIRST), first)
            remake(fs, target, 0, 1)
            files = stage(fs, target, BATCH, SECOND)
            fs.operations, fs.dies_at = 0, (count := count + 3)
            with suppress(Killed, Poisoned):
                committer(fs, target).commit(BATCH, files)
            died = fs.dead
            fs.bury()
            fs.dies_at = None
            retry(fs, target)
            found = logged(fs, target)
            assert found in (whole(SECOND), whole(FIRST)), (first, count)
            retry(fs, target)
            assert logged(fs, target) == found
            if not died:
                break
        assert count > 60


# -- a target that is gone ------------------------------------------------------------------------------------------


def database(lake: Path) -> Target:
    with Store.open(lake) as store:
        store.create_database("clicks", keyed=False, shards=2)
    return find_target(PosixFS(), str(lake / "clicks"))


def test_a_query_does_not_write_into_a_database_that_was_dropped_since_it_began(tmp_path: Path) -> None:
    fs, target = PosixFS(), database(tmp_path / "lake")
    first = Batch(QUERY, "stream", 0)
    committer(fs, target).commit(first, stage(fs, target, first, FIRST))
    with Store.open(tmp_path / "lake") as store:
        store.drop("clicks")
    files = stage(fs, target, BATCH, SECOND)
    for remade in (False, True):
        if remade:
            database(tmp_path / "lake")
        with pytest.raises(ClosedError, match="takes no more records"):
            committer(fs, target).commit(BATCH, files)
    assert logged(fs, target) == whole(FIRST)
    with Store.open(tmp_path / "lake") as store:
        assert store.purge() == ["clicks"]
    with pytest.raises(ClosedError, match="start the query again"):
        committer(fs, target).commit(BATCH, files)
    assert not target.root.exists(), "nothing is made where it was"


def test_a_task_makes_nothing_where_its_target_was(tmp_path: Path) -> None:
    target = find_target(PosixFS(), str(tmp_path / "log"))
    sink = Sink(parse_write_options({"path": str(target.root)}, streaming=True), target, Columns(payload=0))
    shutil.rmtree(target.root)
    with pytest.raises(ClosedError, match="start the query again"):
        sink.stage(iter([]), QUERY, 0, lambda _: None)
    assert not target.root.exists()


# -- whose log it is ------------------------------------------------------------------------------------------------


def test_a_sink_appends_to_a_database_as_its_store_and_to_nothing_of_others(tmp_path: Path) -> None:
    fs, target = PosixFS(), database(tmp_path / "lake")
    committer(fs, target).commit(BATCH, stage(fs, target, BATCH, FIRST))
    assert logged(fs, target) == whole(FIRST)
    with pytest.raises(Owned, match="kept by a store"):
        latewood.open(target.logs[0])
    with Store.open(tmp_path / "lake") as store:
        store.database("clicks").append(b"by the store", durable=True)

    latewood.open(tmp_path / "partition", owner=Owner.NODE).close()
    stray = find_target(fs, str(tmp_path / "partition"))
    rows = [[row for row in task if row[0] == 0] for task in FIRST]
    with pytest.raises(Owned, match="kept by a node"):
        committer(fs, stray).commit(BATCH, stage(fs, stray, BATCH, rows))
    assert logged(fs, stray) == [[]]


# -- files ----------------------------------------------------------------------------------------------------------


def test_files_name_the_logs() -> None:
    fs = MemFS()
    target = make_target(fs)
    cut(fs, target, Batch(OTHER, "stream", 0), stage(fs, target, Batch(OTHER, "stream", 0), FIRST), "intended")
    committer(fs, target).commit(BATCH, stage(fs, target, BATCH, FIRST))
    files = CommitFiles(fs, target.state)
    record, intent = files.record(QUERY), files.intent(OTHER)
    assert record is not None
    assert intent is not None
    for shard, path in enumerate(target.logs):
        with open_queue(path, fs=fs, mode="r") as log:
            assert record.ends[shard].mark == intent.shards[shard].mark == log.mark
            assert record.ends[shard].sequence == log.next_sequence


# -- rules ----------------------------------------------------------------------------------------------------------

OURS, THEIRS = bytes(range(16)), bytes(range(16, 32))
LOG: Final = LogIdentity(OURS, Owner.ANYBODY, (Life(1, 0), Life(2, 60)))
LIFE: Final = f"{1:016x}"


def now(identity: bytes = OURS, end: int = 100) -> LogNow:
    return LogNow(LOG._replace(identity=identity), end)


@pytest.mark.parametrize(
    ("done", "start", "end", "log", "kept"),
    [
        (3, 50, 50, now(), (3, 50)),  # Before what was lost.
        (0, 70, 70, now(), (0, None)),  # All of it was lost.
        (0, 70, 70, now(THEIRS), (0, None)),
        (3, 70, 70, now(THEIRS), (0, None)),
        (3, None, 50, now(), (3, None)),
        (3, None, 50, now(THEIRS), (0, None)),
        (3, 70, 70, LogNow(None, 100), (3, 70)),
    ],
)
def test_what_is_kept_of_an_intent(
    done: int, start: int | None, end: int, log: LogNow, kept: tuple[int, int | None]
) -> None:
    found = plan.kept(Progress(done, start, OURS.hex(), LIFE, end), log)
    assert (found.done, found.start) == kept
    assert plan.kept(Progress(done, start), log) == Progress(done, start), "an older program stored it"


@pytest.mark.parametrize("start", [70, None])
def test_what_was_counted_beyond_a_loss_is_uncertain(start: int | None) -> None:
    with pytest.raises(plan.Uncertain):
        plan.kept(Progress(3, start, OURS.hex(), LIFE, 70), now())


def test_a_completion_of_an_older_program_is_of_any_log() -> None:
    record = CommitRecord(query=QUERY, kind="stream", completions=[Completion(0, 0, 1)])
    assert not plan.has_moved(record, {})
    assert plan.lost_part(record, {}) is None


def test_a_completion_is_held_against_the_logs_that_are_there() -> None:
    ends = {0: LogEnd(OURS.hex(), LIFE, 50), 1: LogEnd(OURS.hex(), LIFE, 60)}
    record = CommitRecord(query=QUERY, kind="stream", completions=[Completion(0, 0, 1)], ends=ends)
    assert not plan.has_moved(record, {0: now(), 1: now()})
    assert plan.lost_part(record, {0: now(), 1: now()}) is None
    assert plan.has_moved(record, {0: now(THEIRS), 1: now(THEIRS)})
    assert not plan.has_moved(record, {0: now(), 1: now(THEIRS)})
    assert plan.lost_part(record, {0: now(), 1: now(THEIRS)})
    assert plan.lost_part(record, {0: now(), 1: now(end=59)})
    lost = msgspec.structs.replace(record, ends={0: LogEnd(OURS.hex(), LIFE, 61)})
    assert plan.lost_part(lost, {0: now()})


# -- planted bugs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bug", "scene"),
    [
        (
            "kept",
            lambda progress, _: progress,
            test_what_another_query_has_counted_is_not_taken_for_what_is_in_a_new_log,
        ),
        (
            "has_moved",
            lambda *_: False,
            lambda: test_a_batch_that_is_in_a_log_which_is_gone_is_appended_to_the_new_one("stream"),
        ),
        (
            "lost_part",
            lambda *_: None,
            test_a_batch_that_is_in_one_of_the_logs_still_is_neither_skipped_nor_appended_twice,
        ),
    ],
)
def test_a_planted_bug_is_found(
    name: str, bug: Callable[..., object], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene()
    monkeypatch.setattr(plan, name, bug)
    with pytest.raises((AssertionError, pytest.fail.Exception, CorruptError)):
        scene()
