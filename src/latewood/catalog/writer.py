"""The writer: one queue, one transaction at a time.

Requests are batches to apply; an empty one is a Sync, which is answered when all before it are durable.  While a
transaction is being made durable others queue up, and the next transaction takes them all.  If several threads have
been committing, the writer also waits for them to come back, at most the commit budget; for one alone it never waits.

The writer is a thread.  But if it is at rest, nothing waits and only one thread has been committing, then that one does
the writer's work itself, for its own batch: it *leads*.  That saves two changes of thread, a third of the time of a
commit.  Meanwhile the writer's thread keeps off, so there is one writer at any moment.

Whoever was answered wakes the next one in line itself: waking all at once would have them fight for the interpreter.
A wake-up that gets lost, because its thread was interrupted, costs the others no more than `_LOST_WAKE_S`; one of
the writer itself no more than `_LOOK_S`.
"""

import logging
import threading
import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from latewood.catalog.commit import Batch, CommitReceipt, Committer
from latewood.catalog.env import LMDBEnv
from latewood.catalog.ops import Op
from latewood.catalog.options import CatalogOptions
from latewood.catalog.waiting import WaitRoom
from latewood.errors import Backpressure, ClosedError, DirectoryReplaced, LatewoodError, Poisoned, UsageError
from latewood.limits import CATALOG_BATCH_OPS_MAX, CATALOG_GROUP_BATCHES_MAX

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop as Loop
    from asyncio import Future as LoopFuture
    from concurrent.futures import Future

    AnyFuture = Future[CommitReceipt] | LoopFuture[CommitReceipt]

_logger: Final = logging.getLogger(__name__)
_LOST_WAKE_S: Final = 0.1
_LOOK_S: Final = 5.0
"""So often the writer looks at its queue though nobody woke it."""
_COMMITS_TO_A_LOOK: Final = 16
"""Commits between two looks at how full the map is."""


class Ticket(Batch):
    """A batch in the queue, and how its sender learns what became of it."""

    __slots__ = ("follower", "future", "is_done", "latch", "loop")

    def __init__(self, ops: Sequence[Op], future: "AnyFuture | None" = None, loop: "Loop | None" = None) -> None:
        super().__init__(ops)
        self.future, self.loop = future, loop
        """Without a future a thread waits at the latch.  A future of asyncio comes with its loop."""
        self.latch = allocate_lock()
        self.latch.acquire()
        self.follower: Ticket | None = None
        self.is_done = False
        """Set after `follower`, and before the latch opens."""


