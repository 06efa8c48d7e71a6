"""Applying: machines take in the entries of their partitions, one at a time in each, in threads or in the caller's.

What is not in memory is read back from the partition's log.  What happened comes out of `drain`, for the thread that
owns watermarks and backlogs; nothing calls back under a lock.

Threads: `offer`, `drain` and the rest are its owner's; workers run the machines.  `_lock` guards what both touch, and
is never held while a machine runs.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from latewood.clock import Clock
from latewood.errors import NotFoundError, UsageError
from latewood.replica.dispatch import Load
from latewood.replica.machine import PartitionEntry, PartitionStateMachine
from latewood.replica.partition import PartitionLogStore
from latewood.replica.schedule import ApplySchedule, RetryPolicy, Task

_IDLE_S: Final = 1.0
"""A worker looks for itself after this, whatever it was told."""
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


class Applier:
    """The machines of one node at work."""

    def __init__(
        self,
        clock: Clock,
        policy: RetryPolicy | None = None,
        *,
        notify: Callable[[], None] | None = None,
        batch_max: int = 64,
    ) -> None:
        """`notify` is called, by a worker and without a lock, when `drain` has something."""
        self._clock, self._notify = clock, notify or (lambda: None)
        self._schedule = ApplySchedule(policy, batch_max)
        self._partitions: dict[int, _Worked] = {}
        self._events: deque[Progress | Alert] = deque()
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

    @contextmanager
    def exclusive(self, partition_id: int) -> Iterator[tuple[PartitionStateMachine, int]]:
        """Have a partition stand still, and yield its machine and what that has applied: for a snapshot, or an end."""
        with self._lock:
            while not self._schedule.hold(partition_id):
                self._lock.wait(_IDLE_S)
        try:
            yield self._partitions[partition_id].machine, self._schedule.applied(partition_id)
        finally:
            with self._lock:
                self._schedule.finish(partition_id)
                self._lock.notify_all()

    def forget(self, partition_id: int) -> None:
        """Forget a partition, once what is in flight there has ended."""
        with self.exclusive(partition_id), self._lock:
            self._schedule.forget(partition_id)
            del self._partitions[partition_id]

    # -- the work -----------------------------------------------------------------------------------------

    def run_ready(self) -> int:
        """Apply in this thread all that can be applied now; return how many runs that took."""
        count = 0
        while (task := self._take()) is not None:
            self._run(task)
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
        for number in range(threads):
            thread = threading.Thread(target=self._work, name=f"latewood-apply-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads, each after the entry that it applies."""
        with self._lock:
            self._stops = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while not self._stops:
            task = self._take()
            if task is not None:
                self._run(task)
            else:
                self._sleep()

    def _sleep(self) -> None:
        with self._lock:
            if not self._stops and self._schedule.next_due_ns() != 0:
                self._lock.wait(self._wait_s())

    def _wait_s(self) -> float:
        due_ns = self._schedule.next_due_ns()
        return _IDLE_S if due_ns is None else min(_IDLE_S, max(0.0, (due_ns - self._clock.now_ns()) / 1e9))

    def _take(self) -> Task | None:
        with self._lock:
            return self._schedule.take(self._clock.now_ns())

    def _run(self, task: Task) -> None:
        """Apply a task's entries, one after another, as far as that works."""
        worked, applied = self._partitions[task.partition_id], task.low - 1
        failure: Exception | None = None
        try:
            for entry in self._entries(worked, task):
                worked.machine.apply(entry)
                applied = entry.index
                if self._stops:
                    break
        except Exception as error:  # noqa: BLE001 - user code: whatever it is, it is tried again, then told
            failure = error
        self._end(worked, task, applied, failure)

    def _entries(self, worked: _Worked, task: Task) -> Sequence[PartitionEntry]:
        with self._lock:
            queue = worked.queue
            while queue and queue[0].index < task.low:
                worked.queued_bytes -= len(queue.popleft().payload)
            if queue and queue[0].index == task.low:
                return [queue[at] for at in range(min(len(queue), task.high - task.low))]
        return worked.log.read_some(task.low, task.high - task.low)

    def _end(self, worked: _Worked, task: Task, applied: int, failure: Exception | None) -> None:
        partition_id = task.partition_id
        with self._lock:
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
