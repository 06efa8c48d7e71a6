"""A log of version 1 that becomes one of today: beside readers, from two processes, with a long history."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import latewood
from latewood.format.segment import FOOTER_SIZE, HEADER_SIZE
from latewood.fs import PosixFS
from latewood.queue import open_queue
from tests.format.version_1 import downgrade
from tests.log.desk import ROOT, Desk, payloads

COUNT = 6


def of_version_1(desk: Desk) -> None:
    with desk.open() as log:
        log.append_many([b"%d" % number for number in range(COUNT)])
        log.roll()
        log.reader("r", 2).close()
    downgrade(desk.fs, ROOT)


def test_a_reader_that_is_open_while_the_log_is_upgraded_goes_on_and_its_next_commit_names_the_log(desk: Desk) -> None:
    of_version_1(desk)
    beside = desk.open_to_read()
    reader = beside.reader("r")
    assert next(iter(reader)).payload == b"2"
    reader.commit()
    with desk.open() as log:
        log.append(b"later")
        assert payloads(beside) == [b"0", b"1", b"2", b"3", b"4", b"5", b"later"]
        assert [record.payload for record in reader] == [b"3", b"4", b"5", b"later"]
        reader.commit()
        reader.close()
        assert beside.mark == log.mark
        with log.reader("r") as again:
            assert list(again) == []


PROGRAM = """
import sys, time, latewood
from latewood.errors import Locked
for _ in range(600):
    try:
        with latewood.open(sys.argv[1]) as log:
            log.append(sys.argv[2].encode(), durable=True)
            print(log.identity.identity.hex())
        break
    except Locked:
        time.sleep(0.01)
"""


def test_two_processes_that_open_a_log_of_version_1_at_once_upgrade_it_once(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "q") as log:
        log.append(b"0")
    downgrade(PosixFS(), tmp_path / "q")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "q"), str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for number in (1, 2)
    ]
    ends = [process.communicate(timeout=60) for process in processes]
    named = {out.strip() for out, _ in ends}
    assert sum("was upgraded to format 2" in errors for _, errors in ends) == 1
    with open_queue(tmp_path / "q", mode="r") as log:
        assert log.identity is not None
        assert named == {log.identity.identity.hex()}
        assert sorted(payloads(log)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("sealed", [10, 100])
def test_an_upgrade_opens_each_sealed_segment_once_and_reads_its_header_and_footer_alone(sealed: int) -> None:
    with Desk() as desk:
        with desk.open() as log:
            for number in range(sealed):
                log.append(b"x" * 100 * (number % 3))
                log.roll()
        again = opening_cost(desk)
        downgrade(desk.fs, ROOT)
        first = opening_cost(desk)
        assert first[0] - again[0] <= sealed + 5
        assert first[1] - again[1] <= sealed * (HEADER_SIZE + FOOTER_SIZE) + 1000


def opening_cost(desk: Desk) -> tuple[int, int]:
    """Return how many files opening it to append opens, and how many bytes it reads from them."""
    counts = desk.fs.counts
    before = counts.files_opened, counts.bytes_read
    desk.open().close()
    return counts.files_opened - before[0], counts.bytes_read - before[1]
