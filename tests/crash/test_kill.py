"""Processes are killed with SIGKILL on a real disk, at any moment; nothing that was written is lost.

A kill takes less than a power cut: what was appended stays, durable or not.  The follower lives in a third process,
outlives the writers, is killed itself now and then, and never misses or repeats what it had committed.
"""

import os
import random
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pytest

import latewood
from latewood import Queue
from tests.crash import scribe
from tests.crash.scribe import OPTIONS, READER, payload
from tests.patience import SECONDS_MAX, wait_until

LOGS: Final = 3
CYCLES: Final = 25
LOGS_CAMPAIGN: Final = 400
SEED: Final = 1_969

_processes = get_context("forkserver")
_processes.set_forkserver_preload(["latewood", "tests.crash.scribe"])


class Child:
    """A process, and what it has said."""

    def __init__(self, work: Callable[..., None], path: Path, *arguments: Any) -> None:
        self._ear, mouth = _processes.Pipe(duplex=False)
        self.lines: list[str] = []
        self._rest = b""
        self._process = _processes.Process(target=_run, args=(mouth, work, path, arguments), daemon=True)
        self._process.start()
        mouth.close()

    def listen(self, seconds: float) -> bool:
        """Take in what was said; return whether there was anything, or the end."""
        if not self._ear.poll(seconds):
            return False
        heard = os.read(self._ear.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + heard).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(heard)

    def live(self, seconds: float) -> None:
        """Let it live for about so long, or until it dies."""
        self._process.join(0)
        for _ in range(10):
            self.listen(seconds / 10)

    def kill(self) -> list[str]:
        """Kill it, and return all that it has said."""
        self._process.kill()
        self._process.join(SECONDS_MAX)
        assert self._process.exitcode == -signal.SIGKILL, self._process.exitcode
        while self.listen(SECONDS_MAX):
            pass
        self._ear.close()
        return self.lines


def _run(mouth: Any, work: Callable[..., None], path: Path, arguments: tuple[Any, ...]) -> None:
    work(path, mouth.fileno(), *arguments)


class Truth:
    """What the log must hold: who appended what, and what was acknowledged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = self.first = self.committed = 0
        self._lives: list[int] = []
        """The sequence at which each life of the writer began."""

    def begin_life(self) -> int:
        """Check the log as the last writer left it; return the name of the next life."""
        end = self.check()
        self._lives.append(end)
        return len(self._lives)

    def payload(self, sequence: int) -> bytes:
        return payload(sequence, sum(start <= sequence for start in self._lives))

    def hear(self, lines: list[str]) -> None:
        for line in lines:
            what, number = line.split()
            setattr(self, what, max(getattr(self, what), int(number)))

    def check(self) -> int:
        """Check a log that nobody is writing; return where it ends."""
        try:
            log = latewood.open(self.path, mode="r")
        except latewood.NotFoundError:
            assert self.written == 0
            return 0
        with log:
            found = list(log.scan())
            first, end = log.first_sequence, log.next_sequence
            readers = {info.name: info.sequence for info in log.readers()}
        assert [record.sequence for record in found] == list(range(first, end)), "a gap"
        assert end >= self.written, "what was written is lost"
        assert first >= self.first, "what was retired is back"
        assert all(record.payload == self.payload(record.sequence) for record in found), "other bytes"
        assert readers.get(READER, 0) >= self.committed, "a commit is lost"
        assert all(first <= sequence <= end for sequence in readers.values())
        self.written, self.first, self.committed = end, first, readers.get(READER, 0)
        return end


class Follower:
    """The process that follows, through its own deaths."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._child: Child | None = None
        self._committed = 0
        self.seen: dict[int, int] = {}
        """Sequences, and the checksum of the payload that was seen."""

    def start(self) -> None:
        self._child = Child(scribe.follow, self._path)

    @property
    def last(self) -> int:
        """How far it has said that it has come."""
        assert self._child is not None
        self._child.listen(0)
        commits = [line for line in self._child.lines[-200:] if not line.startswith("saw")]
        return int(commits[-1].split()[1]) if commits else 0

    def wait_for(self, end: int) -> None:
        wait_until(lambda: self.last >= end)

    def kill(self) -> None:
        assert self._child is not None
        expected: int | None = None
        for line in self._child.kill():
            what, *numbers = line.split()
            sequence = int(numbers[0])
            if what == "saw":
                assert expected == sequence, "missed, or repeated"
                crc = self.seen.setdefault(sequence, int(numbers[1]))
                assert crc == int(numbers[1]), "another record the second time"
                expected = sequence + 1
            elif what == "from":
                assert self._committed <= sequence <= len(self.seen), "a commit is lost, or ahead"
                expected = sequence
            else:
                assert expected == sequence
                self._committed = sequence


@contextmanager
def following(path: Path) -> Iterator[Follower]:
    follower = Follower(path)
    Queue.open(path, OPTIONS).close()  # There must be a log to follow.
    follower.start()
    yield follower


def live_and_die(truth: Truth, chance: random.Random) -> None:
    """Let a writer live until it is killed, by us at some moment or by itself at some operation."""
    life = truth.begin_life()
    dies_at = chance.choice([0, 0, chance.randint(1, 60), chance.randint(1, 400)])
    child = Child(scribe.write, truth.path, life, chance.getrandbits(32), dies_at)
    if chance.random() < 0.9:
        child.listen(SECONDS_MAX)
    child.live(chance.choice([0, 0.001, 0.01, 0.05]) * chance.random())
    truth.hear(child.kill())


@pytest.mark.slow
def test_a_killed_writer_loses_nothing(tmp_path: Path, campaign: bool) -> None:  # noqa: FBT001
    chance = random.Random(random.SystemRandom().getrandbits(32) if campaign else SEED)
    written = 0
    for number in range(LOGS_CAMPAIGN if campaign else LOGS):
        truth = Truth(tmp_path / str(number))
        for _ in range(CYCLES):
            live_and_die(truth, chance)
        written += truth.check()
    assert written > CYCLES, "writers that are killed before they write test nothing"


@pytest.mark.slow
def test_a_follower_misses_and_repeats_nothing_across_kills(tmp_path: Path, campaign: bool) -> None:  # noqa: FBT001
    chance = random.Random(random.SystemRandom().getrandbits(32) if campaign else SEED)
    for number in range(LOGS_CAMPAIGN if campaign else LOGS // 2):
        truth = Truth(tmp_path / str(number))
        with following(truth.path) as follower:
            for _ in range(CYCLES):
                live_and_die(truth, chance)
                if chance.random() < 0.3:
                    follower.kill()
                    follower.start()
            end = truth.check()
            follower.wait_for(end)
            follower.kill()
        assert follower.seen == {sequence: zlib.crc32(truth.payload(sequence)) for sequence in range(end)}
