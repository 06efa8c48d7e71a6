"""The power of a real ext4 is cut under a program that writes; nothing acknowledged is lost.

Every disk goes through many lives: mount, check what is there against what was acknowledged before the cut, perhaps
go on in this process, let another process write, cut the power at any moment, kill it, unmount.  What was seen after
a cut is on the disk, so it counts as acknowledged at the next.
"""

import logging
import os
import random
import resource
import select
import shutil
import subprocess
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import pytest

import latewood
from latewood import CorruptError, LatewoodError, LogStats, NotFoundError, Queue
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.queue.verify import verify_queue
from tests.crash.real_disk import KINDS, READERS, SEGMENT_BYTES, Kind, Mark, RealDisk, mark_of
from tests.patience import SECONDS_MAX

ROOT: Final = Path(__file__).parents[2]
CYCLES: Final = 6
CYCLES_CAMPAIGN: Final = 1_500
CYCLES_PLANTED: Final = 20
SEED: Final = 20_240_229
PLANTED: Final = {
    "anything": ("",),
    "records": tuple(f"{digit}.q" for digit in range(10)),
    "positions": ("near.meta", "far.meta", "abroad.meta"),
    "manifests": ("manifest.1", "manifest.2"),
    "the pointer": ("manifest.current",),
}
"""Which files a planted bug forgets to sync."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery says what it cuts."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


class Violation(AssertionError):
    """The disk that came up again broke a promise."""


def require(truth: bool, *reasons: object) -> None:  # noqa: FBT001 - an assertion, not a mode
    if not truth:
        raise Violation(*reasons)


@dataclass
class Tally:
    """What a test has done, for those who want to know how much it is worth."""

    cycles: int = 0
    acknowledged: int = 0
    commits: int = 0
    records_checked: int = 0
    segments_checked: int = 0
    retired: int = 0


@dataclass
class Promise:
    """What one log owes."""

    exists: bool = False
    marks: dict[int, Mark] = field(default_factory=dict)
    """Records by their sequences: acknowledged, or seen after a cut."""
    readers: dict[str, int] = field(default_factory=dict)
    first: int = 0
    lives: list[tuple[int, int]] = field(default_factory=list)
    """Where the log ended when a writer began, and the name of that life."""

    def hear(self, line: str, tally: Tally) -> None:
        """Take one acknowledgement."""
        self.exists = True
        match line.split():
            case ["durable", sequence, *mark]:
                self.marks[int(sequence)] = Mark(*map(int, mark))
                tally.acknowledged += 1
            case ["committed", name, sequence]:
                self.readers[name] = int(sequence)
                tally.commits += 1
            case ["first", sequence]:
                self.first = int(sequence)
            case ["opened"]:
                pass
            case ["failed", *_]:
                raise Violation(line)
            case _:
                message = f"what does {line!r} mean?"
                raise AssertionError(message)

    @property
    def end(self) -> int:
        """At least so many records were appended and made durable."""
        return max(self.marks, default=-1) + 1

    def life_of(self, sequence: int) -> int:
        at = bisect_right(self.lives, sequence, key=lambda life: life[0]) - 1
        return self.lives[at][1]


# -- after a cut --------------------------------------------------------------------------------------


def check(path: Path, promise: Promise, tally: Tally, *, mend: bool) -> None:
    """Look at a log before anybody has opened it to write, then perhaps open it and go on with it."""
    try:
        with latewood.open(path, mode="r") as log:
            stats = check_log(log, promise)
    except NotFoundError:
        require(not promise.exists, "the log is gone")
        return
    tally.records_checked += len(promise.marks)
    tally.segments_checked += stats.segment_count
    check_verified(path)
    if mend:
        with latewood.open(path, segment_bytes_max=SEGMENT_BYTES[0], index_interval=16) as log:
            check_mended(log, promise)
        check_verified(path)


def check_log(log: Queue, promise: Promise) -> LogStats:
    found = {record.sequence: mark_of(record) for record in log.scan()}
    stats = log.stats()
    first, end = stats.first_sequence, stats.next_sequence
    lost = [sequence for sequence in promise.marks if sequence >= first and sequence not in found]
    require(not lost, "acknowledged records are lost", len(lost), lost[:5], (first, end))
    require(list(found) == list(range(first, end)), "there are gaps", first, end, len(found))
    require(end >= promise.end, "the log ends too soon", end, promise.end)
    wrong = [sequence for sequence, mark in promise.marks.items() if sequence >= first and found[sequence] != mark]
    require(not wrong, "acknowledged records are others now", wrong[:5])
    check_appended(promise, found, first)
    check_readers(log, promise, first, end)
    promise.exists, promise.first = True, first
    promise.marks = {sequence: mark for sequence, mark in found.items() if mark}
    return stats


def check_appended(promise: Promise, found: dict[int, Mark | None], first: int) -> None:
    """Every thread's records are there from its first to some last, in order, and nobody else's are."""
    threads: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for sequence, mark in found.items():
        require(mark is not None, "nobody appended this", sequence)
        assert mark is not None
        require(mark.life == promise.life_of(sequence), "a ghost of an earlier life", sequence, mark)
        threads[mark.life, mark.thread].append(mark.number)
    begun = {life: sequence for sequence, life in promise.lives}
    for (life, thread), numbers in threads.items():
        start = 0 if begun[life] >= first else numbers[0]
        whole = list(range(start, start + len(numbers)))
        require(numbers == whole, "not a prefix of what a thread appended", life, thread, numbers)


def check_readers(log: Queue, promise: Promise, first: int, end: int) -> None:
    found = {info.name: info.sequence for info in log.readers()}
    for name, sequence in promise.readers.items():
        require(name in found, "a reader is lost", name)
        require(found[name] >= sequence, "a reader is behind its commit", name, found[name], sequence)
    require(set(found) <= set(READERS), "a reader that nobody made", found)
    require(max(found.values(), default=0) <= end, "a reader is ahead of the log", found, end)
    require(promise.first <= first <= min(found.values(), default=0), "retired too few or too much", first, found)
    promise.readers = found


def check_verified(path: Path) -> None:
    verification = verify_queue(PosixFS(), Layout(path), deep=True)
    require(verification.is_sound, "verify finds damage", verification.findings)


def check_mended(log: Queue, promise: Promise) -> None:
    """The writer sees the same, calls it durable, and goes on; so do the readers."""
    end = promise.end
    check_log(log, promise)
    require(promise.end == end, "a reader saw another end than the writer", end, promise.end)
    require(log.durable_sequence == end, "what was recovered is not durable", log.durable_sequence, end)
    life = begin_life(promise)
    for number in range(5):
        mark = Mark(life, 0, number)
        sequence = log.append(mark.payload, ext_id=life, durable=True)
        require(sequence == end + number, "a sequence is left out", sequence, end + number)
        promise.marks[sequence] = mark
    for name, position in promise.readers.items():
        with log.reader(name) as reader:
            sequences = [record.sequence for record in reader]
            require(sequences == list(range(position, end + 5)), "a reader sees something else", name, position)


def begin_life(promise: Promise) -> int:
    """Name the next life of a log's writer: all that is appended from here on is its."""
    life = promise.lives[-1][1] + 1 if promise.lives else 0
    promise.lives.append((promise.end, life))
    return life


