"""Quorums: how many, or which, nodes make an entry of a partition count as kept.  Pure.

Raft's own majority decides what is committed, and is the engine's.  This is the second question: who must have an
entry in its partition before the parent log may forget it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from latewood.errors import UsageError


class Quorum(Protocol):
    """Decides whether a set of nodes is enough.  Adding a node to a set that is enough must leave it enough."""

    def is_reached(self, acknowledged: Collection[int], members: Collection[int]) -> bool:
        """Say whether the nodes that have acknowledged, all of them members, are enough."""
        ...


@dataclass(frozen=True, slots=True)
class Majority:
    """More than half of the members."""

    def is_reached(self, acknowledged: Collection[int], members: Collection[int]) -> bool:
        """Say whether they are."""
        return 2 * len(acknowledged) > len(members)


@dataclass(frozen=True, slots=True)
class Threshold:
    """So many nodes, or all members if they are fewer."""

    count: int

    def __post_init__(self) -> None:
        """Check the number.

        Raises:
            UsageError: it is below 1.
        """
        if self.count < 1:
            message = f"a quorum needs at least one node, not {self.count}"
            raise UsageError(message)

    def is_reached(self, acknowledged: Collection[int], members: Collection[int]) -> bool:
        """Say whether they are."""
        return bool(members) and len(acknowledged) >= min(self.count, len(members))


@dataclass(frozen=True, slots=True)
class Custom:
    """What a caller's function says of (acknowledged, members)."""

    rule: Callable[[Collection[int], Collection[int]], bool]

    def is_reached(self, acknowledged: Collection[int], members: Collection[int]) -> bool:
        """Say whether they are."""
        return self.rule(acknowledged, members)


def quorum_index(quorum: Quorum, acknowledged: Mapping[int, int], members: Collection[int]) -> int:
    """Return the highest index that enough members have acknowledged; 0 if there is none.

    `acknowledged` says how far each node has come; a node has acknowledged everything up to there.
    """
    reached = {node: index for node, index in acknowledged.items() if node in members}
    for index in sorted(set(reached.values()), reverse=True):
        if index and quorum.is_reached([node for node, at in reached.items() if at >= index], members):
            return index
    return 0
