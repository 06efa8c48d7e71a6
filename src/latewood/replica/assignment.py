"""Which node is the master of a partition.  Pure, and the same on every node that knows the same members.

By hash, each node has a weight for each partition, and the heaviest member is its master: whoever leaves gives away
only its own partitions, and whoever joins takes only those that become its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import xxhash

_SEED: Final = 42


class Assignment(Protocol):
    """Decides who is the master of a partition."""

    def master(self, partition_id: int, members: Iterable[int]) -> int | None:
        """Return a member, or None if the partition is nobody's."""
        ...


@dataclass(frozen=True, slots=True)
class ByHash:
    """The member with the greatest hash of itself and the partition."""

    def master(self, partition_id: int, members: Iterable[int]) -> int | None:
        """Return it; None only if there are no members."""
        return max(members, key=lambda node: (_weight(node, partition_id), node), default=None)


@dataclass(frozen=True, slots=True)
class Fixed:
    """What somebody wrote down; a partition whose master is not a member is nobody's."""

    masters: Mapping[int, int] = field(default_factory=dict)

    def master(self, partition_id: int, members: Iterable[int]) -> int | None:
        """Return it."""
        chosen = self.masters.get(partition_id)
        return chosen if chosen in set(members) else None


@dataclass(frozen=True, slots=True)
class Disabled:
    """No partition has a master."""

    def master(self, partition_id: int, members: Iterable[int]) -> int | None:  # noqa: ARG002 - the protocol's names
        """Return None."""
        return None


def _weight(node: int, partition_id: int) -> int:
    return xxhash.xxh64_intdigest(node.to_bytes(8, "little") + partition_id.to_bytes(8, "little"), _SEED)
