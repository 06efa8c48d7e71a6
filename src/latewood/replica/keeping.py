"""Keeping house: when a snapshot is taken, and what the parent log and the partitions of machines may forget for it.

The parent log forgets up to the snapshot *before* the newest one: a node that lags a little is served from the log.
Once that is durable, the partitions of machines forget what the same snapshot holds: recovery begins with it, or with a
later one.  What a stop kept from being forgotten goes after the next start.

A machine that hangs holds a snapshot up, and `hanging` tells of it; the snapshot is tried again.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from latewood.clock import Clock
from latewood.errors import ClosedError, CorruptError, LatewoodError, Locked, UnavailableError
from latewood.fs import FileSystem
from latewood.queue.retention import RetentionPolicy
from latewood.replica.apply import Alert, Progress
from latewood.replica.core import Core
from latewood.replica.engine import Snapshot
from latewood.replica.figures import directory_of
from latewood.replica.recovery import NodeLayout
from latewood.replica.retention import compact_partition, silent_before
from latewood.replica.snapshot import (
    PartitionState,
    SnapshotInHand,
    SnapshotReader,
    begin_snapshot,
    remove_snapshots_before,
    snapshots,
)

_RETRY_TICKS: Final = 10
_SETTLE_TICKS: Final = 10
_CATCH_UP_S: Final = 1.0
"""A snapshot waits so long for machines to apply what was routed: under load they never have, while more is routed."""
_AT_ONCE: Final = 32
"""Partitions that are shortened while committed entries wait."""

_logger = logging.getLogger(__name__)


class Keeper:
    """Takes snapshots of one core, and has its parent log cut."""

    def __init__(
        self,
        core: Core,
        fs: FileSystem,
        clock: Clock,
        layout: NodeLayout,
        snapshot_bytes: int,
        policy: RetentionPolicy | None = None,
    ) -> None:
        self._core, self._fs, self._clock, self._directory = core, fs, clock, layout.snapshots
        self._snapshot_bytes, self._policy = snapshot_bytes, policy or RetentionPolicy()
        self.newest: Snapshot | None = None
        """What a node that is too far behind is sent."""
        self._cut_at: Snapshot | None = None
        self._compacted = b""
        """The snapshot that partitions have been shortened to."""
        self.failed_count = 0
        """Snapshots that could not be taken when they were due."""
        self._is_busy = False
        self._is_wanted = False
        self._pause = self._ticks = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Know the snapshots that are there."""
        found = snapshots(self._fs, self._directory)
        if found:
            index, term = found[-1]
            with SnapshotReader.open(self._fs, self._directory / f"{index}-{term}") as reader:
                self.newest = reader.engine_snapshot()
            self._core.use_snapshot(self.newest)

    def want(self) -> None:
        """Take a snapshot soon: somebody needs one, and there is none."""
        self._is_wanted = True

    def tick(self) -> None:
        """Do what is due."""
        core = self._core
        self._pause = max(0, self._pause - 1)
        watermarks = core.parts.watermarks
        if core.is_lent or self._is_busy or self._pause:
            return
        core.parts.acks.set_members(core.raft.driver.conf.electors)
        core.parts.acks.acknowledge_through(core.node_id, watermarks.applied_floor())
        self._ticks += 1
        if not self._ticks % _SETTLE_TICKS:
            core.parts.acks.settle()
        wanted = core.engine.wants_snapshot()
        has = self.newest.index if self.newest else 0
        is_due = self._is_wanted or wanted > has or core.parent_bytes >= self._snapshot_bytes
        if is_due and watermarks.routed > has and watermarks.routed >= core.store.first_index:
            self._begin(self._take())
        elif self._cut_at and core.machine.truncatable_to() >= self._cut_at.index:
            self._cut(self._cut_at)
        elif core.store.snapshot and core.store.snapshot.data != self._compacted:
            self._begin(self._compact(core.store.snapshot.data))

    def close(self) -> None:
        """Begin nothing any more."""
        self._is_busy = True
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self) -> None:
        core, self._is_busy = self._core, True
        begun, given_up = list[SnapshotInHand](), list[bool]()
        try:
            events = list[Progress | Alert]()
            await core.ours()  # What was left for later is routed then, and nothing moves until the thread looks.
            while core.raft.driver.conf_index > core.parts.watermarks.routed:  # These members are of an entry to come.
                await core.routed(core.raft.driver.conf_index)
                await core.ours()
            conf, routed = core.raft.driver.conf, core.parts.watermarks.routed
            term = core.store.term(routed)

            def work() -> None:
                core.parts.applier.settle(_CATCH_UP_S)
                events.extend(core.machine.collect())
                if core.parts.watermarks.routed == routed:  # Else the term and the members may be others.
                    begun.append(begin_snapshot(core.machine, self._fs, self._directory, term, conf))
                if given_up:
                    _abandon(begun)

            bytes_before = core.parent_bytes
            try:
                await core.lend(work)
            finally:
                core.note(events)
            for in_hand in begun:
                await core.aside(in_hand.publish)  # While entries are routed: a thousand partitions take a while.
                await core.ours()
                in_hand.record(core.machine)
                core.parent_bytes -= bytes_before
                self._is_wanted = False
                self._use(in_hand.snapshot)
        except UnavailableError as error:  # A partition has not applied all, or the disk is full.
            _logger.info("a snapshot must wait: %s", error)
            self._fail()
        except (ClosedError, CorruptError) as error:
            core.fail(error)
        except LatewoodError as error:
            _logger.warning("no snapshot could be taken: %s", error)
            self._fail()
        except Exception:  # User code: what a machine's snapshot raises.
            _logger.exception("no snapshot could be taken")
            self._fail()
        finally:
            self._is_busy = False
            given_up.append(True)  # Before we look: a thread may still be at it.
            _abandon(begun)

    def _fail(self) -> None:
        """Try again later."""
        self._pause, self.failed_count = _RETRY_TICKS, self.failed_count + 1

    async def _compact(self, name: bytes) -> None:
        """Have partitions of machines forget what is in the snapshot that the parent log begins behind."""
        core, self._is_busy = self._core, True
        try:
            loop = asyncio.get_running_loop()
            states = await loop.run_in_executor(None, self._states, name.decode())
            for at in range(0, len(states), _AT_ONCE):
                await core.lend(partial(self._compact_some, states[at : at + _AT_ONCE]))
            self._compacted = name
        except (ClosedError, CorruptError) as error:
            core.fail(error)
        except LatewoodError as error:
            _logger.warning("partitions cannot be shortened: %s", error)
            self._pause = _RETRY_TICKS
        finally:
            self._is_busy = False

    def _states(self, name: str) -> list[PartitionState]:
        if not name:  # A founding node begins behind nothing at all.
            return []
        with SnapshotReader.open(self._fs, self._directory / name) as reader:
            return [state for state in reader.partitions if not state.log_is_state]

    def _compact_some(self, states: Sequence[PartitionState]) -> None:
        """Shorten some partitions; called by the thread that they are lent to."""
        core, silent_ns = self._core, silent_before(self._policy, self._clock.now_ns())
        directory = directory_of(core)
        for state in states:
            try:
                compact_partition(core.machine, state, self._fs, directory, silent_ns)
            except (CorruptError, Locked) as error:  # Of a reader's file: the log itself was opened long ago.
                _logger.warning("partition %d keeps what is in a snapshot: %s", state.partition_id, error)

    def _use(self, snapshot: Snapshot) -> None:
        previous, self.newest = self.newest, snapshot
        self._core.use_snapshot(snapshot)
        if previous and previous.index > self._core.store.first_index - 1:
            self._cut_at = previous

    def _cut(self, snapshot: Snapshot) -> None:
        """Have the parent log forget up to a snapshot, and remove those before it."""
        core, loop = self._core, asyncio.get_running_loop()
        self._cut_at, self._is_busy = None, True

        def forget() -> None:
            self._is_busy = False
            core.raft.act(lambda: core.engine.compact(snapshot.index))

        def work() -> None:
            core.store.compact(snapshot)
            remove_snapshots_before(self._fs, self._directory, snapshot.index)
            loop.call_soon_threadsafe(forget)

        core.raft.on_store(work)


def _abandon(begun: Sequence[SnapshotInHand]) -> None:
    for in_hand in begun:
        in_hand.abandon()
