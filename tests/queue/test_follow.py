"""Tailing a log: in this process and in others, woken and not polling."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

import latewood
from latewood import Queue, Reader
from latewood.log import wake
from tests.log.desk import Desk
from tests.patience import SECONDS_MAX

# -- in this process ----------------------------------------------------------------------------------


class Follower(threading.Thread):
    """A thread that follows a reader and keeps what it gets."""

    def __init__(self, reader: Reader, stop_after: int) -> None:
        super().__init__(daemon=True)
        self._reader, self._stop_after = reader, stop_after
        self.waiting = threading.Event()
        self.found: list[bytes] = []

    def run(self) -> None:
        self.waiting.set()
        for record in self._reader.follow():
            self.found.append(record.payload)
            if len(self.found) == self._stop_after:
                return


@pytest.fixture
def other(desk: Desk) -> Queue:
    """The same log as `desk.open()`, as another process sees it that only reads."""
    desk.open().close()
    return desk.open_to_read()


def test_a_follower_is_woken_by_another_thread_of_the_same_log(desk: Desk) -> None:
    log = desk.open(segment_bytes_max=512)
    follower = Follower(log.reader("r"), stop_after=60)
    follower.start()
    assert follower.waiting.wait(SECONDS_MAX)
    for number in range(60):
        log.append(str(number).encode())
    follower.join(SECONDS_MAX)
    assert follower.found == [str(number).encode() for number in range(60)]


def test_a_follower_is_woken_by_a_batch_a_roll_and_a_reopening_of_the_writer(desk: Desk, other: Queue) -> None:
    log = desk.open(segment_bytes_max=512)
    follower = Follower(other.reader("r"), stop_after=42)
    follower.start()
    log.append_many([b"x"] * 40)
    log.roll()
    log.append(b"y")
    log.close()
    desk.open().append(b"z")
    follower.join(SECONDS_MAX)
    assert follower.found == [b"x"] * 40 + [b"y", b"z"]


def test_poll_waits_for_the_first_record(desk: Desk) -> None:
    log = desk.open()
    with log.reader("r") as reader:
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.extend(record.payload for record in reader.poll(timeout=None)))
        thread.start()
        log.append(b"a")
        thread.join(SECONDS_MAX)
        assert found == [b"a"]


def test_a_wait_tells_whether_there_is_a_record(desk: Desk) -> None:
    log = desk.open()
    with log.reader("r") as reader:
        assert not reader.wait(0)
        log.append_many([b"a", b"b"])
        assert reader.wait(0)
        reader.next()
        assert reader.wait(None)
        reader.next()
        assert not reader.wait(0.001)


def test_no_wake_is_missed_however_append_and_sleep_meet(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "_SLEEP_MAX_NS", 3600 * 10**9)  # so that only a wake ends a sleep
    log = desk.open(segment_bytes_max=1 << 16)
    handed_over = threading.Semaphore(0)
    rounds = 3_000

    def follow() -> None:
        for _, _ in zip(range(rounds), log.reader("r").follow(), strict=False):
            handed_over.release()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    for number in range(rounds):
        log.append(b"x")
        assert handed_over.acquire(timeout=SECONDS_MAX), f"asleep beside record {number}"
    thread.join(SECONDS_MAX)


def test_a_seal_without_a_record_after_it_is_no_record(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a")
    with log.reader("r") as reader:
        assert len(list(reader)) == 1
        log.roll()
        assert not reader.wait(0)
        assert reader.poll(timeout=0.001) == []
        log.append(b"b")
        assert reader.wait(0)


def test_a_torn_record_at_the_end_is_waited_for_and_not_taken_for_one(desk: Desk) -> None:
    log = desk.open()
    log.append(b"a", durable=True)
    log.append(b"b")
    path = desk.segment_paths()[0]
    whole = desk.raw(path)
    at = 64 + 32 + 24
    desk.overwrite(path, b"X", at)
    with desk.open_to_read().reader("r") as reader:
        assert [record.payload for record in reader] == [b"a"]
        assert reader.poll(timeout=0.01) == []
        desk.overwrite(path, whole[at : at + 1], at)
        assert reader.next() is not None


# -- in other processes -------------------------------------------------------------------------------

FOLLOW = """
import sys, latewood, latewood.log.wake
latewood.log.wake._SLEEP_MAX_NS = 3600 * 10**9  # so that only a wake ends a sleep
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with latewood.open(path, mode="r") as log, log.reader(name) as reader:
    print("ready", flush=True)
    for number, record in enumerate(reader.follow(), 1):
        print(record.sequence, record.payload.decode(), flush=True)
        if number == count:
            break
    reader.commit()
