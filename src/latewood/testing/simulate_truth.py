"""What must hold in every run: the log that all nodes agree on, and every promise that was made to a client.

The first node to hand an entry on says what stands at its index; from then on nobody may say otherwise.
"""

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from latewood.replica.engine import Entry, EntryKind

_COMMAND: Final = struct.Struct("<QQQ")


class Violation(Exception):
    """A promise was broken."""


class Command(NamedTuple):
    """The data of an entry: one operation of a client, and its place in a partition."""

    partition: int
    partition_index: int
    operation: int

    def encode(self) -> bytes:
        """Return it as bytes."""
        return _COMMAND.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> "Command":
        """Read it back."""
        return cls(*_COMMAND.unpack(data))


class Placed(NamedTuple):
    """An operation in a partition, and the index of its entry in the parent log."""

    operation: int
    index: int  # type: ignore[assignment] # the word for it


@dataclass(slots=True)
class Truth:
    """The agreed log, and what clients know of it."""

    first_index: int
    entries: list[Entry] = field(default_factory=list)
    projection: dict[int, list[Placed]] = field(default_factory=dict)
    index_of: dict[int, int] = field(default_factory=dict)
    floor_of: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    acked_index_max: int = 0

    def invoke(self, operation: int) -> None:
        """Note that a client begins: what is acknowledged by now comes before it."""
        self.floor_of[operation] = self.acked_index_max

    def commit(self, node: int, entry: Entry) -> None:
        """Note that a node hands an entry on."""
        place = entry.index - self.first_index
        if place > len(self.entries):
            raise Violation(f"node {node} hands entry {entry.index} on before those in front of it are committed")
        if place == len(self.entries):
            self._add(entry)
        elif self.entries[place] != entry:
            raise Violation(f"node {node} hands {entry} on, where {self.entries[place]} is committed")

    def acknowledge(self, operation: int, index: int) -> None:
        """Note that a client is told of its success."""
        if self.index_of.get(operation) != index:
            raise Violation(
                f"operation {operation} is acknowledged at {index}; it is at {self.index_of.get(operation)}"
            )
        self.acked[operation] = index
        self.acked_index_max = max(self.acked_index_max, index)

    def check_partition(self, node: int, partition: int, placed: list[Placed]) -> None:
        """Check that a node's partition is the beginning of the projection of the agreed log."""
        if placed != self.projection.get(partition, [])[: len(placed)]:
            raise Violation(f"node {node}: partition {partition} is not what the parent log makes of it")

    def check_whole(self, node: int, partition: int, placed: list[Placed], handed_on: int) -> None:
        """Check that a node's partition holds all that it should, once entries up to `handed_on` are taken."""
        expected = [one for one in self.projection.get(partition, []) if one.index <= handed_on]
        # It may hold more: what it had before a restart, and is committed again only later.
        if placed[: len(expected)] != expected:
            raise Violation(f"node {node}: partition {partition} has {len(placed)} of {len(expected)} records")
        self.check_partition(node, partition, placed)

    def _add(self, entry: Entry) -> None:
        if self.entries and entry.term < self.entries[-1].term:
            raise Violation(f"the term falls at {entry}")
        self.entries.append(entry)
        if entry.kind != EntryKind.NORMAL or not entry.data:
            return
        partition, partition_index, operation = Command.decode(entry.data)
        placed = self.projection.setdefault(partition, [])
        if partition_index != len(placed) + 1:
            raise Violation(f"entry {entry.index} is record {partition_index} of partition {partition}, "
                            f"which has {len(placed)}")  # fmt: skip
        if operation in self.index_of:
            raise Violation(f"operation {operation} is at {self.index_of[operation]} and at {entry.index}")
        if entry.index <= self.floor_of[operation]:
            raise Violation(f"operation {operation} began after {self.floor_of[operation]} was acknowledged, "
                            f"and is at {entry.index}")  # fmt: skip
        self.index_of[operation] = entry.index
        placed.append(Placed(operation, entry.index))
