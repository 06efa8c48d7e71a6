"""Retention at work: a leader proposes what partitions may forget, and every node drops what was decided.

Some partitions at a time, so that whoever writes does not wait long for it.  Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from latewood.clock import Clock
from latewood.errors import ClosedError, CorruptError, LatewoodError, Locked
from latewood.fs import FileSystem
from latewood.queue.retention import RetentionPolicy
from latewood.replica.core import Core
from latewood.replica.directory import Change, DirectoryMachine, LowMark
from latewood.replica.figures import directory_of
from latewood.replica.partition import PartitionLogStore
from latewood.replica.retention import drop_below, log_partitions, outdated, proposals, silent_before
from latewood.replica.wire import Reply

_AT_ONCE: Final = 32
"""Partitions that are looked at, or shortened, while committed entries wait."""

_logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")


class TellAll(Protocol):
    """Has all nodes know changes of the cluster's own partition; returns why not."""

    def __call__(self, *changes: Change) -> Awaitable[Reply | None]:
        """Do so."""
        ...


class Retainer:
    """What one core does for retention.  Without a policy it decides nothing, and still does what others decided."""

    def __init__(
        self,
        core: Core,
        fs: FileSystem,
        clock: Clock,
        policy: RetentionPolicy | None,
        tell_all: TellAll,
        check_ticks: int,
    ) -> None:
        self._core, self._fs, self._clock = core, fs, clock
        self._policy, self._tell_all, self._check_ticks = policy, tell_all, check_ticks
        self._ticks = 0
        self._nothing = DirectoryMachine()
        """What is known before anything was told."""
        self._seen: Mapping[int, LowMark] = self._nothing.marks
        self._done: dict[int, LowMark] = {}
        """Marks that were obeyed."""
        self._is_held = False
        """Whether a reader of this node's files kept something that may go otherwise."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def tick(self) -> None:
        """Do what is due."""
        core = self._core
        self._ticks += 1
        if core.is_lent or self._task is not None or self._is_closed:
            return
        directory = directory_of(core) or self._nothing
        is_due, is_new = self._ticks >= self._check_ticks, directory.marks is not self._seen
        policy, todo = None, list[LowMark]()
        if is_due:
            self._ticks = 0
            policy = self._policy if core.is_leading else None
        if is_new or (is_due and self._is_held):
            self._seen, self._is_held = directory.marks, False
            todo = [mark for mark in directory.marks.values() if mark != self._done.get(mark.partition)]
        if todo or policy is not None:
            self._begin(self._round(todo, directory, policy))

    def close(self) -> None:
        """Begin nothing any more."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ClosedError, CorruptError) as error:
            self._core.fail(error)
        except LatewoodError as error:
            _logger.warning("what partitions may forget must wait: %s", error)
        finally:
            self._task = None

    async def _round(self, todo: list[LowMark], directory: DirectoryMachine, policy: RetentionPolicy | None) -> None:
        """Obey, then decide: a reader that holds something here keeps nobody from deciding."""
        if todo:
            await self._drop(todo)
        if policy is not None:
            await self._decide(directory, policy)

    # -- a leader's -----------------------------------------------------------------------------------------

    async def _decide(self, directory: DirectoryMachine, policy: RetentionPolicy) -> None:
        """Propose what partitions may forget."""
        core, now_ns = self._core, self._clock.now_ns()
        await core.ours()
        gone = outdated(core.machine, directory)
        for some in _sliced([one.partition_id for one in log_partitions(core.machine)]):
            found: list[LowMark] = []
            await core.lend(lambda: found.extend(proposals(self._still(some), directory, policy, now_ns)))  # noqa: B023 - it is over before the next turn
            if found and not await self._told(found):
                return
        for marks in _sliced(gone):
            if not await self._told(marks):
                return

    async def _told(self, marks: Sequence[LowMark]) -> bool:
        refused = await self._tell_all(*marks)
        if refused is not None:
            _logger.info("what partitions may forget was not taken: %s", refused)
        return refused is None

    def _still(self, partition_ids: Sequence[int]) -> list[PartitionLogStore]:
        """Return those of some partitions that are still here."""
        return [one for one in map(self._core.parts.roster.get, partition_ids) if one is not None]

    # -- everybody's ----------------------------------------------------------------------------------------

    async def _drop(self, marks: Sequence[LowMark]) -> None:
        """Drop what was decided."""
        for some in _sliced(marks):
            await self._core.lend(lambda: self._drop_some(some))  # noqa: B023 - it is over before the next turn

    def _drop_some(self, marks: Sequence[LowMark]) -> None:
        """Drop of some partitions what was decided; called by the thread that they are lent to."""
        partitions = {one.partition_id: one for one in log_partitions(self._core.machine)}
        silent_ns = silent_before(self._policy, self._clock.now_ns()) if self._policy else 0
        for mark in marks:
            partition = partitions.get(mark.partition)
            if partition is not None and partition.born == mark.born:
                self._drop_one(partition, mark, silent_ns)

    def _drop_one(self, partition: PartitionLogStore, mark: LowMark, silent_ns: int) -> None:
        try:
            wanted = drop_below(partition, mark.first_sequence, self._fs, silent_ns)
        except (CorruptError, Locked) as error:  # Of a reader's file: the log itself was opened long ago.
            _logger.warning("partition %d keeps records that may go: %s", partition.partition_id, error)
            self._is_held = True
            return
        if wanted is None:
            self._done[mark.partition] = mark
        else:
            self._is_held = True


def _sliced(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    return [items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE)]
