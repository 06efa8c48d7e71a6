"""Applying: one entry in flight in each partition, partitions side by side, and a stubborn one stops only itself."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.clock import SystemClock
from latewood.errors import NotFoundError, Overloaded, UnavailableError, UsageError
from latewood.replica.apply import Alert, Applier, Progress
from latewood.replica.machine import LogMachine, PartitionEntry
from latewood.replica.partition import PartitionLogStore
from latewood.replica.schedule import ApplySchedule, RetryPolicy
from latewood.testing import FakeClock, MemFS
from tests.replica.node import SMALL, Node, Tally

POLICY = RetryPolicy(attempts_max=3, first_ms=10, max_ms=15)


class Scripted(LogMachine):
    """Calls a function for each entry, which may fail."""

    log_is_state = False

    def __init__(self, do: Callable[[PartitionEntry], None]) -> None:
        super().__init__()
        self._do = do
        self.seen: list[int] = []

    def apply(self, entry: PartitionEntry) -> None:
        self._do(entry)
        self.seen.append(entry.index)


def entries(partition_id: int, low: int, high: int) -> list[PartitionEntry]:
    return [PartitionEntry(partition_id, index, index, 0, b"%d" % index) for index in range(low, high)]


def opened(applier: Applier, fs: MemFS, partition_id: int, machine: LogMachine) -> PartitionLogStore:
    path = Path(f"partitions/{partition_id}-1")
    log = PartitionLogStore.open(path, partition_id, 1, fs=fs, options=SMALL)
    applier.open(log, machine, 0)
    return log


def failing_at(index: int, times: int) -> Callable[[PartitionEntry], None]:
    left = [times]

    def do(entry: PartitionEntry) -> None:
        if entry.index == index and left[0]:
            left[0] -= 1
            raise OSError("not now")

    return do


def test_a_failure_is_tried_again_after_a_pause_that_grows() -> None:
    clock, applier = FakeClock(), Applier(FakeClock())
    applier = Applier(clock, RetryPolicy(attempts_max=9, first_ms=10, max_ms=15))
    machine = Scripted(failing_at(2, 2))
    log = opened(applier, MemFS(), 1, machine)
    log.place(entries(1, 1, 4))
    applier.offer(1, entries(1, 1, 4))
    applier.run_ready()
    assert machine.seen == [1]
    start = clock.now_ns()
    assert applier.next_due_ns() == start + 10_000_000
    clock.advance(ms=9)
    assert applier.run_ready() == 0
    clock.advance(ms=1)
    applier.run_ready()
    assert applier.next_due_ns() == clock.now_ns() + 15_000_000
    clock.advance(ms=15)
    applier.run_ready()
    assert machine.seen == [1, 2, 3]
    assert applier.drain() == [Progress(1, 1), Progress(1, 3)]


@pytest.mark.needs("native")
def test_after_too_many_failures_a_partition_is_paused_and_the_others_go_on() -> None:
    node = Node(MemFS(), lambda key: Scripted(failing_at(2, 3 if key == 1 else 0)))
    node.write(1, b"a", b"b", b"c")
    for _ in range(5):
        node.clock.advance(seconds=1)
        node.work()
    assert [(one.partition_id, one.index, str(one.error)) for one in node.alerts] == [(1, 2, "not now")]
    assert node.applier.is_paused(1)
    node.write(3, b"x", b"y", b"z")
    assert node.marks[3].applied_index == 3
    assert node.marks[1].applied_index == 1
    assert node.marks.applied_floor() == 1, "what is committed and unapplied holds the floor"
    with pytest.raises(Overloaded, match="partition 1 is paused"):
        node.machine.parts.dispatcher.admit(1, 1, 1, 0)
    node.machine.resume(1)
    node.work()
    assert node.marks[1].applied_index == 3
    node.machine.parts.dispatcher.admit(1, 1, 1, 0)


def test_what_does_not_fit_in_memory_is_read_back_from_the_log() -> None:
    applier, machine = Applier(FakeClock(), batch_max=3), Tally(1)
    log = opened(applier, MemFS(), 1, machine)  # type: ignore[arg-type]
    for low in range(1, 30, 5):
        log.place(entries(1, low, low + 5))
        applier.offer(1, entries(1, low, low + 5), keep=low in (1, 16))
    assert applier.queued(1).ops == 5, "behind a gap nothing stays in memory"
    applier.run_ready()
    assert machine.count == 30
    assert applier.queued(1) == (0, 0, None, 0)


def test_entries_that_are_offered_twice_are_applied_once() -> None:
    applier, machine = Applier(FakeClock()), Tally(1)
    log = opened(applier, MemFS(), 1, machine)  # type: ignore[arg-type]
    log.place(entries(1, 1, 4))
    applier.offer(1, entries(1, 1, 4))
    applier.offer(1, entries(1, 1, 4))
    applier.run_ready()
    applier.offer(1, entries(1, 2, 4))
    assert applier.run_ready() == 0
    assert machine.count == 3


def test_threads_apply_partitions_side_by_side_and_each_in_order() -> None:
    fs, told, running, most = MemFS(), threading.Event(), set[int](), [0]
    lock = threading.Lock()

    def do(entry: PartitionEntry) -> None:
        with lock:
            assert entry.partition_id not in running, "one in flight in each partition"
            running.add(entry.partition_id)
            most[0] = max(most[0], len(running))
        time.sleep(0.0005)
        with lock:
            running.discard(entry.partition_id)

    applier = Applier(SystemClock(), notify=told.set, batch_max=4)
    machines = {key: Scripted(do) for key in range(1, 7)}
    logs = {key: opened(applier, fs, key, machine) for key, machine in machines.items()}
    applier.start(4)
    with pytest.raises(UsageError):
        applier.start(1)
    for low in range(1, 41, 10):
        for key, log in logs.items():
            log.place(entries(key, low, low + 10))
            applier.offer(key, entries(key, low, low + 10), keep=low != 11)
    reached: dict[int, int] = {}
    while len(reached) < 6 or min(reached.values()) < 40:
        assert told.wait(30)
        told.clear()
        for event in applier.drain():
            assert isinstance(event, Progress)
            assert event.index >= reached.get(event.partition_id, 0)
            reached[event.partition_id] = event.index
    applier.stop()
    assert all(machine.seen == list(range(1, 41)) for machine in machines.values())
    assert most[0] > 1


def test_a_partition_stands_still_while_it_is_held() -> None:
    applier, machine = Applier(FakeClock()), Tally(1)
    log = opened(applier, MemFS(), 1, machine)  # type: ignore[arg-type]
    log.place(entries(1, 1, 4))
    with applier.snapshot(1) as pieces:
        assert b"".join(pieces) == bytes(8)
        applier.offer(1, entries(1, 1, 4))
        assert applier.run_ready() == 0
    applier.run_ready()
    assert machine.count == 3
    applier.forget(1)
    with pytest.raises(NotFoundError):
        applier.machine(1)


@pytest.mark.needs("native")
def test_an_alert_of_a_partition_that_is_gone_does_no_harm() -> None:
    node = Node(MemFS(), lambda _: Scripted(failing_at(1, 99)))
    node.write(1, b"a")
    for _ in range(2):
        node.clock.advance(seconds=9)
        node.applier.run_ready()
    node.tear_down(1)
    assert node.alerts
    assert isinstance(node.alerts[0], Alert)
    assert node.contents() == {}


class Hanging(Scripted):
    """Hangs where it is told to, until it is let go; notices calls that overlap."""

    def __init__(self, where: str) -> None:
        super().__init__(lambda _: self._hang("apply"))
        self._where, self._lock = where, threading.Lock()
        self.hangs, self.may_go_on, self.was_let_go = threading.Event(), threading.Event(), threading.Event()

    def snapshot(self) -> Iterator[bytes]:
        yield b"a"
        self._hang("snapshot")
        yield b"b"

    def _hang(self, where: str) -> None:
        assert self._lock.acquire(blocking=False), "its calls never overlap"
        try:
            if where == self._where and not self.may_go_on.is_set():
                self.hangs.set()
                assert self.may_go_on.wait(60)
                self.was_let_go.set()
        finally:
            self._lock.release()


def waiting_for(applier: Applier, partition_id: int, index: int, told: threading.Event) -> None:
    while True:
        assert told.wait(60)
        told.clear()
        if any(event[:2] == (partition_id, index) for event in applier.drain()):
            return


def test_a_machine_that_hangs_in_an_entry_keeps_no_snapshot_waiting() -> None:
    told = threading.Event()
    applier, machine = Applier(SystemClock(), notify=told.set, machine_wait_ms=20), Hanging("apply")
    log = opened(applier, MemFS(), 1, machine)
    applier.start(1)
    log.place(entries(1, 1, 3))
    applier.offer(1, entries(1, 1, 3))
    assert machine.hangs.wait(60)
    with pytest.raises(UnavailableError, match="machine of partition 1 is at work"), applier.snapshot(1):
        pass
    assert applier.hung() == [1]
    machine.may_go_on.set()
    waiting_for(applier, 1, 2, told)
    with applier.snapshot(1) as pieces:
        assert b"".join(pieces) == b"ab"
    assert applier.hung() == []
    applier.stop()


def test_a_machine_that_hangs_in_its_snapshot_is_left_alone_until_it_comes_back() -> None:
    told = threading.Event()
    applier, machine = Applier(SystemClock(), notify=told.set, machine_wait_ms=20), Hanging("snapshot")
    log = opened(applier, MemFS(), 1, machine)
    applier.start(2)
    taken = []
    with pytest.raises(UnavailableError, match="no piece of its state"), applier.snapshot(1) as pieces:  # noqa: PT012
        for piece in pieces:
            taken.append(piece)  # noqa: PERF402 - it raises on the way
    assert taken == [b"a"]
    with pytest.raises(UnavailableError, match="is at work"), applier.snapshot(1):
        pass
    assert applier.hung() == [1]
    log.place(entries(1, 1, 3))
    applier.offer(1, entries(1, 1, 3))
    assert machine.seen == []
    machine.may_go_on.set()
    waiting_for(applier, 1, 2, told)
    assert machine.seen == [1, 2]
    applier.stop()


def test_a_partition_whose_machine_hangs_can_be_torn_down_and_begun_anew() -> None:
    told, fs = threading.Event(), MemFS()
    applier, machine = Applier(SystemClock(), notify=told.set, machine_wait_ms=20), Hanging("apply")
    log = opened(applier, fs, 1, machine)
    applier.start(1)
    log.place(entries(1, 1, 5))
    applier.offer(1, entries(1, 1, 5))
    assert machine.hangs.wait(60)
    applier.forget(1)
    log.close()
    fs.remove_tree(log.path)
    again = Scripted(lambda _: None)
    log = opened(applier, fs, 1, again)
    log.place(entries(1, 1, 3))
    applier.offer(1, entries(1, 1, 3))
    waiting_for(applier, 1, 2, told)
    machine.may_go_on.set()
    assert machine.was_let_go.wait(60)
    applier.stop()
    assert again.seen == [1, 2]
    assert machine.seen in ([], [1]), "it ended what it was at, and began nothing"
    assert applier.drain() == []


def test_a_machine_that_hangs_does_not_keep_the_others_from_stopping() -> None:
    applier, machine = Applier(SystemClock(), machine_wait_ms=20), Hanging("apply")
    log = opened(applier, MemFS(), 1, machine)
    applier.start(1)
    log.place(entries(1, 1, 2))
    applier.offer(1, entries(1, 1, 2))
    assert machine.hangs.wait(60)
    applier.stop()
    machine.may_go_on.set()


class Turns:
    """A schedule of three partitions, and what a list says of them."""

    def __init__(self) -> None:
        self.schedule, self.now_ns = ApplySchedule(POLICY, batch_max=2), 0
        self.offered, self.applied, self.running = [0, 0, 0], [0, 0, 0], dict[int, int]()
        for key in range(3):
            self.schedule.open(key, 0, 0)

    def do(self, step: str, key: int) -> None:
        if step == "offer":
            self.offered[key] += 1
            self.schedule.offer(key, self.offered[key])
        elif step == "take":
            self.take()
        elif step == "wait":
            self.now_ns += 5_000_000
        elif step == "resume" and key not in self.running:
            self.schedule.resume(key)
        elif key in self.running:
            self.work(step, key)
        assert all(self.schedule.is_running(one) == (one in self.running) for one in range(3))

    def take(self) -> None:
        task = self.schedule.take(self.now_ns)
        if task:
            key = task.partition_id
            assert key not in self.running
            assert task.low == self.applied[key] + 1 <= self.offered[key]
            assert task.high <= self.offered[key] + 1
            assert not self.schedule.is_paused(key)
            self.running[key] = task.high - 1

    def work(self, step: str, key: int) -> None:
        if step == "part" and self.applied[key] < self.running[key]:
            self.applied[key] += 1
            self.schedule.advance(key, self.applied[key])
        elif step == "done":
            self.applied[key] = self.running.pop(key)
            self.schedule.advance(key, self.applied[key])
            self.schedule.finish(key)
        elif step == "fail":
            del self.running[key]
            self.schedule.fail(key, self.now_ns)

    def end(self) -> None:
        for key in self.running:
            self.schedule.finish(key)
        for key in range(3):
            self.schedule.resume(key)
        while task := self.schedule.take(self.now_ns + 10**12):
            self.schedule.advance(task.partition_id, task.high - 1)
            self.schedule.finish(task.partition_id)
        assert [self.schedule.applied(key) for key in range(3)] == self.offered, "nothing is forgotten"


TURNS = st.sampled_from(["offer", "take", "part", "done", "fail", "wait", "resume"])


@given(st.lists(st.tuples(TURNS, st.integers(0, 2))))
def test_a_schedule_runs_each_partition_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    turns = Turns()
    for step, key in steps:
        turns.do(step, key)
    turns.end()
