"""One life of a node's engine: from recovery to a stop, or to the installation of a snapshot.

The event loop's thread owns the engine, and mostly the partitions too.  What would keep it for long, such as making a
partition or writing a snapshot, is done by a thread that the partitions are *lent* to; meanwhile committed entries and
new requests wait, and Raft goes on.  One more thread syncs them for a snapshot, beside all that.

A node leads for its clients once it has routed an entry of its own term: then everything that was in its log before is
in its partitions, answers included, and numbers go on behind that.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from latewood.clock import Clock
from latewood.errors import ClosedError, DiskFull, UnavailableError
from latewood.limits import KiB
from latewood.replica.apply import Alert, Progress
from latewood.replica.barrier import Barriers
from latewood.replica.driver import EngineLoop
from latewood.replica.engine import Entry, Message, ReadState, Role, Snapshot
from latewood.replica.grouping import GroupReplies
from latewood.replica.guard import GuardedStore
from latewood.replica.hanging import HangWatch
from latewood.replica.pending import Answering, Proposed
from latewood.replica.raft_rs import RaftOptions, RaftRsEngine, forgotten, missing
from latewood.replica.read_points import ReadPoints
from latewood.replica.recovery import RecoveredNode, close_node, following_indices
from latewood.replica.replies import NotLeader, Refused
from latewood.replica.requests import AppendGroup
from latewood.replica.routing import Committed
from latewood.replica.slow import births, slow_count
from latewood.replica.surroundings import Surroundings
from latewood.replica.writing import Writer, WriteRequest

_FULL_RETRY_S: Final = 1.0
"""With a full disk, committed entries are tried again so often."""
_LATER_S: Final = 0.005
"""A follower takes what little was committed to the partitions so much later, at once, unless somebody asks."""
_LATER_BYTES: Final = 16 * KiB
"""More than this is not left for later."""

_logger = logging.getLogger(__name__)


class Core:
    """The engine, the parent log and the partitions of one node, at work.  Owned by the event loop's thread."""

    def __init__(
        self,
        node_id: int,
        node: RecoveredNode,
        around: Surroundings,
        clock: Clock,
        options: RaftOptions,
        payload_bytes_max: int,
    ) -> None:
        self.node_id, self.node, self._around = node_id, node, around
        self.store, self.machine = node.store, node.machine
        self.parts = node.machine.parts
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.guard = GuardedStore(node.store, lambda: loop.call_soon_threadsafe(around.on_installed))
        recovered = node.store.recover(node.applied)
        self.engine = RaftRsEngine(node_id, recovered, options)
        self.raft: EngineLoop[Proposed] = EngineLoop(self.engine, self.guard, recovered, self)
        self.writer = Writer(self.machine, clock, self.raft.propose, payload_bytes_max)
        self.barriers = Barriers(self.parts.watermarks.applied_through, clock, routed=self.parts.watermarks.routed)
        self.parent_bytes = 0
        """Of entries that were handed on since the last snapshot was begun."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="latewood-partitions")
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="latewood-aside")
        self._hangs = HangWatch(self.parts.applier)
        self._is_lent = False
        self.is_closed = False
        """Whether it has ended; looked at by the thread that has the partitions, too."""
        self._handed: deque[Sequence[Committed]] = deque()
        self._later: list[Committed] = []
        """Committed, and left for later."""
        self._later_bytes = 0
        self._requests: deque[Callable[[], None]] = deque()
        self._books: deque[Callable[[], None]] = deque()
        self._leading_term = 0
        self._kept = 0
        """Up to here it is durable what is committed, as far as that was asked for."""
        self._reads = ReadPoints(lambda context: self.raft.act(lambda: self.engine.read_index(context)))
        self._routed: list[tuple[int, int, asyncio.Future[None]]] = []

    # -- figures ------------------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        """Who leads, as far as we know; 0: nobody."""
        return self.raft.driver.leader

    @property
    def is_leading(self) -> bool:
        """Whether requests are taken."""
        driver = self.raft.driver
        return driver.role == Role.LEADER and self._leading_term == driver.term and self.raft.failure is None

    @property
    def is_at_work(self) -> bool:
        """Whether a thread has the partitions at this moment: nobody else may look at them."""
        return self._is_lent

    @property
    def is_lent(self) -> bool:
        """Whether a thread has the partitions, or is to have them next."""
        return self._is_lent or bool(self._handed)

    def not_leader(self) -> NotLeader:
        """Return who should be asked instead."""
        leader = self.leader if self.leader != self.node_id else 0
        return NotLeader(0, leader, self._around.leader_address(leader) if leader else "")

    # -- from the node ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let one unit of time pass."""
        self.raft.tick()
        self._hangs.tick()
        self._look_at_role()
        if self.is_leading and (lost := missing(self.engine.status(), self.store.path)):
            self.fail(lost)

    def append(self, request: WriteRequest, answering: Answering, *, ours: bool = False) -> None:
        """Append records to a partition, which may be one of `ours`; `answering` hears of the end, now or later."""
        if not self.is_leading:
            answering(self.not_leader())
        elif self.is_lent:
            self._requests.append(lambda: self.append(request, answering, ours=ours))
        elif ours:
            self.writer.append(request, answering)
        else:
            self.writer.append_named(request, answering)

    def append_group(self, group: AppendGroup, replies: GroupReplies) -> None:
        """Append records to several partitions; `replies` hear of each end, now or later."""
        if not self.is_leading:
            for place in range(len(group.partitions)):
                replies.answer(place, self.not_leader())
        elif self.is_lent:
            self._requests.append(lambda: self.append_group(group, replies))
        else:
            self.writer.append_group(group, replies)

    def tear_down(self, partition: int, answering: Answering) -> None:
        """Remove a partition."""
        if not self.is_leading:
            answering(self.not_leader())
        elif self.is_lent:
            self._requests.append(lambda: self.tear_down(partition, answering))
        else:
            self.writer.tear_down(partition, answering)

    async def read_point(self, timeout_s: float) -> None:
        """Return when a read sees everything that was acknowledged before the call.

        Raises:
            UnavailableError: we do not lead, or nobody confirmed in time that we do.
        """
        if not self.is_leading:
            raise UnavailableError("this node does not lead")
        try:
            async with asyncio.timeout(timeout_s):
                await self.routed(await self._reads.index())
        except TimeoutError:
            raise UnavailableError("no majority has confirmed in time that this node leads") from None

    async def routed(self, index: int) -> None:
        """Return when everything up to a global index has come to its partition here."""
        self._catch_up()
        if self.parts.watermarks.routed < index:
            future = self._loop.create_future()
            heapq.heappush(self._routed, (index, id(future), future))
            await future

    async def ours(self) -> None:
        """Return when the partitions are the event loop's own, and nothing is left for later.

        Perhaps not all entries are routed.
        """
        self._catch_up()
        while self._is_lent and not self.is_closed:
            future: asyncio.Future[None] = self._loop.create_future()
            self._requests.append(lambda done=future: None if done.done() else done.set_result(None))  # type: ignore[misc]
            await future
            self._catch_up()

    async def lend(self, work: Callable[[], None]) -> None:
        """Have a thread work with the partitions; committed entries and requests wait meanwhile.

        Raises:
            ClosedError: the core was closed.
        """
        await self.ours()
        if self.is_closed or self.raft.failure is not None:
            raise ClosedError("the node has stopped")
        self._is_lent = True
        try:
            await self._loop.run_in_executor(self._thread, work)
        finally:
            self._is_lent = False
            self._go_on()

    async def aside(self, work: Callable[[], None]) -> None:
        """Have a thread do what may be done while the partitions are at work; closing waits for it."""
        await self._loop.run_in_executor(self._aside, work)

    def fail(self, error: BaseException) -> None:
        """Stop, because of what happened beside the engine."""
        self.raft.fail(error)

    def collect(self) -> None:
        """Learn what the machines have done."""
        if not self._is_lent and not self.is_closed:
            self._tell(self.machine.collect())
            if self.parts.applier.damage is not None:
                self.fail(self.parts.applier.damage)

    def note(self, events: Sequence[Progress | Alert]) -> None:
        """Tell those who wait for it what the machines have done, when the partitions are ours."""
        self._when_ours(lambda: self._tell(events))

    def _tell(self, events: Sequence[Progress | Alert]) -> None:
        moved = self.machine.moved()
        moved.update([event.partition_id for event in events])
        if self.barriers.is_waiting:
            for partition_id in moved:
                self.barriers.applied(partition_id)
        if moved:
            self._around.on_applied(moved)

    async def close(self) -> None:
        """Stop, and release everything.

        A thread that has the partitions may wait for the event loop, so the event loop must not wait for it.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self.raft.close()
        self._reads.fail("the node stops")
        self.barriers.close()
        self._bring_up_books()
        self._run_requests()
        for _, _, future in self._routed:
            if not future.done():
                future.set_exception(UnavailableError("the node opens its storage anew, or stops; try again"))
        await self._loop.run_in_executor(None, self._release)

    def _release(self) -> None:
        self._thread.shutdown()
        self._aside.shutdown()
        close_node(self.node)

    # -- from the engine ----------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages."""
        self._around.send(messages)

    def hand_on(self, entries: Sequence[Entry]) -> None:
        """Take committed entries to their partitions, or have them wait."""
        size = sum([len(entry.data) for entry in entries])
        self.parent_bytes += size
        self._later += map(Committed, entries)
        self._later_bytes += size
        if not self._may_wait():
            self._hand_later()
        elif len(self._later) == len(entries):
            self._loop.call_later(_LATER_S, self._catch_up)

    def on_reads(self, reads: Sequence[ReadState]) -> None:
        """Take the answers to `read_index`."""
        self._reads.answered(reads)

    def on_settled(self, done: list[tuple[Proposed, int]], lost: list[Proposed]) -> None:
        """Answer requests."""
        self.writer.settle(done)
        if lost:
            self._when_ours(lambda: self.writer.lose(lost))

    def on_refused(self, tokens: list[Proposed]) -> None:
        """Refuse requests that the engine did not take."""
        if self.raft.driver.role == Role.LEADER:
            reason = "too much waits for a majority, or the leader hands over; try again"
            self._when_ours(lambda: self.writer.refuse(tokens, Refused(0, "overloaded", reason, retryable=True)))
        else:
            self._when_ours(lambda: self.writer.refuse(tokens, self.not_leader()))

    def on_failure(self, error: BaseException) -> None:
        """Take note that the engine has stopped."""
        self._around.on_failure(forgotten(error, self.store.path) or error)

    # -- inside -------------------------------------------------------------------------------------------

    def _may_wait(self) -> bool:
        """Say whether what was committed may be left for later: nobody waits for it here, and it is not much."""
        is_asked = self._routed or self.barriers.is_waiting or self._around.is_watched
        is_free = not self._is_lent and self.raft.driver.role != Role.LEADER
        return is_free and not is_asked and self._later_bytes <= _LATER_BYTES

    def _hand_later(self) -> None:
        """Take what was left for later to the partitions, or have it wait for them."""
        self._handed.append(self._later)
        self._later, self._later_bytes = [], 0
        if not self._is_lent:
            self._route()

    def _catch_up(self) -> None:
        if self._later and not self.is_closed:
            self.raft.act(self._hand_later)

    def _route(self) -> None:
        """Take what was handed on to the partitions; if one is made, removed or rolls, a thread does it."""
        while self._handed and not self._is_lent and not self.is_closed:
            routed = self.parts.watermarks.routed
            entries = self._handed[0] = [entry for entry in self._handed[0] if entry.index > routed]
            try:
                if quick := self.machine.route_quickly(entries, self.store.durable_index):
                    entries = self._handed[0] = entries[quick:]
                    self._after_routing()
                if entries and not self._route_carefully(entries):
                    return
            except DiskFull as error:
                self._wait_for_room(error)
                return
            self._handed.popleft()
        if not self.is_lent:
            self.writer.forget_settled()
        self._look_at_role()

    def _route_carefully(self, entries: Sequence[Committed]) -> bool:
        """Route what is not quick, here or by a thread; say whether it is done."""
        if any(entry.tears_down for entry in entries) and not self._is_kept(entries[-1].index):
            return False
        if (count := slow_count(entries, self._has_room)) is not None:
            self._route_slowly(entries[:count])
            return False
        self.machine.route(entries, self.store.durable_index)
        self._after_routing()
        return True

    def _is_kept(self, index: int) -> bool:
        """Say whether it is durable that an entry is committed; if not, have it made so, and go on then.

        A teardown removes files.  Who forgets that it was committed would look for them after a restart.
        """
        if self._kept >= index:
            return True
        self._is_lent = True

        def go_on() -> None:
            self._kept, self._is_lent = index, False
            self._go_on()

        def work() -> None:
            self.store.keep_commit(index)
            self._loop.call_soon_threadsafe(go_on)

        self.raft.on_store(work)
        return False

    def _has_room(self, partition_id: int, size: int) -> bool | None:
        partition = self.parts.roster.get(partition_id)
        return None if partition is None else partition.takes(size)

    def _route_slowly(self, entries: Sequence[Committed]) -> None:
        self._is_lent = True

        def work() -> None:
            self.machine.prepare(births(entries))
            self.machine.route(entries, self.store.durable_index)

        future = self._loop.run_in_executor(self._thread, work)
        future.add_done_callback(partial(self._routed_slowly, len(entries)))

    def _routed_slowly(self, count: int, done: "asyncio.Future[None]") -> None:
        self._is_lent = False
        if self.is_closed:
            return
        error = done.exception()
        if isinstance(error, DiskFull):
            self.raft.act(lambda: self._wait_for_room(error))
        elif error is not None:
            self.fail(error)
        else:
            rest = self._handed.popleft()[count:]
            if rest:
                self._handed.appendleft(rest)
            self._after_routing()
            self._run_requests()  # Those that only look have their turn, however much is left to route.
            self._loop.call_soon(self._go_on)

    def _wait_for_room(self, error: DiskFull) -> None:
        """Try again later; but a leader that cannot route answers nobody, so it ends, and others elect another.

        Raises:
            DiskFull: we lead.
        """
        if self.raft.driver.role == Role.LEADER:
            raise error
        _logger.warning("committed entries wait for room on the disk: %s", error)
        self._is_lent = True

        def again() -> None:
            self._is_lent = False
            self._go_on()

        self._loop.call_later(_FULL_RETRY_S, again)

    def _when_ours(self, action: Callable[[], None]) -> None:
        """Do what changes the partitions' books when no thread has them, and before anything else does."""
        self._books.append(action)
        if not self._is_lent or self.is_closed:
            self._bring_up_books()

    def _bring_up_books(self) -> None:
        while self._books:
            self._books.popleft()()

    def _go_on(self) -> None:
        """Do what has waited while the partitions were lent."""
        if self.is_closed or self._is_lent:  # Else they were lent anew: whoever has them now will call.
            return
        self._bring_up_books()
        self.raft.act(self._route)
        if not self.is_lent:
            self.collect()
            self._run_requests()

    def _run_requests(self) -> None:
        requests, self._requests = self._requests, deque()
        for request in requests:
            request()

    def _after_routing(self) -> None:
        routed = self.parts.watermarks.routed
        self.barriers.routed(routed)
        while self._routed and self._routed[0][0] <= routed:
            future = heapq.heappop(self._routed)[2]
            if not future.done():
                future.set_result(None)
        self.collect()

    def _look_at_role(self) -> None:
        """Begin to lead, or stop, as the engine says."""
        driver = self.raft.driver
        if self._leading_term and (driver.role != Role.LEADER or driver.term != self._leading_term):
            self._leading_term = 0
            self._reads.fail("this node leads no more")
            lost = self.raft.proposals.give_up()
            self._when_ours(lambda: self.writer.lose(lost))
        if driver.role == Role.LEADER and not self._leading_term and not self.is_lent:
            routed = self.parts.watermarks.routed
            if routed >= self.store.first_index and self.store.term(routed) == driver.term:
                self.parts.dispatcher.lead(following_indices(self.store, self.machine))
                self._leading_term = driver.term
                _logger.info("node %d leads in term %d", self.node_id, driver.term)

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Have the engine send this one to nodes that are too far behind."""
        self.raft.act(lambda: self.engine.set_snapshot(snapshot))