"""

WRITE = """
import sys, latewood
log = latewood.open(sys.argv[1], segment_bytes_max=1024)
for line in sys.stdin:
    print(log.append(line.strip().encode()), flush=True)
log.close()
"""


class Process:
    """A Python program to talk to, line by line."""

    def __init__(self, program: str, *arguments: object) -> None:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _pipe(self, pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def send(self, line: str) -> None:
        self._pipe(self.popen.stdin).write(line + "\n")
        self._pipe(self.popen.stdin).flush()

    def line(self) -> str:
        return self._pipe(self.popen.stdout).readline().strip()

    def rest(self) -> list[str]:
        self._pipe(self.popen.stdin).close()
        lines = self._pipe(self.popen.stdout).read().splitlines()
        assert self.popen.wait(SECONDS_MAX) == 0
        return lines

    def kill(self) -> None:
        self.popen.kill()
        for pipe in (self.popen.stdin, self.popen.stdout):
            self._pipe(pipe).close()
        self.popen.wait(SECONDS_MAX)


@contextmanager
def running(program: str, *arguments: object) -> Iterator[Process]:
    process = Process(program, *arguments)
    try:
        yield process
    finally:
        process.kill()


def test_followers_in_other_processes_are_woken_and_cross_every_roll(tmp_path: Path) -> None:
    count = 200
    with (
        latewood.open(tmp_path / "log", segment_bytes_max=1024) as log,
        running(FOLLOW, log.path, "one", count) as one,
        running(FOLLOW, log.path, "two", count) as two,
    ):
        assert (one.line(), two.line()) == ("ready", "ready")
        expected = [f"{number} record-{number}" for number in range(count)]
        for number in range(count):
            log.append(f"record-{number}".encode())
            if number < 50:  # One at a time: it has to be woken, and not only to find records there.
                assert one.line() == expected[number]
        assert one.rest() == expected[50:]
        assert two.rest() == expected
        assert [(info.name, info.sequence) for info in log.readers()] == [("one", count), ("two", count)]
        assert log.stats().segment_count > 5


def test_a_follower_in_this_process_is_woken_by_a_writer_in_another(tmp_path: Path) -> None:
    latewood.open(tmp_path / "log", segment_bytes_max=1024).close()
    with (
        running(WRITE, tmp_path / "log") as writer,
        latewood.open(tmp_path / "log", mode="r") as log,
        log.reader("r") as reader,
    ):
        records = reader.follow()
        for number in range(30):
            writer.send(f"record-{number}")
            record = next(records)
            assert (record.sequence, record.payload) == (number, f"record-{number}".encode())
        assert writer.rest() == [str(number) for number in range(30)]


def test_a_reader_outlives_a_writer_that_is_killed_and_goes_on_with_the_next(tmp_path: Path) -> None:
    latewood.open(tmp_path / "log", segment_bytes_max=1024).close()
    with latewood.open(tmp_path / "log", mode="r") as log, log.reader("r") as reader:
        total = 0
        for _ in range(3):
            with running(WRITE, tmp_path / "log") as writer:
                for _ in range(15):
                    writer.send("x" * 40)
                    assert writer.line() == str(total)
                    total += 1
                writer.kill()
            records = [record for _ in range(15) for record in reader.poll(timeout=SECONDS_MAX, max_records=1)]
            assert [record.sequence for record in records] == list(range(total - 15, total))
        reader.commit()
        assert log.next_sequence == total


def test_a_reader_of_another_process_holds_retention_back(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", segment_records_max=2) as log:
        with running(FOLLOW, log.path, "other", 5) as follower:
            assert follower.line() == "ready"
            log.append_many([b"x"] * 10)
            assert len(follower.rest()) == 5
        assert log.cleanup() == [0, 1]
        assert log.first_sequence == 4
