"""Acknowledgements: how far each node has come in each partition, and which entries enough of them have.  Pure.

Keyed by (partition_id, partition_log_index).  A node acknowledges cumulatively: everything up to an index, of one
partition or, by a global index, of all.  The latter is what comes, and there are many partitions; so what lands is only
written down until enough nodes have it, or somebody asks for one partition.  An entry that has landed and is not
acknowledged by a quorum is pending, and the parent log must keep it.

Invariant: pending entries of a partition are neighbours, up to its highest index; the first run may be a part of what a
quorum has.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from latewood.limits import LATE_MAX
from latewood.replica.machine import Placed, Run
from latewood.replica.native import native
from latewood.replica.quorum import Majority, Quorum, quorum_index


@dataclass(slots=True)
class _Acks:
    by_node: dict[int, int] = field(default_factory=dict)
    pending: deque[Run] = field(default_factory=deque)
    """What not enough nodes have all of, oldest first."""
    quorum: int = 0
    highest: int = 0


class AckTracker:
    """Acknowledgements of one node's view of the cluster.  Owned by one thread."""

    def __init__(self, members: Collection[int], quorum: Quorum | None = None) -> None:
        self._members = frozenset(members)
        self._quorum = quorum or Majority()
        self._partitions: dict[int, _Acks] = {}
        self._through: dict[int, int] = {}
        """Up to which global index a node has everything."""
        self._fold = native("_fold_placed")
        self._late: list[Placed] = []
        """Landed, and not yet known to its partition; of each partition in order."""
        self._late_max = LATE_MAX
        self._waiting: set[int] = set()
        """Partitions with something pending."""
        self._is_settled = True

    def landed(self, partition_id: int, runs: Sequence[Run]) -> None:
        """Know of entries; those that are known already change nothing."""
        self.landed_late([(partition_id, *run) for run in runs])

    def landed_late(self, placed: Sequence[Placed]) -> None:
        """Know of entries of several partitions, in order."""
        self._late += placed
        self._is_settled = False
        if len(self._late) > self._late_max:
            self.settle()
            self._late_max = max(LATE_MAX, 2 * len(self._late))

    def acknowledge(self, node: int, partition_id: int, index: int) -> int:
        """Note that a node has everything of a partition up to `index`; return the partition's quorum index."""
        self._settle_all()
        acks = self._partitions.setdefault(partition_id, _Acks())
        acks.by_node[node] = max(acks.by_node.get(node, 0), index)
        return self._settle(partition_id, acks)

    def acknowledge_through(self, node: int, global_index: int) -> None:
        """Note that a node has everything of every partition up to a global index."""
        if global_index > self._through.get(node, 0):
            self._through[node] = global_index
            self._is_settled = False

    def set_members(self, members: Collection[int]) -> None:
        """Count other nodes from now on.  What was reached before stays reached."""
        if members != self._members:
            self._settle_all()
            self._members = frozenset(members)
            for partition_id, acks in self._partitions.items():
                self._settle(partition_id, acks)

    def settle(self) -> None:
        """Take in what enough nodes have by now: now and then, or what is written down grows."""
        if self._is_settled:
            return
        self._is_settled = True
        reached = quorum_index(self._quorum, self._through, self._members)  # By all partitions, whatever is in them.
        if self._waiting or not reached:
            self._take_in([run for run in self._late if run[3] <= reached], reached)
            self._late = [run for run in self._late if run[3] > reached]
        else:  # Then only the first and the last of a partition matter.
            folded, self._late = self._fold(self._late, reached)
            self._take_in([(key, first, last, entry) for key, (first, last, _, entry) in folded.items()], reached)
        for partition_id in list(self._waiting):
            self._settle_through(partition_id)

    def forget(self, partition_id: int) -> None:
        """Forget a partition that was torn down."""
        self._settle_all()
        self._partitions.pop(partition_id, None)
        self._waiting.discard(partition_id)

    def quorum_index(self, partition_id: int) -> int:
        """Return up to where enough nodes have a partition."""
        self._settle_all()
        return self._partitions[partition_id].quorum if partition_id in self._partitions else 0

    def is_reached(self, partition_id: int, index: int) -> bool:
        """Say whether enough nodes have an entry."""
        return self.quorum_index(partition_id) >= index

    def pending_global(self, partition_id: int) -> int | None:
        """Return the global index of a partition's oldest entry that not enough nodes have."""
        self._settle_all()
        acks = self._partitions.get(partition_id)
        return acks.pending[0].global_index if acks and acks.pending else None

    def pending_global_min(self) -> int | None:
        """Return the global index of the oldest such entry of all; None if there is none."""
        self._settle_all()
        pending = (self._partitions[partition_id].pending[0].global_index for partition_id in self._waiting)
        return min(pending, default=None)

    def _settle_all(self) -> None:
        """Take in all that was written down."""
        self.settle()
        late, self._late = self._late, []
        self._take_in(late, 0)
        for partition_id in {run[0] for run in late}:
            self._settle_through(partition_id)

    def _take_in(self, late: Sequence[Placed], reached: int) -> None:
        """Let partitions know what has landed; enough nodes have everything up to `reached`."""
        for partition_id, first, last, global_index in late:
            acks = self._partitions.get(partition_id)
            if acks is None:
                acks = self._partitions[partition_id] = _Acks()
            if last <= acks.highest:
                continue
            assert not acks.highest or first <= acks.highest + 1, "entries of a partition land without gaps"
            acks.highest = last
            if global_index <= reached and not acks.pending:
                acks.quorum = max(acks.quorum, last)
            elif last > acks.quorum:
                acks.pending.append(Run(first, last, global_index))
                self._waiting.add(partition_id)

    def _settle_through(self, partition_id: int) -> None:
        """Let a partition know how far nodes have come in all of them."""
        acks = self._partitions[partition_id]
        for node, through in self._through.items():
            at = bisect_right(acks.pending, through, key=lambda run: run.global_index)
            if at:
                acks.by_node[node] = max(acks.by_node.get(node, 0), acks.pending[at - 1].last)
        self._settle(partition_id, acks)

    def _settle(self, partition_id: int, acks: _Acks) -> int:
        acks.quorum = max(acks.quorum, quorum_index(self._quorum, acks.by_node, self._members))
        while acks.pending and acks.pending[0].last <= acks.quorum:
            acks.pending.popleft()
        if not acks.pending:
            self._waiting.discard(partition_id)
        return acks.quorum
