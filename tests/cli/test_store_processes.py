"""Commands of a store as real processes: beside each other, interrupted, and killed."""

import json
import signal
import time
from pathlib import Path

import pytest

from latewood.runtime import Store
from tests.cli.shell import complaint, ok, process, row, rows
from tests.cli.store_kit import expected, fill, make_store, payloads

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return make_store(tmp_path / "lake", archive=True)


def test_who_writes_is_told_by_its_pid_and_whoever_looks_is_let_in(lake: Path) -> None:
    fill(lake, range(10))
    with process("work", lake) as work:
        pid = work.popen.pid
        while row("status", lake)["writer_pid"] != pid:
            assert work.popen.poll() is None, work.errors()
        for command in (("flush", lake), ("work", lake), ("verify", lake), ("db", "drain", lake / "clicks")):
            line = complaint(*command, code=5)
            assert line == f"{lake} is being written by process {pid}; wait until it ends, or stop it"
        assert f"process {pid}" in complaint("append", lake / "clicks", code=5, stdin="x\n")
        assert f"process {pid}" in complaint("rebuild", "--catalog", lake, "--yes", code=5)
        assert payloads(lake) == expected(range(10))
        assert row("db", "ls", lake)["records"] == 10
        assert len(rows("tail", lake / "clicks", "--reader", "etl")) == 10
        work.popen.kill()
        work.end()
    assert row("status", lake)["writer_pid"] is None


def test_a_record_is_seen_at_once_elsewhere_also_across_a_flush(lake: Path) -> None:
    with process("tail", lake / "clicks", "-f", "--raw", "--reader", "etl") as tail, Store.open(lake) as store:
        database = store.database("clicks")
        for number in range(4):
            database.append(f"line {number}".encode(), key=b"user-%d" % number)
            assert tail.line() == f"line {number}"
            if number == 1:
                store.enqueue(1, "clicks", seal=True)
                store.enqueue(2, "clicks")
                store.run_jobs()
    assert 0 <= row("readers", "lag", lake / "clicks")["lag"] <= 1  # The last one may not have been committed.


def test_a_follower_without_a_name_leaves_nothing_behind(lake: Path) -> None:
    fill(lake, range(3))
    with process("tail", lake / "clicks", "-f", "--raw", "-n", "3") as tail:
        assert sorted(tail.lines(3)) == expected(range(3))
        fill(lake, range(3, 5))
        assert sorted(tail.lines(2)) == expected(range(3, 5))
        tail.popen.send_signal(signal.SIGINT)
        assert tail.end() == 130
    assert rows("readers", "ls", lake / "clicks") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_work_ends_gracefully(lake: Path, number: int, code: int) -> None:
    fill(lake, range(10))
    rows("flush", lake)
    with process("work", lake, "--format", "jsonl") as work:
        outcomes = {json.loads(work.line())["kind"] for _ in range(2)}
        assert outcomes == {"flush", "checkpoint"}
        work.popen.send_signal(number)
        assert work.end() == code
    assert row("catalog", "info", lake)["was_closed"]


def test_work_looks_after_every_database_so_often(lake: Path) -> None:
    fill(lake, range(10))
    with process("work", lake, "--every", "200ms", "--format", "jsonl") as work:
        kinds = [json.loads(work.line())["kind"] for _ in range(12)]
        work.popen.send_signal(signal.SIGTERM)
        assert work.end() == 0
    assert {"flush", "checkpoint", "compact", "archive", "evict"} <= set(kinds)
    assert payloads(lake) == expected(range(10))


def at_work(lake: Path, pid: int) -> set[str]:
    """Return the kinds of the jobs that this process is at, once it has the store."""
    if row("status", lake)["writer_pid"] != pid:
        return set()
    return {one["kind"] for one in rows("jobs", "ls", lake, "--state", "in-flight")}


def test_nothing_is_lost_or_there_twice_after_work_was_killed(lake: Path) -> None:
    numbers = range(30_000)
    fill(lake, numbers)
    for kind in ("flush", "archive", "compact"):
        ok(kind, lake)
    cut: set[str] = set()
    for pause_s in (0.0, 0.02, 0.05, 0.1):
        with process("work", lake, "--format", "jsonl") as work:
            while not at_work(lake, work.popen.pid) and rows("jobs", "ls", lake, "--state", "pending"):
                assert work.popen.poll() is None, work.errors()
            time.sleep(pause_s)
            work.popen.kill()
            work.end()
        cut |= {one["kind"] for one in rows("jobs", "ls", lake, "--state", "in-flight")}
        assert payloads(lake) == expected(numbers)
    assert cut, "every job was quicker than its end"
    ok("work", lake, "--once")
    assert {one["state"] for one in rows("jobs", "ls", lake)} == {"completed"}
    ok("archive", lake, "--wait")
    found = row("verify", lake)
    assert (found["is_sound"], found["findings"]) == (True, [])
    assert payloads(lake) == expected(numbers)
