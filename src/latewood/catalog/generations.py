"""Generations: how far each component has come, and who waits for it to come further.  Pure.

A waiter leaves the heap in one of three ways: its generation comes, its deadline comes, or it is cancelled.  Times are
plain numbers; nothing here has a lock, a thread or a clock.
"""

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from latewood.errors import UsageError


class Waiter(NamedTuple):
    """Somebody who waits until a component has come to a generation."""

    waiter_id: int
    component: int
    target: int
    deadline_ms: int | None = None
    """By the clock that was passed in; None: as long as it takes."""
    patience_end_s: float | None = None
    """The same by the monotonic clock, for when the other one is set back."""


class Watermarks:
    """Each component's generation.  None ever goes back."""

    def __init__(self, generations: Mapping[int, int] | None = None) -> None:
        self._generations = dict(generations or {})

    def __getitem__(self, component: int) -> int:
        return self._generations.get(component, 0)

    def advance(self, generations: Mapping[int, int]) -> None:
        """Take on what was committed.

        Raises:
            UsageError: one would go back.
        """
        for component, generation in generations.items():
            if generation < self[component]:
                message = f"component {component} is at {self[component]}; it cannot go back to {generation}"
                raise UsageError(message)
        self._generations.update(generations)

    def all(self) -> dict[int, int]:
        """Return every component's generation."""
        return dict(self._generations)


class WaiterHeap:
    """Everybody who waits: by component a heap of targets, and one heap of deadlines.

    Who is gone stays in the heaps until it comes to the top; so each heap is rebuilt when most of it is gone.
    """

    def __init__(self) -> None:
        self._living: dict[int, Waiter] = {}
        self._by_target: dict[int, list[tuple[float, int]]] = {}
        self._by_deadline: list[tuple[float, int]] = []
        self._by_patience: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._living)

    def add(self, waiter: Waiter) -> None:
        """Let somebody wait."""
        self._living[waiter.waiter_id] = waiter
        heapq.heappush(self._by_target.setdefault(waiter.component, []), (waiter.target, waiter.waiter_id))
        if waiter.deadline_ms is not None:
            heapq.heappush(self._by_deadline, (waiter.deadline_ms, waiter.waiter_id))
        if waiter.patience_end_s is not None:
            heapq.heappush(self._by_patience, (waiter.patience_end_s, waiter.waiter_id))

    def cancel(self, waiter_id: int) -> bool:
        """Take somebody out, and say whether they were still waiting."""
        gone = self._living.pop(waiter_id, None) is not None
        self._tidy()
        return gone

    def satisfied(self, generations: Mapping[int, int]) -> list[Waiter]:
        """Take out everybody whose generation has come."""
        found: list[Waiter] = []
        for component, generation in generations.items():
            heap = self._by_target.get(component)
            while heap and heap[0][0] <= generation:
                found += self._pop(heap)
        return found

    def expired(self, now_ms: int, monotonic_s: float) -> list[Waiter]:
        """Take out everybody whose deadline has come by either clock."""
        found: list[Waiter] = []
        while self._by_deadline and self._by_deadline[0][0] <= now_ms:
            found += self._pop(self._by_deadline)
        while self._by_patience and self._by_patience[0][0] <= monotonic_s:
            found += self._pop(self._by_patience)
        return found

    def next_deadline_ms(self) -> float | None:
        """Return the earliest deadline, perhaps of somebody who is gone."""
        return self._by_deadline[0][0] if self._by_deadline else None

    def drain(self) -> list[Waiter]:
        """Take out everybody."""
        everybody = list(self._living.values())
        for heap in (self._living, self._by_target, self._by_deadline, self._by_patience):
            heap.clear()
        return everybody

    def of(self, component: int, count_max: int) -> Iterable[Waiter]:
        """Return some of those who wait for a component, those of the lowest targets first."""
        heap = self._by_target.get(component, [])
        alive = (self._living[waiter_id] for _, waiter_id in heap if waiter_id in self._living)
        return heapq.nsmallest(count_max, alive, key=lambda waiter: (waiter.target, waiter.waiter_id))

    def _pop(self, heap: list[tuple[float, int]]) -> list[Waiter]:
        _, waiter_id = heapq.heappop(heap)
        waiter = self._living.pop(waiter_id, None)
        return [] if waiter is None else [waiter]

    def _tidy(self) -> None:
        """Rebuild the heaps if those who are gone are in the majority."""
        size = max(len(self._by_deadline), sum(map(len, self._by_target.values())))
        if size > 64 + 2 * len(self._living):
            everybody = self.drain()
            for waiter in everybody:
                self.add(waiter)
