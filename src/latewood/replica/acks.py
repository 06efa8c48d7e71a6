"""Acknowledgements: how far each node has come in each partition, and which entries enough of them have.  Pure.

Keyed by (partition_id, partition_log_index).  A node acknowledges cumulatively: everything up to an index.  An entry
that has landed and is not acknowledged by a quorum is pending, and the parent log must keep it.

Invariant: pending entries of a partition are neighbours, from its quorum index + 1 to its highest index.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from latewood.replica.quorum import Majority, Quorum, quorum_index


@dataclass(slots=True)
class _Acks:
    by_node: dict[int, int] = field(default_factory=dict)
    pending: deque[tuple[int, int]] = field(default_factory=deque)
    """(partition_log_index, global index), oldest first."""
    quorum: int = 0
    highest: int = 0


class AckTracker:
    """Acknowledgements of one node's view of the cluster.  Owned by one thread."""

    def __init__(self, members: Collection[int], quorum: Quorum | None = None) -> None:
        self._members = frozenset(members)
        self._quorum = quorum or Majority()
        self._partitions: dict[int, _Acks] = {}

    def landed(self, partition_id: int, places: Sequence[tuple[int, int]]) -> None:
        """Know of entries, each (partition_log_index, global index); those that are known already change nothing."""
        acks = self._partitions.get(partition_id) or self._partitions.setdefault(partition_id, _Acks())
        fresh = [place for place in places if place[0] > acks.highest]
        if fresh:
            gapless = not acks.highest or fresh[-1][0] - acks.highest == len(fresh)
            assert gapless, "entries of a partition land without gaps"
            acks.highest = fresh[-1][0]
            acks.pending.extend(place for place in fresh if place[0] > acks.quorum)

    def acknowledge(self, node: int, partition_id: int, index: int) -> int:
        """Note that a node has everything of a partition up to `index`; return the partition's quorum index."""
        acks = self._partitions.setdefault(partition_id, _Acks())
        acks.by_node[node] = max(acks.by_node.get(node, 0), index)
        return self._settle(acks)

    def acknowledge_through(self, node: int, global_index: int) -> None:
        """Note that a node has everything of every partition up to a global index."""
        for partition_id, acks in self._partitions.items():
            at = bisect_right(acks.pending, global_index, key=lambda place: place[1])
            if at:
                self.acknowledge(node, partition_id, acks.pending[at - 1][0])

    def set_members(self, members: Collection[int]) -> None:
        """Count other nodes from now on.  What was reached before stays reached."""
        self._members = frozenset(members)
        for acks in self._partitions.values():
            self._settle(acks)

    def forget(self, partition_id: int) -> None:
        """Forget a partition that was torn down."""
        self._partitions.pop(partition_id, None)

    def quorum_index(self, partition_id: int) -> int:
        """Return up to where enough nodes have a partition."""
        return self._partitions[partition_id].quorum if partition_id in self._partitions else 0

    def is_reached(self, partition_id: int, index: int) -> bool:
        """Say whether enough nodes have an entry."""
        return self.quorum_index(partition_id) >= index

    def pending_global(self, partition_id: int) -> int | None:
        """Return the global index of a partition's oldest entry that not enough nodes have."""
        acks = self._partitions.get(partition_id)
        return acks.pending[0][1] if acks and acks.pending else None

    def pending_global_min(self) -> int | None:
        """Return the global index of the oldest such entry of all; None if there is none."""
        return _least(acks.pending[0][1] for acks in self._partitions.values() if acks.pending)

    def _settle(self, acks: _Acks) -> int:
        acks.quorum = max(acks.quorum, quorum_index(self._quorum, acks.by_node, self._members))
        while acks.pending and acks.pending[0][0] <= acks.quorum:
            acks.pending.popleft()
        return acks.quorum


def _least(values: Iterable[int]) -> int | None:
    return min(values, default=None)
