"""What a disk may hold of the names in its directories.

Each operation on names waits here until its directory is synced, and until then a power cut may lose it.
What a cut keeps is closed under `needs`, and that is the whole model:

- an operation needs the one before it on the same name, so a name's history is kept up to some point;
- a rename within a directory is one operation, so both names change or neither;
- a rename across directories is two, and the removal needs the addition, so the file never vanishes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from latewood.testing.node import Directory, Inode, Node

_STATES_MAX: Final = 4096
"""Above this many ways to keep related operations, only the telling ones are made."""


@dataclass(frozen=True, slots=True, eq=False)
class NameOperation:
    """One change of names in one directory, all of it or nothing."""

    time: int
    directory: Directory
    changes: dict[str, Node | None]
    needs: tuple["NameOperation", ...]


Kept = frozenset[NameOperation]


class NameJournal:
    """The operations that are not durable yet, in the order in which they were done."""

    def __init__(self) -> None:
        self.pending: list[NameOperation] = []
        self._durable: dict[Directory, dict[str, Node]] = {}

    def snapshot(self, root: Directory) -> "NameJournal":
        """Return a copy that holds all names under `root` and that later operations do not change."""
        copy = NameJournal()
        copy.pending = list(self.pending)
        waiting = [root]
        while waiting:
            directory = waiting.pop()
            if directory not in copy._durable:
                copy._durable[directory] = dict(self.durable(directory))
                waiting += [node for node in self.nodes(directory) if isinstance(node, Directory)]
        return copy

    def inodes(self) -> list[Inode]:
        """Return, of a snapshot, every file that may have a name after a power cut."""
        nodes = (node for directory in self._durable for node in self.nodes(directory))
        return list(dict.fromkeys(node for node in nodes if isinstance(node, Inode)))

    def record(self, time: int, changes: Sequence[tuple[Directory, str, Node | None]]) -> list[NameOperation]:
        """Note a change of names that is about to be made; return its operations."""
        made: list[NameOperation] = []
        # Additions first: a removal that came with an addition elsewhere needs it.
        for directory, name, node in sorted(changes, key=lambda change: change[2] is None):
            self._durable.setdefault(directory, dict(directory.entries))
            if made and made[-1].directory is directory:
                made.append(self._joined(made.pop(), name, node))
            else:
                made.append(NameOperation(time, directory, {name: node}, (*self._before(directory, name), *made)))
        self.pending += made
        return made

    def durable(self, directory: Directory) -> dict[str, Node]:
        """Return the names in a directory that no power cut can lose."""
        return self._durable.get(directory, directory.entries)

    def settle(self, operations: Iterable[NameOperation]) -> None:
        """Make operations durable, and all that they need."""
        done = closure(operations)
        for operation in self.pending:
            if operation in done:
                _apply(operation, self._durable[operation.directory])
        self.pending = [operation for operation in self.pending if operation not in done]
        unsettled = {operation.directory for operation in self.pending}
        self._durable = {directory: names for directory, names in self._durable.items() if directory in unsettled}

    def settle_directory(self, directory: Directory) -> None:
        """Make the names of one directory durable."""
        self.settle([operation for operation in self.pending if operation.directory is directory])

    def entries(self, directory: Directory, kept: Kept) -> dict[str, Node]:
        """Return the names in a directory if a power cut keeps just these operations."""
        names = dict(self.durable(directory))
        for operation in self.pending:
            if operation.directory is directory and operation in kept:
                _apply(operation, names)
        return names

    def nodes(self, directory: Directory) -> list[Node]:
        """Return whatever a name in a directory may point at after a power cut."""
        changes = [op.changes.values() for op in self.pending if op.directory is directory]
        return [*self.durable(directory).values(), *(node for nodes in changes for node in nodes if node is not None)]

    def families(self) -> list[list[NameOperation]]:
        """Return the pending operations, those that need each other together."""
        families: list[set[NameOperation]] = []
        for operation in self.pending:
            related = [family for family in families if not family.isdisjoint(operation.needs)]
            families = [family for family in families if family not in related]
            families.append({operation}.union(*related))
        return [[operation for operation in self.pending if operation in family] for family in families]

    def _before(self, directory: Directory, name: str) -> list[NameOperation]:
        earlier = [op for op in self.pending if op.directory is directory and name in op.changes]
        return earlier[-1:]

    def _joined(self, operation: NameOperation, name: str, node: Node | None) -> NameOperation:
        needs = (*operation.needs, *self._before(operation.directory, name))
        return NameOperation(operation.time, operation.directory, operation.changes | {name: node}, needs)


def closure(operations: Iterable[NameOperation]) -> Kept:
    """Return operations with all that they need."""
    found: set[NameOperation] = set()
    waiting = list(operations)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += operation.needs
    return frozenset(found)


def kept_alone(family: Sequence[NameOperation]) -> list[Kept]:
    """Return, for each operation, the least that a cut keeps with it."""
    return [closure([operation]) & frozenset(family) for operation in family]


def lost_alone(family: Sequence[NameOperation]) -> list[Kept]:
    """Return, for each operation, the most that a cut keeps without it."""
    return [frozenset(other for other in family if lost not in closure([other])) for lost in family]


def keepable(family: Sequence[NameOperation]) -> list[Kept]:
    """Return every set of these operations that a power cut may keep: the least first, the whole last.

    A large family has too many; it gets its prefixes in time, each operation alone, and all but each.
    """
    states: dict[Kept, None] = {frozenset(): None}
    members = frozenset(family)
    for operation in family:
        needs = closure([operation]) & members
        states |= {state | {operation}: None for state in list(states) if needs <= state | {operation}}
        if len(states) > _STATES_MAX:
            return _telling(family)
    return sorted(states, key=len)


def _telling(family: Sequence[NameOperation]) -> list[Kept]:
    prefixes = [frozenset(family[:count]) for count in range(len(family) + 1)]
    return sorted(dict.fromkeys([*prefixes, *kept_alone(family), *lost_alone(family)]), key=len)


def _apply(operation: NameOperation, names: dict[str, Node]) -> None:
    for name, node in operation.changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
