"""A power cut: from what is durable and what is not, every disk that may come up afterwards.

Holds copies, so the file system may go on while its cut is being looked at.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from latewood.testing.choices import Choice, Unit, choices
from latewood.testing.disk_image import DirectoryImage, FileImage, Image
from latewood.testing.file_history import FileHistory
from latewood.testing.name_journal import Kept, NameJournal, NameOperation, keepable, kept_alone, lost_alone
from latewood.testing.node import Directory, Inode, Node

_Value = TypeVar("_Value", int, bytes)


class _Family:
    """Operations on names that need each other."""

    def __init__(self, operations: Sequence[NameOperation]) -> None:
        self.states = keepable(operations)
        option_of = {state: option for option, state in enumerate(self.states)}
        times = sorted({operation.time for operation in operations})
        past = {time: frozenset(op for op in operations if op.time <= time) for time in times}
        self.unit = Unit(
            options=len(self.states),
            latest=len(self.states) - 1,
            timeline=tuple((time, option_of[state]) for time, state in past.items()),
            lost=tuple(option_of[state] for state in lost_alone(operations)),
            kept=tuple(option_of[state] for state in kept_alone(operations)),
            metadata=True,
        )


class _Versions(Generic[_Value]):
    """One length or sector: what was synced, and what it was since."""

    def __init__(self, synced: _Value, since: Sequence[tuple[int, _Value]], *, metadata: bool) -> None:
        self.values: list[_Value] = list(dict.fromkeys([synced] + [value for _, value in since]))
        timeline = tuple((time, self.values.index(value)) for time, value in since)
        latest = timeline[-1][1]
        others = {0, timeline[-2][1] if len(timeline) > 1 else 0} - {latest}
        self.unit = Unit(
            options=len(self.values),
            latest=latest,
            timeline=timeline,
            lost=tuple(sorted(others)),
            kept=tuple(sorted({latest, timeline[0][1]} - {0})),
            metadata=metadata,
        )


class _FileStates:
    """Everything that the disk may hold of one file."""

    def __init__(self, history: FileHistory, first: int) -> None:
        self._synced, self._sector_bytes = history.synced, history.sector_bytes
        length = len(history.synced)
        self._length = _Versions(length, history.lengths, metadata=True) if history.lengths else None
        self._indexes = sorted(history.sectors)
        self._sectors = [
            _Versions(history.synced_sector(index), history.sectors[index], metadata=False) for index in self._indexes
        ]
        self.units = [*([self._length.unit] if self._length else []), *(sector.unit for sector in self._sectors)]
        self._place = slice(first, first + len(self.units))
        self._images: dict[Choice, FileImage] = {}

    def image(self, choice: Choice) -> FileImage:
        """Return the content under a choice: the same object for the same content, hashed once."""
        mine = choice[self._place]
        if mine not in self._images:
            self._images[mine] = self._make(mine)
        return self._images[mine]

    def _make(self, mine: Choice) -> FileImage:
        length = self._length.values[mine[0]] if self._length else len(self._synced)
        options = mine[1:] if self._length else mine
        sectors = zip(self._indexes, self._sectors, options, strict=True)
        changed = tuple((index, sector.values[option]) for index, sector, option in sectors if option)
        return FileImage(self._synced, length, self._sector_bytes, changed)


class PowerCut:
    """The states of one disk at one moment."""

    def __init__(self, root: Directory, journal: NameJournal, histories: Mapping[Inode, FileHistory]) -> None:
        self._root = root
        self._journal = journal.snapshot(root)
        self._families = [_Family(family) for family in self._journal.families()]
        self._units = [family.unit for family in self._families]
        self._files: dict[Inode, _FileStates] = {}
        self._fixed: dict[Node, Image] = {}
        for inode in self._journal.inodes():
            self._add(inode, histories.get(inode))
        self._fix(root)

    def images(self, limit: int, seed: int) -> Iterator[DirectoryImage]:
        """Yield the states, each once: all of them if that takes at most `limit` choices, else a sample."""
        seen: set[int] = set()
        for choice in choices(self._units, limit, seed):
            image = self._image(choice)
            if image.fingerprint not in seen:
                seen.add(image.fingerprint)
                yield image

    def _add(self, inode: Inode, history: FileHistory | None) -> None:
        if history is not None and (history.sectors or history.lengths):
            states = self._files[inode] = _FileStates(history, len(self._units))
            self._units += states.units
        else:
            content = inode.content() if history is None else history.synced
            self._fixed[inode] = FileImage(content, len(content), 1, ())

    def _fix(self, directory: Directory) -> bool:
        """Make the image of a directory once and for all if no choice changes it; say whether it was."""
        nodes = self._journal.nodes(directory)
        # A list, not a generator: every directory below is to be looked at.
        fixed = [self._fix(node) if isinstance(node, Directory) else node in self._fixed for node in nodes]
        if all(fixed) and all(operation.directory is not directory for operation in self._journal.pending):
            names = self._journal.durable(directory)
            self._fixed[directory] = DirectoryImage({name: self._fixed[node] for name, node in names.items()})
        return directory in self._fixed

    def _image(self, choice: Choice) -> DirectoryImage:
        kept: Kept = frozenset().union(
            *(family.states[option] for family, option in zip(self._families, choice, strict=False))
        )
        return self._directory_image(self._root, kept, choice)

    def _directory_image(self, directory: Directory, kept: Kept, choice: Choice) -> DirectoryImage:
        names = self._journal.entries(directory, kept)
        return DirectoryImage({name: self._node_image(node, kept, choice) for name, node in names.items()})

    def _node_image(self, node: Node, kept: Kept, choice: Choice) -> Image:
        if node in self._fixed:
            return self._fixed[node]
        if isinstance(node, Inode):
            return self._files[node].image(choice)
        return self._directory_image(node, kept, choice)
