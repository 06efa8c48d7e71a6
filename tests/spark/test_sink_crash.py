"""A driver dies, an operation fails or the power fails at every operation of a commit: each batch is there once.

Tasks that are run again make other records of the same batch.  So what is found in the end is all of the first attempt
or all of the second, in order and in every shard, and it survives a power cut after the commit has returned.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

import pytest

from latewood import DiskFull, LatewoodError, Poisoned, StorageError
from latewood.queue import open_queue
from latewood.spark.commits import Batch
from latewood.spark.commits_plan import Kind
from latewood.spark.staging import StagedFile
from latewood.spark.writing_target import Target
from latewood.testing import FakeClock
from tests.crash.mortal import Killed, MortalFS
from tests.spark.sink_story import QUERY, committer, expected, logged, make_target, rows_of, stage

pytestmark = pytest.mark.slow
BEFORE: Final = rows_of("before", each=2)
FIRST: Final = rows_of("first")
SECOND: Final = rows_of("second")
KINDS: Final[tuple[Kind, ...]] = ("stream", "txn")
FOREIGN: Final = b"foreign"


def begin(kind: Kind = "stream") -> tuple[MortalFS, Target, Batch, list[StagedFile]]:
    """A target with one batch in it, and the files of the next."""
    fs = MortalFS()
    target = make_target(fs)
    number = 0 if kind == "txn" else 1
    if kind == "stream":
        zeroth = Batch(QUERY, kind, 0)
        committer(fs, target).commit(zeroth, stage(fs, target, zeroth, BEFORE))
    batch = Batch(QUERY, kind, number)
    files = stage(fs, target, batch, FIRST)
    fs.operations = 0
    fs.directories.clear()
    return fs, target, batch, files


def operations(kind: Kind) -> tuple[int, list[int]]:
    fs, target, batch, files = begin(kind)
    committer(fs, target).commit(batch, files)
    return fs.operations, fs.directories


def retry(fs: MortalFS, target: Target, batch: Batch) -> None:
    committer(fs, target).commit(batch, stage(fs, target, batch, SECOND))


def die(fs: MortalFS, target: Target, batch: Batch, files: list[StagedFile]) -> None:
    """Commit on a disk on which that is not survived; closing the dead program's logs may say so in other words."""
    with pytest.raises((Killed, Poisoned)):
        committer(fs, target).commit(batch, files)
    assert fs.dead
    fs.bury()


def check(fs: MortalFS, target: Target, batch: Batch) -> None:
    found = [[payload for payload in shard if payload != FOREIGN] for shard in logged(fs, target)]
    before = BEFORE if batch.number else []
    wholes = [[expected([*before, *tasks], shard) for shard in range(2)] for tasks in (FIRST, SECOND)]
    assert found in wholes


def append_foreign(fs: MortalFS, target: Target) -> None:
    """Another program appends, once to one log and twice to the other, and is killed before it can close them."""
    for times, path in enumerate(target.logs, 1):
        log = open_queue(path, fs=fs, clock=FakeClock(), background=False)
        for _ in range(times):
            log.append(FOREIGN)
    fs._locks.clear()


def check_after(fs: MortalFS, target: Target, batch: Batch) -> None:
    """The retry, a replay after that, and power cuts after each have their say."""
    retry(fs, target, batch)
    check(fs, target, batch)
    for survivor in islice(fs.survivors(3), 3):
        check(survivor, target, batch)
        retry(survivor, target, batch)
        check(survivor, target, batch)
    retry(fs, target, batch)
    check(fs, target, batch)
    assert not fs.list(target.staging)
    assert not fs.list(target.state / "intents")


@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "beside"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_dies_at_any_operation_leaves_its_batch_there_once(
    kind: Kind, *, foreign: bool, campaign: bool
) -> None:
    count, _ = operations(kind)
    assert count > 50
    for number in range(1 + foreign, count + 1, 1 if campaign else 3):
        fs, target, batch, files = begin(kind)
        fs.dies_at = number
        die(fs, target, batch, files)
        if foreign:
            append_foreign(fs, target)
        check_after(fs, target, batch)


def test_a_driver_that_dies_while_it_makes_a_directory_does_too() -> None:
    _, directories = operations("txn")
    assert directories
    for number in directories:
        fs, target, batch, files = begin("txn")
        fs.dies_within = number
        die(fs, target, batch, files)
        check_after(fs, target, batch)


@pytest.mark.parametrize("failure", [StorageError("EIO"), DiskFull("ENOSPC")], ids=["EIO", "ENOSPC"])
def test_a_commit_that_fails_anywhere_and_is_aborted_is_made_whole_by_the_next(
    failure: LatewoodError, *, campaign: bool
) -> None:
    count, _ = operations("stream")
    raised = 0
    numbers = range(1 + isinstance(failure, DiskFull), count + 1, 1 if campaign else 4)
    for number in numbers:
        fs, target, batch, files = begin()
        fs.fails_at, fs.failure = number, failure
        try:
            committer(fs, target).commit(batch, files)
        except LatewoodError:
            raised += 1
            committer(fs, target).abort(batch, files)
        check_after(fs, target, batch)
    assert raised > len(numbers) // 2


def die_twice(number: int, later: int) -> None:
    """Let a driver die, and a second one while it finishes what the first began; others append in between."""
    fs, target, batch, files = begin()
    fs.dies_at = number
    die(fs, target, batch, files)
    append_foreign(fs, target)
    again = stage(fs, target, batch, SECOND)
    fs.operations, fs.dies_at = 0, later
    with suppress(Killed, LatewoodError):
        committer(fs, target).commit(batch, again)
    fs.bury()
    append_foreign(fs, target)
    retry(fs, target, batch)
    check(fs, target, batch)


def test_a_driver_that_dies_twice_leaves_its_batch_there_once(*, campaign: bool) -> None:
    count, _ = operations("stream")
    for number in range(count // 2, count, 2 if campaign else 9):
        for later in range(20, count, 3 if campaign else 11):
            die_twice(number, later)


def cuts(fs: MortalFS, target: Target, batch: Batch, files: list[StagedFile]) -> Iterator[tuple[str, MortalFS]]:
    return fs.cuts_during(lambda disk: committer(disk, target).commit(batch, files), limit=4)


@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "beside"])
def test_a_power_cut_at_any_operation_leaves_the_batch_there_once(*, foreign: bool) -> None:
    fs, target, batch, files = begin()
    count = 0
    for step, survivor in cuts(fs, target, batch, files):
        count += 1
        try:
            if foreign:
                append_foreign(survivor, target)
            retry(survivor, target, batch)
            check(survivor, target, batch)
        except Exception as error:
            error.add_note(f"after a cut at {step!r}")
            raise
    assert count > 100


def test_a_second_power_cut_in_the_retry_leaves_the_batch_there_once(*, campaign: bool) -> None:
    fs, target, batch, files = begin()
    for number, (step, survivor) in enumerate(cuts(fs, target, batch, files)):
        if number % (7 if campaign else 61):
            continue
        again = stage(survivor, target, batch, SECOND)
        for other, second in cuts(survivor, target, batch, again):
            try:
                retry(second, target, batch)
                check(second, target, batch)
            except Exception as error:
                error.add_note(f"after a cut at {step!r} and one at {other!r}")
                raise
