"""What must hold in every run: the log that all nodes agree on, and every promise that was made to a client.

The first node to hand an entry on says what stands at its index; from then on nobody may say otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from latewood.format.entry import Action, Command, encode_command
from latewood.replica.engine import Entry
from latewood.replica.routing import commands_of


class Violation(Exception):
    """A promise was broken."""


def write_data(partition: int, partition_index: int, operations: Sequence[int], timestamp_ns: int) -> bytes:
    """Return a command: operations of a client, and the place of the first in a partition."""
    return encode_command(Command(partition, partition_index, [*map(operation_payload, operations)], timestamp_ns))


def tear_down_data(partition: int) -> bytes:
    """Return the data of an entry that ends a partition."""
    return encode_command(Command(partition, 0, (), action=Action.TEAR_DOWN))


def operation_payload(operation: int) -> bytes:
    """Return an operation as a payload; their lengths differ, so that records end anywhere."""
    return operation.to_bytes(8, "little") + bytes(operation % 37)


def operation_in(payload: bytes) -> int:
    """Return the operation in a payload."""
    return int.from_bytes(payload[:8], "little")


class Placed(NamedTuple):
    """An operation in a partition, and the index of its entry in the parent log."""

    operation: int
    index: int  # type: ignore[assignment] # the word for it


@dataclass(slots=True)
class Truth:
    """The agreed log, and what clients know of it."""

    first_index: int
    entries: list[Entry] = field(default_factory=list)
    projection: dict[tuple[int, int], list[Placed]] = field(default_factory=dict)
    """What each partition must hold, by its id and its birth."""
    born: dict[int, int] = field(default_factory=dict)
    """The partitions that there are now, and the index of the first write of each."""
    ended: dict[tuple[int, int], int] = field(default_factory=dict)
    """Where partitions were torn down."""
    kept_from: dict[tuple[int, int], int] = field(default_factory=dict)
    """From where on partitions keep their records, as was decided."""
    leader_of: dict[int, int] = field(default_factory=dict)
    index_of: dict[int, int] = field(default_factory=dict)
    floor_of: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    acked_index_max: int = 0

    def invoke(self, operation: int) -> None:
        """Note that a client begins: what is acknowledged by now comes before it."""
        self.floor_of[operation] = self.acked_index_max

    def lead(self, node: int, term: int) -> None:
        """Note that a node leads in a term."""
        if self.leader_of.setdefault(term, node) != node:
            raise Violation(f"nodes {self.leader_of[term]} and {node} both lead in term {term}")

    def commit(self, node: int, entry: Entry) -> None:
        """Note that a node hands an entry on."""
        place = entry.index - self.first_index
        if place > len(self.entries):
            raise Violation(f"node {node} hands entry {entry.index} on before those in front of it are committed")
        if place == len(self.entries):
            self._add(entry)
        elif self.entries[place] != entry:
            raise Violation(f"node {node} hands {entry} on, where {self.entries[place]} is committed")

    def let_go(self, partition: int, share: float) -> None:
        """Decide that a partition forgets some of its records, but not the newest."""
        born = self.born.get(partition)
        if born is not None:
            first = int(share * (len(self.projection[partition, born]) - 1))
            self.kept_from[partition, born] = max(first, self.kept_from.get((partition, born), 0))

    def acknowledge(self, operation: int, index: int) -> None:
        """Note that a client is told of its success."""
        if self.index_of.get(operation) != index:
            raise Violation(
                f"operation {operation} is acknowledged at {index}; it is at {self.index_of.get(operation)}"
            )
        self.acked[operation] = index
        self.acked_index_max = max(self.acked_index_max, index)

    def check_partition(self, node: int, partition: int, born: int, placed: Sequence[Placed], start: int = 0) -> None:
        """Check that a node's partition, from its record `start` on, is a part of the projection of the agreed log."""
        if list(placed) != self.projection.get((partition, born), [])[start : start + len(placed)]:
            raise Violation(f"node {node}: partition {partition} is not what the parent log makes of it")

    def check_whole(self, node: int, held: Mapping[tuple[int, int], int], handed_on: int) -> None:
        """Check that a node's partitions, given with how many records they have, are those at `handed_on`."""
        expected = self.partitions_at(handed_on)
        for key, count in expected.items():
            # It may hold more: what it had before a restart, and is committed again only later.
            if held.get(key, 0) < count:
                raise Violation(f"node {node}: partition {key[0]} has {held.get(key, 0)} of {count} records")
        for partition, born in held:
            if born <= handed_on and (partition, born) not in expected:
                raise Violation(f"node {node} still has partition {partition}, born at {born}")

    def partitions_at(self, index: int) -> dict[tuple[int, int], int]:
        """Return the partitions after a parent index, with the number of their records."""
        found: dict[tuple[int, int], int] = {}
        for (partition, born), placed in self.projection.items():
            ended = self.ended.get((partition, born))
            if born <= index and (ended is None or ended > index):
                found[partition, born] = sum(one.index <= index for one in placed)
        return found

    def _add(self, entry: Entry) -> None:
        if self.entries and entry.term < self.entries[-1].term:
            raise Violation(f"the term falls at {entry}")
        self.entries.append(entry)
        for command in commands_of(entry):
            if command.action == Action.TEAR_DOWN:
                if (born := self.born.pop(command.partition_id, None)) is not None:
                    self.ended[command.partition_id, born] = entry.index
            else:
                for place, payload in enumerate(command.payloads, command.partition_log_index):
                    self._add_write(entry, command.partition_id, place, operation_in(payload))

    def _add_write(self, entry: Entry, partition: int, partition_index: int, operation: int) -> None:
        born = self.born.setdefault(partition, entry.index)
        placed = self.projection.setdefault((partition, born), [])
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
