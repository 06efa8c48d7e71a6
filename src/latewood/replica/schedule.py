"""Whose turn it is to apply: one entry in flight in each partition, partitions side by side.  Pure: time is handed in.

A partition is idle, ready, running, waiting for its next attempt, or paused.  After so many failed attempts at one
entry it is paused, until somebody resumes it; the others go on.

Invariants: a partition is running at most once; entries are applied in order, and none is passed over.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often an entry that cannot be applied is tried again."""

    attempts_max: int = 8
    """After so many failures in a row the partition is paused."""

    first_ms: int = 20
    """The pause after the first failure; it doubles with each."""

    max_ms: int = 5_000
    """No pause is longer."""

    def pause_ms(self, failures: int) -> int:
        """Return the pause after so many failures."""
        return min(self.max_ms, self.first_ms << min(failures - 1, 40))


class Task(NamedTuple):
    """Entries to apply one after another: from `low`, below `high`."""

    partition_id: int
    low: int
    high: int


@dataclass(slots=True)
class _Turn:
    applied: int
    available: int
    failures: int = 0
    is_running: bool = False
    is_queued: bool = False
    is_paused: bool = False
    due_ns: int | None = None


class ApplySchedule:
    """The turns of all partitions.  Its owner guards it."""

    def __init__(self, policy: RetryPolicy | None = None, batch_max: int = 64) -> None:
        self._policy, self._batch_max = policy or RetryPolicy(), batch_max
        self._turns: dict[int, _Turn] = {}
        self._ready: deque[int] = deque()
        self._waiting: list[tuple[int, int]] = []

    def open(self, partition_id: int, applied: int, available: int) -> None:
        """Begin with a partition that has applied up to one index and holds entries up to another."""
        self._turns[partition_id] = _Turn(applied, max(applied, available))
        self._queue(partition_id)

    def offer(self, partition_id: int, available: int) -> None:
        """Say that a partition, new or known, holds entries up to `available`."""
        turn = self._turns.setdefault(partition_id, _Turn(0, 0))
        turn.available = max(turn.available, available)
        self._queue(partition_id)

    def take(self, now_ns: int) -> Task | None:
        """Return what is to be applied next, if anything is; it is running from now on."""
        while self._waiting and self._waiting[0][0] <= now_ns:
            self._wake(*heapq.heappop(self._waiting))
        while self._ready:
            partition_id = self._ready.popleft()
            turn = self._turns.get(partition_id)
            if turn and turn.is_queued:
                turn.is_queued, turn.is_running = False, True
                high = min(turn.available + 1, turn.applied + 1 + self._batch_max)
                return Task(partition_id, turn.applied + 1, high)
        return None

    def advance(self, partition_id: int, index: int) -> None:
        """Note that a running partition has applied everything up to `index`."""
        turn = self._turns[partition_id]
        assert turn.is_running, partition_id
        assert turn.applied <= index <= turn.available, (turn, index)
        turn.failures = 0 if index > turn.applied else turn.failures
        turn.applied = index

    def finish(self, partition_id: int) -> None:
        """End a run: the partition's turn comes again when there is more."""
        if partition_id in self._turns:
            self._turns[partition_id].is_running = False
            self._queue(partition_id)

    def fail(self, partition_id: int, now_ns: int) -> bool:
        """End a run whose next entry could not be applied; say whether the partition is paused now."""
        turn = self._turns.get(partition_id)
        if turn is None:
            return False
        turn.is_running, turn.failures = False, turn.failures + 1
        turn.is_paused = turn.failures >= self._policy.attempts_max
        if not turn.is_paused:
            turn.due_ns = now_ns + self._policy.pause_ms(turn.failures) * 1_000_000
            heapq.heappush(self._waiting, (turn.due_ns, partition_id))
        return turn.is_paused

    def hold(self, partition_id: int) -> bool:
        """Take a partition's turn for something else than applying; say whether it could be had."""
        turn = self._turns[partition_id]
        if turn.is_running:
            return False
        turn.is_running, turn.is_queued = True, False
        return True

    def resume(self, partition_id: int) -> None:
        """Let a paused or waiting partition try again at once."""
        turn = self._turns[partition_id]
        turn.is_paused, turn.failures, turn.due_ns = False, 0, None
        self._queue(partition_id)

    def forget(self, partition_id: int) -> None:
        """Forget a partition that was torn down."""
        self._turns.pop(partition_id, None)

    def applied(self, partition_id: int) -> int:
        """Return how far a partition has applied."""
        return self._turns[partition_id].applied

    def available(self, partition_id: int) -> int:
        """Return up to where a partition holds entries, as far as was said."""
        return self._turns[partition_id].available

    def is_running(self, partition_id: int) -> bool:
        """Say whether a partition is at work."""
        return partition_id in self._turns and self._turns[partition_id].is_running

    def is_paused(self, partition_id: int) -> bool:
        """Say whether a partition waits for somebody to resume it."""
        return partition_id in self._turns and self._turns[partition_id].is_paused

    def is_idle(self) -> bool:
        """Say whether no partition is at work or has its turn."""
        return not any(turn.is_running or turn.is_queued for turn in self._turns.values())

    def next_due_ns(self) -> int | None:
        """Return when the next attempt is due; a time in the past if somebody is ready now."""
        if any(self._turns[one].is_queued for one in self._ready if one in self._turns):
            return 0
        return self._waiting[0][0] if self._waiting else None

    def _wake(self, due_ns: int, partition_id: int) -> None:
        turn = self._turns.get(partition_id)
        if turn and turn.due_ns == due_ns:
            turn.due_ns = None
            self._queue(partition_id)

    def _queue(self, partition_id: int) -> None:
        turn = self._turns[partition_id]
        is_free = not (turn.is_running or turn.is_queued or turn.is_paused or turn.due_ns is not None)
        if is_free and turn.available > turn.applied:
            turn.is_queued = True
            self._ready.append(partition_id)