class Writer:
    """Owns the write transaction.  `submit` and `wait` are for any thread, the rest of the work is its own thread's."""

    def __init__(
        self, env: LMDBEnv, options: CatalogOptions, room: WaitRoom, make_committer: Callable[..., Committer]
    ) -> None:
        self._env, self._options, self._room = env, options, room
        self._committer = make_committer(pause=self._pause)
        self._queue: deque[Ticket] = deque()
        self._mutex = threading.Lock()
        self._space = threading.Condition(self._mutex)
        self._space_wanted = 0
        self._wake = allocate_lock()
        self._wake.acquire()
        self._wanted = 0
        """So many batches must wait in the queue for the sleeping writer to be woken; 0: it is awake."""
        self._expected = 1
        """So many threads are committing, as far as the last commit told."""
        self._leader = 0
        """The thread that leads, 0: none does.  While one does, the writer's thread begins nothing."""
        self._is_busy = False
        """Whether the writer's thread is about its work.  While it is, nobody leads."""
        self._commits = 0
        self._is_stopping = False
        self._hurry = threading.Event()
        self._broken: Exception | None = None
        """What went wrong while a thread led; the writer's thread ends over it."""
        self._last: Callable[[], Sequence[Op]] | None = None
        self._closed: ClosedError | None = None
        self._thread = threading.Thread(target=self._run, name="latewood-catalog-writer", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def commit(self, ops: Sequence[Op]) -> CommitReceipt:
        """Make a batch durable and return its receipt, or raise its error.

        Raises:
            UsageError: the calling thread is in a callback of the catalog, or in the middle of reading it.
            Backpressure, ClosedError, Poisoned: as `submit` does.
        """
        me = threading.get_ident()
        if self.is_mine:
            message = "a callback of the catalog must not wait for a commit: the writer would wait for itself"
            raise UsageError(message)
        if self._env.is_read_here:
            message = "commit after `read`, not in its callback: the map could not grow"
            raise UsageError(message)
        ticket = Ticket(ops)
        try:
            self._submit(ticket, me)
            if self._leader == me:
                self._lead(ticket)
            else:
                self._wait(ticket)
        finally:
            if self._leader == me:  # An interrupt came before the work began, or as it ended.
                self._step_down()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.receipt is not None
        return ticket.receipt

    def submit(self, ops: Sequence[Op], future: "AnyFuture", loop: "Loop | None" = None) -> None:
        """Put a batch into the queue, and have the future tell what becomes of it; one of asyncio comes with its loop.

        Raises:
            UsageError: too many operations.
            Backpressure: the queue stayed full; for a loop, which must not wait: it is full.
            ClosedError: the catalog is closed; Poisoned: a commit failed.
        """
        self._submit(Ticket(ops, future, loop), 0)

    def _submit(self, ticket: Ticket, leader: int) -> None:
        """Put a batch into the queue, or make its thread the leader if that is faster."""
        if len(ticket.ops) > CATALOG_BATCH_OPS_MAX:
            message = f"{len(ticket.ops):,} operations in one batch; at most {CATALOG_BATCH_OPS_MAX:,}"
            raise UsageError(message)
        with self._mutex:
            if self._closed or self._is_stopping:
                raise self._refusal()
            if leader and self._expected == 1 and not (self._is_busy or self._leader or self._queue):
                self._leader = leader
                return
            if len(self._queue) >= self._options.queue_batches_max:
                self._wait_for_space(0 if ticket.loop else self._options.queue_wait_ms / 1000)
            self._queue.append(ticket)
            must_wake = 0 < self._wanted <= len(self._queue) and not self._leader
            if must_wake:
                self._wanted = 0
        if must_wake:
            self._ring()

    def _lead(self, ticket: Ticket) -> None:
        """Do the writer's work for one batch, in the thread that sent it."""
        try:
            self._committer.commit((ticket,))
            self._look_at_map()
        except Exception as error:
            with self._mutex:
                self._broken = error
            raise
        finally:
            self._step_down()
        self._room.announce()

    def _step_down(self) -> None:
        """Let the writer's thread, or another leader, begin."""
        with self._mutex:
            self._leader = 0
            self._expected = 1 + len(self._queue)
            must_wake = self._wanted > 0 and bool(self._queue or self._broken or self._is_stopping)
            if must_wake:
                self._wanted = 0
        if must_wake:
            self._ring()

    def _wait(self, ticket: Ticket) -> None:
        """Return once a batch was answered, and wake the next in line."""
        try:
            while not ticket.is_done:
                ticket.latch.acquire(timeout=_LOST_WAKE_S)
        finally:
            if ticket.is_done and ticket.follower is not None:
                follower, ticket.follower = ticket.follower, None
                follower.latch.release()

    def poke(self) -> None:
        """Have the writer look at clock and queue anew."""
        with self._mutex:
            must_wake, self._wanted = self._wanted > 0, 0
        if must_wake:
            self._ring()

    def _ring(self) -> None:
        with suppress(RuntimeError):  # It woke by itself, because this came too late.
            self._wake.release()

    def stop(self, last: Callable[[], Sequence[Op]]) -> None:
        """Commit what is in the queue, then `last()`, tell who waits, and end.

        Raises:
            Poisoned: a commit failed, now or before.
        """
        with self._mutex:
            self._last = self._last or last
            self._is_stopping = True
        self._hurry.set()
        self.poke()
        self._thread.join()
        if isinstance(self._closed, Poisoned | DirectoryReplaced):
            raise self._refusal()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is the writer's, or leads: it must not wait for the writer."""
        return threading.get_ident() in (self._thread.ident, self._leader)

    @property
    def is_alive(self) -> bool:
        """Whether its thread may still touch the environment."""
        return self._thread.is_alive()

    def abandon(self, reason: ClosedError) -> None:
        """Refuse all further use in a forked child, in which the thread does not exist."""
        self._mutex = threading.Lock()
        self._closed = reason

    # -- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        reason: ClosedError = ClosedError("the catalog is closed; open it again")
        try:
            while group := self._take():
                self._serve(group)
            if self._last:
                self._serve([Ticket(self._last())])
        except DirectoryReplaced as error:
            reason = error  # Every caller is told, and whoever closes.
        except Poisoned as error:
            reason = error
            _logger.error("%s", error)  # noqa: TRY400 - the stack says nothing that the text does not
        except BaseException as error:
            _logger.exception("the writer of the catalog")
            reason = Poisoned(f"the writer broke: {error!r}; reopen the catalog")
            reason.__cause__ = error
        finally:
            self._end(reason)

    def _take(self) -> list[Ticket]:
        """Return the next group; none at the end."""
        gather_end_s = 0.0
        while True:
            with self._mutex:
                if self._broken:
                    raise self._broken
                waiting = 0 if self._leader else len(self._queue)
                if waiting >= self._expected or (waiting and self._is_stopping):
                    return self._pop()
                if self._is_stopping and not self._leader:
                    return []
                now_s = time.monotonic()
                if waiting and not gather_end_s:
                    gather_end_s = now_s + self._options.commit_budget_us / 1e6
                if waiting and now_s >= gather_end_s:
                    return self._pop()
                self._wanted = self._expected if waiting else 1
            self._sleep(gather_end_s - now_s if waiting else self._room.sleep_s())
            if not waiting:
                self._room.expire()

    def _pop(self) -> list[Ticket]:
        queue = self._queue
        group = [queue.popleft() for _ in range(min(len(queue), CATALOG_GROUP_BATCHES_MAX))]
        self._is_busy = True
        if self._space_wanted:
            self._space.notify_all()
        return group

    def _sleep(self, seconds: float | None) -> None:
        """Sleep until woken, at most so long; and never for ever: whoever was to ring may have been interrupted."""
        if self._wake.acquire(timeout=_LOOK_S if seconds is None else max(0.0, min(seconds, _LOOK_S))):
            return
        with self._mutex:
            was_woken, self._wanted = self._wanted == 0, 0
        if was_woken:
            self._wake.acquire(timeout=_LOST_WAKE_S)

    def _serve(self, group: list[Ticket]) -> None:
        try:
            self._committer.commit(group)
        except BaseException as error:
            self._fail(group, error)
            raise
        self._look_at_map()
        self._answer(group)
        self._announce()

    def _look_at_map(self) -> None:
        self._commits += 1
        if self._commits % _COMMITS_TO_A_LOOK == 0 and self._env.is_low():
            try:
                self._env.grow(patient=False)  # If readers are in the way: at the next look, or when the map is full.
            except LatewoodError as error:  # What was committed is durable all the same.
                _logger.warning("%s", error)

    def _announce(self) -> None:
        try:
            self._room.announce()
        except BaseException:
            _logger.exception("a callback of somebody who waited for a generation")

    def _answer(self, group: list[Ticket]) -> None:
        waiting = [ticket for ticket in group if ticket.future is None]
        for ticket, follower in pairwise(waiting):
            ticket.follower = follower
        for ticket in waiting:
            ticket.is_done = True
        in_loops = [ticket for ticket in group if ticket.loop is not None]
        with self._mutex:
            self._expected = max(1, len(waiting) + len(in_loops) + len(self._queue))
            self._is_busy = False
        if waiting:
            waiting[0].latch.release()
        for ticket in group:
            if ticket.future is not None and ticket.loop is None:
                _settle_safely(ticket)
        for loop in {ticket.loop for ticket in in_loops}:
            _settle_in(loop, [ticket for ticket in in_loops if ticket.loop is loop])

    def _fail(self, group: list[Ticket], error: BaseException) -> None:
        for ticket in group:
            if ticket.receipt is None and ticket.error is None:
                ticket.error = _copy(error)
        self._answer(group)

    def _end(self, reason: ClosedError) -> None:
        with self._mutex:
            self._closed = reason
            rest = list(self._queue)
            self._queue.clear()
            self._space.notify_all()
        self._fail(rest, reason)
        self._room.close(reason)

    def _pause(self, seconds: float) -> None:
        self._hurry.wait(seconds)

    def _wait_for_space(self, seconds: float) -> None:
        """Wait until the queue has room.  Holds the mutex, but while it sleeps."""
        self._space_wanted += 1
        try:
            has_space = self._space.wait_for(
                lambda: self._closed or self._is_stopping or len(self._queue) < self._options.queue_batches_max,
                seconds,
            )
        finally:
            self._space_wanted -= 1
        if self._closed or self._is_stopping:
            raise self._refusal()
        if not has_space:
            message = f"{len(self._queue):,} batches wait for the writer; nothing was written"
            raise Backpressure(message)

    def _refusal(self) -> LatewoodError:
        reason = self._closed or ClosedError("the catalog is being closed; open it again")
        return type(reason)(*reason.args)


def _copy(error: BaseException) -> BaseException:
    """Return an error for one of several threads to raise; ours can be made again from their arguments."""
    return type(error)(*error.args) if isinstance(error, LatewoodError) else error


def _settle(ticket: Ticket) -> None:
    assert ticket.future is not None
    if ticket.error is not None:
        ticket.future.set_exception(ticket.error)
    else:
        assert ticket.receipt is not None
        ticket.future.set_result(ticket.receipt)


def _settle_safely(ticket: Ticket) -> None:
    """Tell who waits; what their callbacks raise, though it be no Exception, must not end the writer."""
    try:
        _settle(ticket)
    except BaseException:
        _logger.exception("a callback of a commit")


def _settle_in(loop: "Loop | None", tickets: Sequence[Ticket]) -> None:
    """Tell all coroutines of one loop at once: waking a loop costs as much as a coroutine does."""
    assert loop is not None
    with suppress(RuntimeError):  # The loop was closed; nobody waits.
        loop.call_soon_threadsafe(_settle_all, tickets)


def _settle_all(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        if ticket.future is not None and not ticket.future.done():  # A coroutine may have been cancelled.
            _settle(ticket)
