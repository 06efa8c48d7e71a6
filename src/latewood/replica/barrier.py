"""Barriers: wait until partitions have applied everything up to a global index.

`BarrierBoard` decides and is pure: time is handed in, and it returns who is to be told.  `Barriers` is the asyncio
shell around it, owned by one event loop.  A waiter costs an entry in a heap for each partition that is behind.

Nobody waits for ever: each waiter has a deadline, kept by a timer.  Nobody takes all: each client may have so many
waiters, and begin so many in a second.
"""

import asyncio
import heapq
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from latewood.clock import Clock
from latewood.errors import Overloaded, UnavailableError, UsageError, WaitExpired

_SECOND_NS: Final = 1_000_000_000
_CLIENTS_SOME: Final = 1_024
"""From so many known clients on, those that are idle are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierLimits:
    """What one client may ask for."""

    waiters_per_client: int = 64
    """At a time: a client that leaks them is told, and harms nobody else."""

    waiters_max: int = 65_536
    """Of all clients together."""

    starts_per_second: int = 1_000
    """And as many at once after a pause."""

    wait_max_ms: int = 60_000
    """A longer wait is cut to this."""


@dataclass(slots=True)
class _Waiter:
    client: str
    target: int
    partitions: frozenset[int]
    deadline_ns: int
    missing: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Client:
    waiters: int = 0
    tokens: float = 0.0
    refilled_ns: int = 0


class BarrierBoard:
    """Who waits for what.  Owned by one thread."""

    def __init__(self, through: Callable[[int], int], limits: BarrierLimits | None = None) -> None:
        """`through` says up to which global index nothing of a partition is outstanding."""
        self._through = through
        self._limits = limits or BarrierLimits()
        self._ids = count(1)
        self._waiters: dict[int, _Waiter] = {}
        self._clients: dict[str, _Client] = {}
        self._behind: dict[int, list[tuple[int, int]]] = {}
        """For each partition, (target, waiter) of those that wait for it."""
        self._unrouted: list[tuple[int, int]] = []
        """(target, waiter) of those whose target is not routed yet."""
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def begin(
        self, client: str, target: int, partitions: Collection[int], deadline_ns: int, now_ns: int, *, routed: int
    ) -> int | None:
        """Begin to wait; return the waiter's id, or None if there is nothing to wait for.

        Raises:
            Overloaded: this client, or all of them, wait for too much already.
        """
        if target <= routed and not self._missing(target, partitions):
            return None
        self._admit(client, now_ns)
        waiter_id = next(self._ids)
        deadline_ns = min(deadline_ns, now_ns + self._limits.wait_max_ms * 1_000_000)
        waiter = self._waiters[waiter_id] = _Waiter(client, target, frozenset(partitions), deadline_ns)
        heapq.heappush(self._deadlines, (deadline_ns, waiter_id))
        if target > routed:
            heapq.heappush(self._unrouted, (target, waiter_id))
        else:
            self._wait_for_partitions(waiter_id, waiter)
        return waiter_id

    def routed(self, index: int) -> list[int]:
        """Note that the parent log was routed up to `index`; return the waiters that have all they want."""
        done = []
        while self._unrouted and self._unrouted[0][0] <= index:
            _, waiter_id = heapq.heappop(self._unrouted)
            waiter = self._waiters.get(waiter_id)
            if waiter and not self._wait_for_partitions(waiter_id, waiter):
                done.append(waiter_id)
        return [self._end(waiter_id) for waiter_id in done]

    def applied(self, partition_id: int) -> list[int]:
        """Note that a partition has moved; return the waiters that have all they want."""
        heap, through = self._behind.get(partition_id, []), self._through(partition_id)
        done = []
        while heap and heap[0][0] <= through:
            _, waiter_id = heapq.heappop(heap)
            waiter = self._waiters.get(waiter_id)
            if waiter:
                waiter.missing.discard(partition_id)
                done += [] if waiter.missing else [waiter_id]
        if not heap:
            self._behind.pop(partition_id, None)
        return [self._end(waiter_id) for waiter_id in done]

    def expire(self, now_ns: int) -> list[int]:
        """Return the waiters whose deadline has come; they wait no more."""
        done = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            _, waiter_id = heapq.heappop(self._deadlines)
            done += [waiter_id] if waiter_id in self._waiters else []
        return [self._end(waiter_id) for waiter_id in done]

    def cancel(self, waiter_id: int) -> None:
        """Forget a waiter that has gone; one that is done is fine."""
        if waiter_id in self._waiters:
            self._end(waiter_id)

    def next_deadline_ns(self) -> int | None:
        """Return when `expire` has something to do."""
        while self._deadlines and self._deadlines[0][1] not in self._waiters:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _missing(self, target: int, partitions: Iterable[int]) -> set[int]:
        return {partition_id for partition_id in partitions if self._through(partition_id) < target}

    def _wait_for_partitions(self, waiter_id: int, waiter: _Waiter) -> bool:
        """Register a waiter with the partitions that are behind; say whether there are any."""
        waiter.missing = self._missing(waiter.target, waiter.partitions)
        for partition_id in waiter.missing:
            heapq.heappush(self._behind.setdefault(partition_id, []), (waiter.target, waiter_id))
        return bool(waiter.missing)

    def _admit(self, name: str, now_ns: int) -> None:
        limits = self._limits
        if len(self._waiters) >= limits.waiters_max:
            raise Overloaded(None, "waiters", len(self._waiters) + 1, limits.waiters_max)
        if name not in self._clients:
            self._forget_idle(now_ns)
        client = self._clients.setdefault(name, _Client(tokens=limits.starts_per_second, refilled_ns=now_ns))
        if client.waiters >= limits.waiters_per_client:
            raise Overloaded(None, f"waiters of {name}", client.waiters + 1, limits.waiters_per_client)
        passed_s = max(0, now_ns - client.refilled_ns) / _SECOND_NS
        client.tokens = min(limits.starts_per_second, client.tokens + passed_s * limits.starts_per_second)
        client.refilled_ns = now_ns
        if client.tokens < 1:
            raise Overloaded(None, f"waits a second of {name}", limits.starts_per_second + 1, limits.starts_per_second)
        client.tokens -= 1
        client.waiters += 1

    def _end(self, waiter_id: int) -> int:
        waiter = self._waiters.pop(waiter_id)
        self._clients[waiter.client].waiters -= 1
        return waiter_id

    def _forget_idle(self, now_ns: int) -> None:
        """Forget clients that wait for nothing and have begun nothing for a second: a new one would have as much."""
        if len(self._clients) >= _CLIENTS_SOME:
            full_ns = now_ns - _SECOND_NS
            self._clients = {
                name: client for name, client in self._clients.items() if client.waiters or client.refilled_ns > full_ns
            }


class Barriers:
    """Barriers for coroutines.  Owned by one event loop; `routed` and `applied` are called there."""

    def __init__(
        self, through: Callable[[int], int], clock: Clock, limits: BarrierLimits | None = None, *, routed: int = 0
    ) -> None:
        self._board = BarrierBoard(through, limits)
        self._clock, self._routed = clock, routed
        self._futures: dict[int, asyncio.Future[bool]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, client: str, target: int, partitions: Collection[int], timeout_s: float) -> None:
        """Return once the partitions have applied everything up to the global index `target`.

        Raises:
            WaitExpired: the time ran out; they go on all the same.
            Overloaded: this client, or all of them, wait for too much already.
            UsageError: the time is not above 0.
            UnavailableError: the node opens its storage anew, or stops.
        """
        if not timeout_s > 0:
            message = f"a barrier waits for a time above 0, not {timeout_s!r}"
            raise UsageError(message)
        now_ns = self._clock.now_ns()
        deadline_ns = now_ns + int(timeout_s * _SECOND_NS)
        waiter_id = self._board.begin(client, target, partitions, deadline_ns, now_ns, routed=self._routed)
        if waiter_id is None:
            return
        future = self._futures[waiter_id] = asyncio.get_running_loop().create_future()
        self._arm()
        try:
            reached = await future
        finally:
            self._board.cancel(waiter_id)
            self._futures.pop(waiter_id, None)
        if not reached:
            message = f"the partitions had not applied entry {target} in time"
            raise WaitExpired(message)

    @property
    def is_waiting(self) -> bool:
        """Whether anybody waits; else `applied` need not be told."""
        return bool(self._futures)

    def routed(self, index: int) -> None:
        """Note that the parent log was routed up to `index`."""
        self._routed = index
        self._tell(self._board.routed(index), reached=True)

    def applied(self, partition_id: int) -> None:
        """Note that a partition has applied something."""
        self._tell(self._board.applied(partition_id), reached=True)

    def expire(self) -> None:
        """Tell those whose time has run out; the timer calls it."""
        self._timer = None
        self._tell(self._board.expire(self._clock.now_ns()), reached=False)
        self._arm()

    def close(self) -> None:
        """Tell everybody that what they wait for does not come to pass here."""
        if self._timer is not None:
            self._timer.cancel()
        for future in self._futures.values():
            if not future.done():
                message = "the node opens its storage anew, or stops; try again"
                future.set_exception(UnavailableError(message))

    def _tell(self, waiter_ids: Iterable[int], *, reached: bool) -> None:
        for waiter_id in waiter_ids:
            future = self._futures.get(waiter_id)
            if future and not future.done():
                future.set_result(reached)

    def _arm(self) -> None:
        due_ns = self._board.next_deadline_ns()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ns is not None:
            wait_s = max(0, due_ns - self._clock.now_ns()) / _SECOND_NS
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.expire)
