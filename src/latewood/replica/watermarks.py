"""Watermarks: how far one node has come, and what of its parent log it may forget.  Pure.

Of each partition: snapshot <= applied <= durable <= highest.  *Durable* survives a power cut here, because the parent
log holds it durably; *flushed* is what the partition's own log holds durably, and only that lets the parent forget.

`durable_global` and `applied_global` are apart: durable never raises applied, or a barrier would lie.  A partition that
has nothing pending has applied all that was routed, also what was for others.

The parent log may forget an entry when all of this holds: it is durable and routed; its partition has flushed *and*
applied it; enough nodes have it; and a snapshot of the whole stands at it or behind it.  A quorum alone is not enough:
an entry that is not applied here holds truncation back.

What partitions get whose log is their state is only written down, until somebody wants to know: it comes often, and
only its first and its last matter.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from latewood.limits import LATE_MAX, U64_MAX
from latewood.replica.machine import Placed, Run
from latewood.replica.native import native


@dataclass(slots=True, kw_only=True)
class PartitionProgress:
    """How far one partition has come on this node; all indices but the `_global` ones are the partition's own.

    Only its `Watermarks` change it: others look.
    """

    highest_index: int = 0
    highest_global: int = 0
    durable_index: int = 0
    durable_global: int = 0
    flushed_index: int = 0
    applied_index: int = 0
    applied_global: int = 0
    snapshot_index: int = 0
    snapshot_global: int = 0

    def __post_init__(self) -> None:
        """Begin with values that can be."""
        self.check()

    def check(self) -> None:
        """Hold the invariants."""
        assert self.snapshot_index <= self.applied_index <= self.durable_index <= self.highest_index, self
        assert self.snapshot_global <= self.applied_global <= self.durable_global <= self.highest_global, self
        assert self.snapshot_index <= self.flushed_index <= self.durable_index, self


@dataclass(slots=True)
class _Tracked:
    progress: PartitionProgress
    pending: deque[Run] = field(default_factory=deque)
    """What is routed and not wholly applied, oldest first."""
    unflushed_global: int | None = None
    """Of the oldest entry that the partition's own log may lose."""


