"""Keeping house: when a snapshot is taken, what the parent log may forget, and what nodes tell each other for that.

The parent log forgets up to the snapshot *before* the newest one: a node that lags a little is served from the log.
Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from latewood.errors import ClosedError, CorruptError, LatewoodError, UnavailableError
from latewood.fs import FileSystem
from latewood.replica.core import Core
from latewood.replica.engine import Snapshot
from latewood.replica.recovery import NodeLayout
from latewood.replica.snapshot import (
    SnapshotReader,
    compact_partitions,
    remove_snapshots_before,
    snapshots,
    take_snapshot,
)

_RETRY_TICKS: Final = 10

_logger = logging.getLogger(__name__)


class Keeper:
    """Takes snapshots of one core, and has its parent log cut."""

    def __init__(self, core: Core, fs: FileSystem, layout: NodeLayout, snapshot_bytes: int) -> None:
        self._core, self._fs, self._directory = core, fs, layout.snapshots
        self._snapshot_bytes = snapshot_bytes
        self.newest: Snapshot | None = None
        """What a node that is too far behind is sent."""
        self._cut_at: Snapshot | None = None
        self._is_busy = False
        self._is_wanted = False
        self._pause = 0
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
        core.parts.acks.set_members(core.raft.driver.conf.members)
        core.parts.acks.acknowledge_through(core.node_id, watermarks.applied_floor())
        wanted = core.engine.wants_snapshot()
        has = self.newest.index if self.newest else 0
        is_due = self._is_wanted or wanted > has or core.parent_bytes >= self._snapshot_bytes
        if is_due and watermarks.routed > has and watermarks.routed >= core.store.first_index:
            self._begin(self._take())
        elif self._cut_at and core.machine.truncatable_to() >= self._cut_at.index:
            self._cut(self._cut_at)

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
        try:
            taken: list[Snapshot] = []
            conf, routed = core.raft.driver.conf, core.parts.watermarks.routed
            term = core.store.term(routed)

            def work() -> None:
                if core.parts.watermarks.routed == routed:  # Else the term and the members may be others.
                    taken.append(take_snapshot(core.machine, self._fs, self._directory, term, conf))
                    compact_partitions(core.machine, core.store.first_index - 1)

            bytes_before = core.parent_bytes
            await core.lend(work)
            if taken:
                core.parent_bytes -= bytes_before
                self._is_wanted = False
                self._use(taken[0])
        except UnavailableError as error:  # A partition has not applied all, or the disk is full.
            _logger.info("a snapshot must wait: %s", error)
            self._pause = _RETRY_TICKS
        except (ClosedError, CorruptError) as error:
            core.fail(error)
        except LatewoodError as error:
            _logger.warning("no snapshot could be taken: %s", error)
            self._pause = _RETRY_TICKS
        finally:
            self._is_busy = False

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
