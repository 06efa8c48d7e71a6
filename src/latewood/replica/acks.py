"""Acknowledgements: how far each node has come in each partition, and which entries enough of them have.  Pure.

Keyed by (partition_id, partition_log_index).  A node acknowledges cumulatively: everything up to an index, of one
partition or, by a global index, of all.  The latter is only written down until somebody wants to know: it comes often,
and there are many partitions.  An entry that has landed and is not acknowledged by a quorum is pending, and the parent
log must keep it.

Invariant: pending entries of a partition are neighbours, up to its highest index; the first run may be a part of what a
quorum has.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from latewood.limits import LATE_MAX
from latewood.replica.machine import Placed, Run
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
        self._is_settled = True
        self._late: list[Placed] = []
        """Landed, and not yet among the pending: mostly, enough nodes have it by the time that somebody looks."""

    def landed(self, partition_id: int, runs: Sequence[Run]) -> None:
        """Know of entries; those that are known already change nothing."""
        self.landed_late([(partition_id, *run) for run in runs])

    def landed_late(self, placed: Sequence[Placed]) -> None:
        """Know of entries of several partitions, in order; they are looked at when somebody wants to know."""
        self._late += placed
        self._is_settled = False
        if len(self._late) > LATE_MAX:
            self.settle()

    def acknowledge(self, node: int, partition_id: int, index: int) -> int:
        """Note that a node has everything of a partition up to `index`; return the partition's quorum index."""
        self.settle()
        acks = self._partitions.setdefault(partition_id, _Acks())
        acks.by_node[node] = max(acks.by_node.get(node, 0), index)
        return self._settle(acks)

    def acknowledge_through(self, node: int, global_index: int) -> None:
        """Note that a node has everything of every partition up to a global index."""
        if global_index > self._through.get(node, 0):
            self._through[node] = global_index
            self._is_settled = False

    def set_members(self, members: Collection[int]) -> None:
        """Count other nodes from now on.  What was reached before stays reached."""
        if members != self._members:
            self.settle()
            self._members = frozenset(members)
            for acks in self._partitions.values():
                self._settle(acks)

    def settle(self) -> None:
        """Know what was written down.  Every look does; without one, now and then, or what is pending grows."""
        if self._is_settled:
            return
        self._is_settled = True
        self._take_in_late()
        for acks in self._partitions.values():
            if acks.pending:
                for node, through in self._through.items():
                    at = bisect_right(acks.pending, through, key=lambda run: run.global_index)
                    if at:
                        acks.by_node[node] = max(acks.by_node.get(node, 0), acks.pending[at - 1].last)
                self._settle(acks)

    def forget(self, partition_id: int) -> None:
        """Forget a partition that was torn down."""
        self.settle()
        self._partitions.pop(partition_id, None)

    def quorum_index(self, partition_id: int) -> int:
        """Return up to where enough nodes have a partition."""
        self.settle()
        return self._partitions[partition_id].quorum if partition_id in self._partitions else 0

    def is_reached(self, partition_id: int, index: int) -> bool:
        """Say whether enough nodes have an entry."""
        return self.quorum_index(partition_id) >= index

    def pending_global(self, partition_id: int) -> int | None:
        """Return the global index of a partition's oldest entry that not enough nodes have."""
        self.settle()
        acks = self._partitions.get(partition_id)
        return acks.pending[0].global_index if acks and acks.pending else None

    def pending_global_min(self) -> int | None:
        """Return the global index of the oldest such entry of all; None if there is none."""
        self.settle()
        return _least(acks.pending[0].global_index for acks in self._partitions.values() if acks.pending)

    def _take_in_late(self) -> None:
        late, self._late = self._late, []
        reached = quorum_index(self._quorum, self._through, self._members)  # By all partitions, whatever is in them.
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

    def _settle(self, acks: _Acks) -> int:
        acks.quorum = max(acks.quorum, quorum_index(self._quorum, acks.by_node, self._members))
        while acks.pending and acks.pending[0].last <= acks.quorum:
            acks.pending.popleft()
        return acks.quorum


def _least(values: Iterable[int]) -> int | None:
    return min(values, default=None)