class Watermarks:
    """The progress of one node.  Owned by one thread."""

    def __init__(self, base_global: int = 0) -> None:
        self.parent_durable = base_global
        """Every parent entry up to here is durable here."""
        self.routed = base_global
        """Every parent entry up to here was handed to its partition."""
        self.snapshot_global = base_global
        """A snapshot of the whole stands here."""
        self._tracked: dict[int, _Tracked] = {}
        self._pending: set[int] = set()
        """Partitions with something that is routed and not wholly applied."""
        self._fold = native("_fold_placed")
        self._late: list[Placed] = []
        """Written down, and not in `_tracked` yet."""

    @property
    def _partitions(self) -> dict[int, _Tracked]:
        """The partitions with all that is known of them."""
        if self._late:
            self._settle()
        return self._tracked

    def __contains__(self, partition_id: int) -> bool:
        return partition_id in self._partitions

    def __getitem__(self, partition_id: int) -> PartitionProgress:
        """Return a partition's progress.

        Raises:
            KeyError: there is no such partition.
        """
        return self._partitions[partition_id].progress

    @property
    def partitions(self) -> list[int]:
        """The partitions there are."""
        return sorted(self._partitions)

    # -- what happened ------------------------------------------------------------------------------------

    def open(self, partition_id: int, progress: PartitionProgress, pending: Iterable[Run] = ()) -> None:
        """Begin with a partition where recovery found it; `pending` is what it holds and has not applied."""
        tracked = self._partitions[partition_id] = _Tracked(progress, deque(pending))
        if tracked.pending:
            self._pending.add(partition_id)

    def forget(self, partition_id: int) -> None:
        """Forget a partition that was torn down."""
        self._partitions.pop(partition_id, None)
        self._pending.discard(partition_id)

    def record_parent_durable(self, index: int) -> None:
        """Note how far the parent log is durable.  It falls only when a conflicting end is overwritten."""
        assert index >= self.routed, "what was routed is committed, and stays"
        self.parent_durable = index

    def record_routed(self, partition_id: int, runs: Sequence[Run], *, applied: bool = False) -> None:
        """Note that committed entries, durable in the parent log, were written to a partition, before `record_passed`.

        Those that are known already change nothing.  With `applied`, the partition's log is its state, so that they
        are applied, too.
        """
        tracked = self._partitions.get(partition_id)
        if tracked is None:
            tracked = self._partitions[partition_id] = _Tracked(PartitionProgress())
        progress = tracked.progress
        highest = progress.highest_index
        fresh = runs if runs[0].last > highest else [run for run in runs if run.last > highest]
        if not fresh:
            return
        for run in fresh:
            assert run.first <= highest + 1, (progress, run)
            highest = run.last
        global_index = fresh[-1].global_index
        assert self.routed < fresh[0].global_index, (self.routed, fresh[0])
        assert global_index <= self.parent_durable, "what is routed is durable in the parent log"
        progress.highest_index = progress.durable_index = highest
        progress.highest_global = progress.durable_global = global_index
        if applied:
            assert not tracked.pending, "a log has nothing to apply"
            progress.applied_index, progress.applied_global = highest, global_index
        else:
            tracked.pending.extend(fresh)
            self._pending.add(partition_id)
        progress.check()
        if tracked.unflushed_global is None:
            tracked.unflushed_global = fresh[0].global_index

    def record_logged(self, placed: Sequence[Placed]) -> None:
        """Note what was written to partitions whose log is their state, in order: as `record_routed`, and applied."""
        assert self.routed < placed[0][3] <= placed[-1][3] <= self.parent_durable, "what is routed is durable"
        self._late += placed
        if len(self._late) > LATE_MAX:
            self._settle()

    def record_passed(self, index: int) -> None:
        """Note that every parent entry up to `index` was handed to its partition, or is for none."""
        assert self.routed <= index <= self.parent_durable, (self.routed, index, self.parent_durable)
        self.routed = index

    def record_flushed(self, partition_id: int, index: int, global_index: int | None = None) -> None:
        """Note that a partition's own log is durable up to `index`.

        `global_index`, if it has come further meanwhile, is the parent entry up to which that is all of it.
        """
        tracked = self._partitions[partition_id]
        progress = tracked.progress
        progress.flushed_index = max(progress.flushed_index, index)
        progress.check()
        if progress.flushed_index >= progress.highest_index:
            tracked.unflushed_global = None
        elif global_index is not None and tracked.unflushed_global is not None:
            tracked.unflushed_global = max(tracked.unflushed_global, global_index + 1)

    def record_applied(self, partition_id: int, index: int) -> None:
        """Note that a partition's machine has applied everything up to `index`."""
        tracked = self._partitions[partition_id]
        progress = tracked.progress
        assert index <= progress.durable_index, (index, progress)
        pending = tracked.pending
        while pending and pending[0].last <= index:
            passed = pending.popleft().global_index
            if not pending or pending[0].global_index != passed:  # Else a part of that entry is to come.
                progress.applied_global = passed
        if not pending:
            self._pending.discard(partition_id)
        progress.applied_index = max(progress.applied_index, index)
        progress.check()

    def record_snapshot(self, partition_id: int, index: int, global_index: int) -> None:
        """Note that a partition's state after `index` is kept."""
        progress = self._partitions[partition_id].progress
        progress.snapshot_index, progress.snapshot_global = index, global_index
        progress.check()

    def record_parent_snapshot(self, index: int) -> None:
        """Note that a snapshot of the whole stands at `index`, durably."""
        assert index <= self.applied_floor(), "a snapshot holds what is applied, and no more"
        self.snapshot_global = max(self.snapshot_global, index)

    # -- what follows -------------------------------------------------------------------------------------

    def applied_through(self, partition_id: int) -> int:
        """Return the global index up to which nothing of a partition is outstanding."""
        tracked = self._tracked.get(partition_id)  # What is late is applied.
        return min(self.routed, tracked.pending[0].global_index - 1) if tracked and tracked.pending else self.routed

    def applied_floor(self) -> int:
        """Return the global index up to which all partitions have applied everything."""
        oldest = [self._tracked[partition_id].pending[0].global_index - 1 for partition_id in self._pending]
        return min([self.routed, *oldest])

    def flushed_floor(self) -> int:
        """Return the global index up to which all partitions' own logs are durable."""
        dirty = [item.unflushed_global - 1 for item in self._partitions.values() if item.unflushed_global is not None]
        return min([self.routed, *dirty])

    def required_global(self, quorum_pending: int | None = None) -> int:
        """Return the oldest parent entry that is still needed; `quorum_pending` is what `AckTracker` says of it."""
        needs = [self.parent_durable, self.snapshot_global, self.applied_floor(), self.flushed_floor()]
        oldest = min(needs) + 1
        return oldest if quorum_pending is None else min(oldest, quorum_pending)

    def truncatable_to(self, quorum_pending: int | None = None) -> int:
        """Return the last parent entry that may be forgotten."""
        return self.required_global(quorum_pending) - 1

    def _settle(self) -> None:
        """Take in what was written down."""
        late, self._late = self._late, []
        for partition_id, (first, last, first_global, last_global) in self._fold(late, U64_MAX)[0].items():
            tracked = self._tracked.get(partition_id)
            if tracked is None:
                tracked = self._tracked[partition_id] = _Tracked(PartitionProgress())
            progress = tracked.progress
            assert first == progress.highest_index + 1, (progress, first)
            assert not tracked.pending, "a log has nothing to apply"
            progress.highest_index = progress.durable_index = progress.applied_index = last
            progress.highest_global = progress.durable_global = progress.applied_global = last_global
            progress.check()
            if tracked.unflushed_global is None:
                tracked.unflushed_global = first_global
