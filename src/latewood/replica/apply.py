"""Applying: machines take in the entries of their partitions, one at a time in each, in threads or in the caller's.

What is not in memory is read back from the partition's log.  What happened comes out of `drain`, for the thread that
owns watermarks and backlogs; nothing calls back under a lock.

A machine is a user's, and may hang.  Whoever needs it to stand still waits for a bounded time, and is told; once it is
known to hang, at once.  It is left alone until it comes back: its calls never overlap.

Threads: `offer`, `drain` and the rest are its owner's; workers run the machines.  `_lock` guards what both touch, and
is never held while a machine runs.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from latewood.clock import Clock
from latewood.errors import CorruptError, NotFoundError, UnavailableError, UsageError
from latewood.replica.dispatch import Load
from latewood.replica.machine import PartitionEntry, PartitionStateMachine
from latewood.replica.partition import PartitionLogStore
from latewood.replica.pieces import PieceFeed
from latewood.replica.schedule import ApplySchedule, RetryPolicy, Task

if TYPE_CHECKING:
    from latewood.kernel import Door

_IDLE_S: Final = 1.0
"""A worker looks for itself after this, whatever it was told."""
MACHINE_WAIT_MS: Final = 10_000
"""A machine that is at one call for longer is said to hang."""
_logger = logging.getLogger(__name__)


class Progress(NamedTuple):
    """A partition has applied everything up to `index`."""

    partition_id: int
    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in an event


class Alert(NamedTuple):
    """A partition is paused: `index` could not be applied, often enough."""

    partition_id: int
    index: int  # type: ignore[assignment] # the word for it; nobody looks for a value in an event
    error: Exception


@dataclass(slots=True)
class _Worked:
    machine: PartitionStateMachine
    log: PartitionLogStore
    queue: deque[PartitionEntry] = field(default_factory=deque)
    queued_bytes: int = 0
    since_ns: int | None = None
    """When the machine began what it is at."""
    at: int = 0
    """The entry that it is at; 0: its snapshot."""
    is_left: bool = False
    """Whether the partition was torn down while its machine was at work: nobody wants to know how it ends."""


class Applier:
    """The machines of one node at work."""

    def __init__(
        self,
        clock: Clock,
        policy: RetryPolicy | None = None,
        *,
        notify: Callable[[], None] | None = None,
        batch_max: int = 64,
        machine_wait_ms: int = MACHINE_WAIT_MS,
    ) -> None:
        """`notify` is called, by a worker and without a lock, when `drain` has something.

        `machine_wait_ms` is how long a machine is waited for, if it is to stand still.
        """
        self._clock, self._notify = clock, notify or (lambda: None)
        self._machine_wait_ms = machine_wait_ms
        self._schedule = ApplySchedule(policy, batch_max)
        self._partitions: dict[int, _Worked] = {}
        self.logs: dict[int, PartitionLogStore] = {}
        """The partitions whose log is their state: their machines are never called.  Its owner's alone."""
        self.doors: dict[int, tuple[int, Door]] = {}
        """Of the same: since which entry they are, and what records go through that wait for nothing."""
        self._events: deque[Progress | Alert] = deque()
        self.damage: CorruptError | None = None
        """What was read of a partition's log and is damaged: the node must stop."""
        self._lock = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._stops = False

    # -- the owner's --------------------------------------------------------------------------------------

    def open(self, log: PartitionLogStore, machine: PartitionStateMachine, applied: int) -> None:
        """Begin with a partition whose machine has applied up to an index."""
        with self._lock:
            self._partitions[log.partition_id] = _Worked(machine, log)
            self._schedule.open(log.partition_id, applied, log.next_index - 1)
            self._lock.notify()
        if machine.log_is_state:
            self.logs[log.partition_id] = log
            self.doors[log.partition_id] = log.born, log.door

    def offer(self, partition_id: int, entries: Sequence[PartitionEntry], *, keep: bool = True) -> None:
        """Hand on entries that the partition's log holds by now; with `keep` they stay in memory until applied.

        Those that were handed on before are left out.
        """
        with self._lock:
            worked = self._partitions[partition_id]
            entries = [entry for entry in entries if entry.index > self._schedule.available(partition_id)]
            if not entries:
                return
            # Only neighbours stay: behind a gap the log is read, and what came later with it.
            follows = worked.queue[-1].index + 1 if worked.queue else self._schedule.applied(partition_id) + 1
            if keep and entries[0].index == follows:
                worked.queue.extend(entries)
                worked.queued_bytes += sum(len(entry.payload) for entry in entries)
            self._schedule.offer(partition_id, entries[-1].index)
            self._lock.notify()

    def queued(self, partition_id: int) -> Load:
        """Return what is in memory for a partition."""
        with self._lock:
            worked = self._partitions.get(partition_id)
            return Load(len(worked.queue), worked.queued_bytes) if worked else Load()

    def drain(self) -> list[Progress | Alert]:
        """Return what has happened since the last call, in order."""
        found = []
        while self._events:
            found.append(self._events.popleft())
        return found

    def resume(self, partition_id: int) -> None:
        """Let a paused partition try again.

        Raises:
            NotFoundError: there is no such partition.
        """
        self.machine(partition_id)
        with self._lock:
            self._schedule.resume(partition_id)
            self._lock.notify()

    def is_paused(self, partition_id: int) -> bool:
        """Say whether a partition is paused."""
        with self._lock:
            return self._schedule.is_paused(partition_id)

    def has(self, partition_id: int) -> bool:
        """Say whether a partition is here."""
        return partition_id in self._partitions

    def machine(self, partition_id: int) -> PartitionStateMachine:
        """Return a partition's machine.

        Raises:
            NotFoundError: there is no such partition.
        """
        if partition_id not in self._partitions:
            message = f"there is no partition {partition_id}"
            raise NotFoundError(message)
        return self._partitions[partition_id].machine

    def settle(self, wait_s: float) -> None:
        """Wait until machines have applied all that they can now, but not longer, and for none that hangs."""
        if not self.hung():
            with self._lock:
                self._lock.wait_for(self._schedule.is_idle, wait_s if self._threads else 0)

    def hung(self) -> list[int]:
        """Return the partitions whose machines have been at one call for too long."""
        return sorted(self.hanging())

    def hanging(self) -> dict[int, int]:
        """Return, by partition, the entry that a machine has been at for too long; 0: it is its snapshot."""
        with self._lock:
            return {key: worked.at for key, worked in self._partitions.items() if self._patience_s(worked) <= 0}

    @contextmanager
    def snapshot(self, partition_id: int) -> Iterator[Iterable[bytes]]:
        """Have a partition stand still, and yield the pieces of its machine's state: none if its log is that.

        Raises:
            UnavailableError: its machine is at work and does not end, or, while the pieces are taken, no other comes.
        """
        worked = self._hold(partition_id)
        release = partial(self._release, partition_id, worked)
        if worked.machine.log_is_state or not self._threads:
            try:
                yield () if worked.machine.log_is_state else worked.machine.snapshot()
            finally:
                release()
            return
        wait_s, touch = self._machine_wait_ms / 1_000, partial(self._touch, worked)
        feed = PieceFeed(partition_id, worked.machine, wait_s, touch, release)
        try:
            yield feed
        finally:
            feed.stop()

    def forget(self, partition_id: int) -> None:
        """Forget a partition, once what is in flight there has ended; a machine that hangs is left to itself."""
        with self._lock:
            worked = self._partitions[partition_id]
            is_still = self._lock.wait_for(lambda: self._schedule.hold(partition_id), self._patience_s(worked))
            self._schedule.forget(partition_id)
            del self._partitions[partition_id]
            worked.is_left = not is_still
        self.logs.pop(partition_id, None)
        self.doors.pop(partition_id, None)
        if worked.is_left:
            _logger.error("partition %d is torn down, and its machine hangs: it is left to itself", partition_id)
            if self._threads:
                self._start_one()  # In place of the one that will not come back.

    def _hold(self, partition_id: int) -> _Worked:
        with self._lock:
            worked = self._partitions[partition_id]
            if not self._lock.wait_for(lambda: self._schedule.hold(partition_id), self._patience_s(worked)):
                message = f"the machine of partition {partition_id} is at work, and does not end"
                raise UnavailableError(message)
            worked.since_ns, worked.at = self._clock.now_ns(), 0
            return worked

    def _release(self, partition_id: int, worked: _Worked) -> None:
        with self._lock:
            worked.since_ns = None
            if not worked.is_left:
                self._schedule.finish(partition_id)
                self._lock.notify_all()

    def _touch(self, worked: _Worked) -> None:
        worked.since_ns = self._clock.now_ns()

    def _patience_s(self, worked: _Worked) -> float:
        """Return how long a machine may still take for what it is at."""
        taken_ms = 0.0 if worked.since_ns is None else (self._clock.now_ns() - worked.since_ns) / 1e6
        return max(0.0, self._machine_wait_ms - taken_ms) / 1_000

    # -- the work -----------------------------------------------------------------------------------------

    def run_ready(self) -> int:
        """Apply in this thread all that can be applied now; return how many runs that took."""
        count = 0
        while (taken := self._take()) is not None:
            self._run(*taken)
            count += 1
        return count

    def next_due_ns(self) -> int | None:
        """Return when `run_ready` will have something to do; a time in the past if it has now."""
        with self._lock:
            return self._schedule.next_due_ns()

    def start(self, threads: int) -> None:
        """Apply in threads from now on.

        Raises:
            UsageError: they were started already.
        """
        if self._threads:
            raise UsageError("the workers are at work already")
        self._stops = False
        for _ in range(threads):
            self._start_one()

    def stop(self) -> None:
        """End the threads, each after the entry that it applies; one whose machine hangs is not waited for."""
        with self._lock:
            self._stops = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(self._machine_wait_ms / 1_000)
            if thread.is_alive():
                _logger.error("%s does not end: a machine hangs", thread.name)
        self._threads.clear()

    def _start_one(self) -> None:
        thread = threading.Thread(target=self._work, name=f"latewood-apply-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while not self._stops:
            if (taken := self._take()) is None:
                self._sleep()
            elif not self._run(*taken):
                return

    def _sleep(self) -> None:
        with self._lock:
            if not self._stops and self._schedule.next_due_ns() != 0:
                self._lock.wait(self._wait_s())

    def _wait_s(self) -> float:
        due_ns = self._schedule.next_due_ns()
        return _IDLE_S if due_ns is None else min(_IDLE_S, max(0.0, (due_ns - self._clock.now_ns()) / 1e9))

    def _take(self) -> tuple[_Worked, Task] | None:
        with self._lock:
            now_ns = self._clock.now_ns()
            task = self._schedule.take(now_ns)
            if task is None:
                return None
            worked = self._partitions[task.partition_id]
            worked.since_ns, worked.at = now_ns, task.low
            return worked, task

    def _run(self, worked: _Worked, task: Task) -> bool:
        """Apply a task's entries, one after another, as far as that works; say whether anybody waited for the end."""
        applied = task.low - 1
        failure: Exception | None = None
        try:
            entries = self._entries(worked, task)
        except CorruptError as error:  # The log's, not the machine's: no repetition mends it.
            self.damage = error
            return self._end(worked, task, applied, error)
        try:
            for entry in entries:
                worked.since_ns, worked.at = self._clock.now_ns(), entry.index
                worked.machine.apply(entry)
                applied = entry.index
                if self._stops or worked.is_left:
                    break
        except Exception as error:  # noqa: BLE001 - user code: whatever it is, it is tried again, then told
            failure = error
        return self._end(worked, task, applied, failure)

    def _entries(self, worked: _Worked, task: Task) -> Sequence[PartitionEntry]:
        with self._lock:
            queue = worked.queue
            while queue and queue[0].index < task.low:
                worked.queued_bytes -= len(queue.popleft().payload)
            if queue and queue[0].index == task.low:
                return [queue[at] for at in range(min(len(queue), task.high - task.low))]
        return worked.log.read_some(task.low, task.high - task.low)

    def _end(self, worked: _Worked, task: Task, applied: int, failure: Exception | None) -> bool:
        partition_id = task.partition_id
        with self._lock:
            worked.since_ns = None
            if worked.is_left:
                return False
            self._schedule.advance(partition_id, applied)
            while worked.queue and worked.queue[0].index <= applied:
                worked.queued_bytes -= len(worked.queue.popleft().payload)
            paused = failure is not None and self._schedule.fail(partition_id, self._clock.now_ns())
            if failure is None:
                self._schedule.finish(partition_id)
            self._lock.notify_all()
        if applied >= task.low:
            self._events.append(Progress(partition_id, applied))
        if failure is not None:
            _logger.warning("partition %d: entry %d could not be applied: %s", partition_id, applied + 1, failure)
        if paused and failure is not None:
            _logger.error("partition %d is paused at entry %d", partition_id, applied + 1)
            self._events.append(Alert(partition_id, applied + 1, failure))
        self._notify()
        return True