# -- before and during it -----------------------------------------------------------------------------


class Ear:
    """Hears what the program says, never for longer than it is told to."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._rest = pipe.fileno(), b""
        self.ended = False

    def listen(self, seconds: float) -> list[str]:
        """Return the whole lines that have come, at the latest after `seconds`."""
        if self.ended or not select.select([self._pipe], [], [], seconds)[0]:
            return []
        heard = os.read(self._pipe, 1 << 20)
        self.ended = not heard
        *lines, self._rest = (self._rest + heard).split(b"\n")
        return [line.decode() for line in lines]


@contextmanager
def program(
    path: Path, life: int, chance: random.Random, unsynced: tuple[str, ...], complaints: Path
) -> Iterator[IO[bytes]]:
    """Run the other process, with either kernel; kill it at the end.  What it complains of is kept beside the disk."""
    pure = {"LATEWOOD_PURE": "1"} if chance.random() < 0.3 else {}
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    command = [sys.executable, "-m", "tests.crash.real_disk", str(path), str(life), str(chance.getrandbits(32))]
    with complaints.open("wb") as errors:
        process = subprocess.Popen(
            [*command, *unsynced],
            cwd=ROOT,
            env=os.environ | pure | {"PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))  # A store into a mapping of it is a SIGBUS.
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        process.stdout.close()


def live_until_cut(disk: RealDisk, ear: Ear, chance: random.Random) -> Iterator[str]:
    """Yield what the program says before the cut; the cut comes some lines, and some moments, after it is ready."""
    heard: list[str] = []
    lines_min = chance.choice([1, 2, chance.randint(3, 60), chance.randint(20, 400), chance.randint(20, 1_000)])
    while len(heard) < lines_min:
        lines = ear.listen(SECONDS_MAX)
        require(bool(lines), "the program died, or said nothing for long", heard[-3:])
        heard += lines
    for _ in range(chance.choice([0, 1, 3, 10])):
        heard += ear.listen(chance.random() / 2_000)
    for disturb in chance.sample([disk.write_back, disk.commit_journal], chance.choice([0, 0, 1, 2])):
        disturb(chance)
        heard += ear.listen(chance.choice([0, 0, 0.001]))
    heard += ear.listen(0)
    disk.cut()  # Nothing that is said after this counts.
    assert heard.pop(0) == "ready"
    yield from heard


class Campaign:
    """A disk, the log on it, and what that owes."""

    def __init__(self, disk: RealDisk, seed: int, unsynced: tuple[str, ...] = ()) -> None:
        self._disk, self._unsynced = disk, unsynced
        self._chance = random.Random(seed)
        self._log_count = 0
        self._complaints = disk.root.with_name("complaints")
        self._complaints.touch()
        self.promise, self.tally = Promise(), Tally()

    @property
    def path(self) -> Path:
        return self._disk.root / f"log-{self._log_count}"

    def cycle(self) -> None:
        """Check what the last cut left, and live until the next."""
        with self._disk.mounted():
            check(self.path, self.promise, self.tally, mend=self._chance.random() < 0.5)
            if self._chance.random() < 0.1:
                self._begin_another_log()
            life = begin_life(self.promise)
            with program(self.path, life, self._chance, self._unsynced, self._complaints) as pipe:
                for line in live_until_cut(self._disk, Ear(pipe), self._chance):
                    self.promise.hear(line, self.tally)
        self.tally.cycles += 1

    def _begin_another_log(self) -> None:
        """A log is made only once, so a cut that hits this is rare unless we see to it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._disk.commit_journal(self._chance)  # Or the room that it took comes back with the cut.
        self._log_count += 1
        self.tally.retired += self.promise.first
        self.promise = Promise()

    def run(self, cycles: int) -> Tally:
        for number in range(cycles):
            try:
                self.cycle()
            except (Violation, LatewoodError) as error:
                error.add_note(f"the latest program said: {self._complaints.read_text()[-2_000:] or 'nothing'}")
                error.add_note(f"after {number} cuts, at {self.path}; lives {self.promise.lives[-3:]}")
                raise
        with self._disk.mounted():
            check(self.path, self.promise, self.tally, mend=True)
        self.tally.retired += self.promise.first
        return self.tally


@pytest.mark.needs("power_cut")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_real_power_cut_loses_nothing_acknowledged(tmp_path: Path, kind: Kind, campaign: bool) -> None:  # noqa: FBT001
    seed = random.SystemRandom().getrandbits(32) if campaign else SEED
    disk = RealDisk(tmp_path, kind)
    tally = Campaign(disk, seed).run(CYCLES_CAMPAIGN if campaign else CYCLES)
    print(f"seed {seed}: {tally}")
    assert tally.acknowledged > tally.cycles, "programs that are cut before they do anything test nothing"
    disk.remove()


@pytest.mark.needs("power_cut")
@pytest.mark.slow
@pytest.mark.parametrize("unsynced", PLANTED.values(), ids=list(PLANTED))
def test_a_program_that_forgets_to_sync_is_found_out(tmp_path: Path, unsynced: tuple[str, ...]) -> None:
    disk = RealDisk(tmp_path, KINDS["ordered"])
    with pytest.raises((Violation, CorruptError)) as found:
        Campaign(disk, SEED, unsynced).run(CYCLES_PLANTED)
    print(found.value)
    disk.remove()
