"""Reading a log that cannot be written: a read-only disk in memory, and a real read-only mount."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import latewood
from latewood import Queue, ReadOnlyError
from tests.log.desk import ROOT, Desk, payloads


@pytest.fixture
def log(desk: Desk) -> Queue:
    """A log with a reader at 3, opened from a disk that became read-only."""
    with desk.open(segment_bytes_max=512) as log:
        log.append_many([str(number).encode() for number in range(40)])
        log.reader("known", start=3).close()
    desk.fs.read_only = True
    return desk.open_to_read()


def test_everything_can_be_read(log: Queue) -> None:
    assert [int(payload) for payload in payloads(log)] == list(range(40))
    assert log.stats().next_sequence == 40
    assert log.to_arrow().num_rows == 40
    assert [info.name for info in log.readers()] == ["known"]


def test_a_reader_reads_from_where_it_stood_and_cannot_commit(log: Queue) -> None:
    for name, first in (("known", 3), ("new", 0)):
        with log.reader(name) as reader:
            assert [record.sequence for record in reader] == list(range(first, 40))
            with pytest.raises(ReadOnlyError, match=f"reader '{name}' cannot commit"):
                reader.commit()
            assert reader.poll(timeout=0.01) == []


def test_a_reader_may_be_opened_twice_where_nobody_can_commit(log: Queue) -> None:
    with log.reader("known") as one, log.reader("known") as other:
        assert one.sequence == other.sequence == 3


def test_nothing_can_be_removed(log: Queue) -> None:
    with pytest.raises(ReadOnlyError):
        log.remove_reader("known")
    with pytest.raises(ReadOnlyError):
        log.cleanup()
    assert log.cleanup(dry_run=True) == []


def test_it_cannot_be_opened_to_append(desk: Desk, log: Queue) -> None:
    assert log.path == ROOT
    with pytest.raises(ReadOnlyError):
        desk.open()


READ = """
import json, sys, latewood
with latewood.open(sys.argv[1], mode="r") as log, log.reader("r") as reader:
    found = [record.payload.decode() for record in reader]
    try:
        reader.commit()
        committed = True
    except latewood.ReadOnlyError:
        committed = False
    try:
        latewood.open(sys.argv[1]).close()
        opened = True
    except latewood.ReadOnlyError:
        opened = False
    print(json.dumps({"found": found, "waited": reader.poll(timeout=0.01), "committed": committed, "opened": opened}))
"""

MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'


@pytest.mark.needs("namespace")
def test_a_log_on_a_read_only_mount_can_be_read(tmp_path: Path) -> None:
    with latewood.open(tmp_path / "log", segment_bytes_max=512) as log:
        log.append_many([str(number).encode() for number in range(40)])
    command = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", str(tmp_path / "log"), sys.executable, READ]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert answer == {
        "found": [str(number) for number in range(40)],
        "waited": [],
        "committed": False,
        "opened": False,
    }
