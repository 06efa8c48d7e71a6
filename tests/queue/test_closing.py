"""Closing a log closes its readers."""

import threading
from pathlib import Path

import pytest

import latewood
from latewood import ClosedError, Queue
from latewood.errors import LatewoodError, StorageError
from tests.log.desk import Desk
from tests.patience import SECONDS_MAX, wait_until


def filled(desk: Desk) -> Queue:
    log = desk.open()
    log.append_many([b"x"] * 10)
    return log


def test_a_reader_of_a_closed_log_refuses_to_be_used(desk: Desk) -> None:
    log = filled(desk)
    reader = log.reader("r")
    assert reader.next() is not None  # Nine more wait in its buffer.
    log.close()
    for use in (reader.next, reader.poll, reader.read_arrow, reader.commit, reader.lag, lambda: list(reader)):
        with pytest.raises(ClosedError):
            use()
    reader.close()


def test_its_name_is_free_again(desk: Desk) -> None:
    log = filled(desk)
    reader = log.reader("r")
    list(reader)
    reader.commit()
    log.close()
    with filled(desk).reader("r") as again:
        assert again.sequence == 10


def test_a_log_that_cannot_be_flushed_closes_its_readers_too(desk: Desk) -> None:
    log = filled(desk)
    reader = log.reader("r")
    log.append(b"not durable")
    desk.fs.fail("sync", ".q", StorageError("broken"))
    with pytest.raises(LatewoodError):
        log.close()
    desk.fs.heal()
    with pytest.raises(ClosedError):
        reader.next()


def test_a_reader_that_waits_in_another_thread_is_woken_and_told(tmp_path: Path) -> None:
    log = latewood.open(tmp_path / "log")
    log.append(b"x")
    told: list[BaseException] = []
    begun = threading.Event()

    def follow() -> None:
        try:
            for _ in log.reader("r").follow():
                begun.set()
        except LatewoodError as error:
            told.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    begun.wait(SECONDS_MAX)
    log.close()
    thread.join(SECONDS_MAX)
    assert [type(error) for error in told] == [ClosedError]


def test_readers_that_read_at_full_speed_are_told_the_same(tmp_path: Path) -> None:
    log = latewood.open(tmp_path / "log", segment_bytes_max=64 * 1024)
    log.append_many([b"x" * 100] * 5000)
    told: list[BaseException] = []
    busy = [0] * 3

    def read(number: int) -> None:
        reader = log.reader(f"r{number}")
        try:
            while True:
                reader.seek(sequence=0)
                while reader.poll():
                    busy[number] += 1
        except Exception as error:  # noqa: BLE001 - whatever a reader is told
            told.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(busy))
    log.close()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert [type(error) for error in told] == [ClosedError] * 3, told
