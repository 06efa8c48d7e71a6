"""Waiting for a generation, from any thread.

Locks are held for moments; who waits is told outside of them.  Deadlines are kept by whoever looks first: the writer
thread, which sleeps no longer than to the next one, or the waiting thread itself.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Final

from latewood.catalog.generations import Waiter, WaiterHeap, Watermarks
from latewood.catalog.tables.generation import WaiterSnapshot
from latewood.clock import Clock
from latewood.errors import ClosedError, UnavailableError, WaitExpired
from latewood.limits import (
    CATALOG_WAITER_LOOK_MS,
    CATALOG_WAITERS_MAX,
    CATALOG_WAITERS_STORED,
    U32_MAX,
    U64_MAX,
    check_number,
)

_MS: Final = 1_000_000
_LOOK_S: Final = CATALOG_WAITER_LOOK_MS / 1000


class WaitHandle:
    """One wait.  Resolves when the generation comes, the deadline comes, or it is cancelled."""

    def __init__(self, room: "WaitRoom", waiter: Waiter) -> None:
        self.waiter = waiter
        self._room = room
        self._future: Future[int] = Future()

    def wait(self) -> int:
        """Block until it is resolved, and return the component's generation.

        Raises:
            WaitExpired: the deadline came first.
            ClosedError: the catalog was closed, or the wait cancelled.
        """
        while True:
            try:
                return self._future.result(timeout=_LOOK_S)
            except TimeoutError:
                generation = self._room.look(self.waiter)  # Whoever was to tell may have been interrupted.
                if generation is not None and not self._future.done():
                    return generation
                self._room.expire()

    def done(self) -> bool:
        """Say whether it is resolved, in whatever way."""
        return self._future.done()

    def cancel(self) -> bool:
        """Give up waiting, and say whether that was still possible."""
        return self._room.cancel(self)

    def add_done_callback(self, callback: Callable[["WaitHandle"], object]) -> None:
        """Have `callback(self)` called once it is resolved, by the thread that resolves it and under no lock.

        The writer waits meanwhile: be quick, and do not commit from there.
        """
        self._future.add_done_callback(lambda _: callback(self))

    def resolve(self, outcome: int | BaseException) -> None:
        """Tell who waits.  For the room."""
        if isinstance(outcome, BaseException):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome)


class WaitRoom:
    """Everybody who waits for a generation of one catalog."""

    def __init__(self, clock: Clock, watermarks: Watermarks) -> None:
        self._clock, self._watermarks = clock, watermarks
        self._lock = threading.Lock()
        self._heap = WaiterHeap()
        self._handles: dict[int, WaitHandle] = {}
        self._ids = count(1)
        self._closed: ClosedError | None = None

    def register(self, component: int, target: int, deadline_ms: int | None) -> WaitHandle:
        """Return a wait, which may be over already.

        Raises:
            UsageError: these are no numbers that can be stored.
            UnavailableError: too many wait.
            ClosedError: the catalog is closed.
        """
        check_number(component, U32_MAX, "component")
        check_number(target, U64_MAX, "generation")
        if deadline_ms is not None:  # It is stored by the next commit, which others share.
            check_number(deadline_ms, U64_MAX, "deadline_ms")
        now_ms = self._clock.now_ns() // _MS
        patience_end_s = None if deadline_ms is None else time.monotonic() + max(0, deadline_ms - now_ms) / 1000
        outcome: int | BaseException | None = None
        with self._lock:
            self.check_open()
            handle = WaitHandle(self, Waiter(next(self._ids), component, target, deadline_ms, patience_end_s))
            if self._watermarks[component] >= target:
                outcome = self._watermarks[component]
            elif deadline_ms is not None and deadline_ms <= now_ms:
                outcome = _expiry(handle.waiter)
            elif len(self._heap) >= CATALOG_WAITERS_MAX:
                message = f"{CATALOG_WAITERS_MAX:,} wait for a generation already"
                raise UnavailableError(message)
            else:
                self._heap.add(handle.waiter)
                self._handles[handle.waiter.waiter_id] = handle
        if outcome is not None:
            handle.resolve(outcome)
        return handle

    def check_open(self) -> None:
        """Raise ClosedError if nothing more comes."""
        if self._closed:
            raise type(self._closed)(*self._closed.args)

    def abandon(self, reason: ClosedError) -> None:
        """Let nobody wait any more in a forked child; whoever held the lock is not there."""
        self._lock = threading.Lock()
        self._closed = reason

    def look(self, waiter: Waiter) -> int | None:
        """Return where a waiter's component is if its generation has come, else None.

        Raises:
            ClosedError: nothing more comes.
        """
        self.check_open()
        generation = self._watermarks[waiter.component]
        return generation if generation >= waiter.target else None

    def cancel(self, handle: WaitHandle) -> bool:
        """Take somebody out."""
        with self._lock:
            was_waiting = self._heap.cancel(handle.waiter.waiter_id)
            self._handles.pop(handle.waiter.waiter_id, None)
        if was_waiting:
            handle.resolve(ClosedError("the wait was cancelled"))
        return was_waiting

    def announce(self) -> None:
        """Tell everybody whose generation has come.  The writer calls it after each commit."""
        if not self._handles:
            return
        with self._lock:
            generations = self._watermarks.all()
            found = [
                (self._handles.pop(w.waiter_id), generations[w.component]) for w in self._heap.satisfied(generations)
            ]
        _tell(found)

    def expire(self) -> None:
        """Tell everybody whose deadline has come."""
        if not self._handles:
            return
        now_ms = self._clock.now_ns() // _MS
        with self._lock:
            found = [self._handles.pop(w.waiter_id) for w in self._heap.expired(now_ms, time.monotonic())]
        _tell([(handle, _expiry(handle.waiter)) for handle in found])

    def sleep_s(self) -> float | None:
        """Return how long nobody need look at the clock; None: until somebody comes."""
        if not self._handles:
            return None
        with self._lock:
            deadline_ms = self._heap.next_deadline_ms()
        if deadline_ms is None:
            return None
        return min(_LOOK_S, max(0.0, deadline_ms / 1000 - self._clock.now_ns() / 1e9))

    def snapshots(self, component: int) -> tuple[WaiterSnapshot, ...]:
        """Return some of those who wait for a component, for inspection."""
        if not self._handles:
            return ()
        with self._lock:
            waiters = self._heap.of(component, CATALOG_WAITERS_STORED)
        return tuple(
            WaiterSnapshot(waiter_id=w.waiter_id, target_generation=w.target, deadline_ms=w.deadline_ms)
            for w in waiters
        )

    def close(self, reason: ClosedError) -> None:
        """Tell everybody that nothing more comes."""
        with self._lock:
            self._closed = reason
            self._heap.drain()
            handles, self._handles = list(self._handles.values()), {}
        _tell([(handle, type(reason)(*reason.args)) for handle in handles])


def _tell(found: Sequence[tuple[WaitHandle, int | BaseException]]) -> None:
    """Tell each of them, whatever the callback of one raises."""
    for number, (handle, outcome) in enumerate(found, start=1):
        try:
            handle.resolve(outcome)
        except BaseException:
            _tell(found[number:])
            raise


def _expiry(waiter: Waiter) -> WaitExpired:
    return WaitExpired(f"component {waiter.component} did not come to generation {waiter.target} in time")
