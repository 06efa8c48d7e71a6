"""Requests on their way through Raft, and who waits for them.

Most are plain: one command each, and those of a client that came together share a place in the log (`PendingGroup`).
Whatever else there is to a request goes its own way (`Pending`).  Owned by the event loop's thread.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from latewood.replica.grouping import Answer, GroupReplies
from latewood.replica.replies import NotLeader, Refused

Answering: TypeAlias = Callable[[Answer], None]

Key: TypeAlias = tuple[int, bytes, int]
"""Partition, client and number of a request."""

PlainCommand: TypeAlias = tuple[int, int, Sequence[bytes], int]
"""Partition, the index of its first record, its records, and the number of the request."""


class Proposed(Protocol):
    """What waits for entries of the parent log."""

    def committed(self) -> bool:
        """Take note that one more of them is committed; say whether that was the last: then it is answered."""
        ...

    def fail(self, answer: NotLeader | Refused) -> None:
        """Tell everybody who asked that it was not done, or that nobody knows."""
        ...

    def reserved(self) -> Iterable[tuple[int, int]]:
        """Return for which partitions indices are reserved for it, and from which on."""
        ...


@dataclass(slots=True)
class Pending:
    """One request, of one command or several."""

    key: Key
    indices: list[int]
    missing: int
    """Commands that are not committed yet."""
    first_index: int
    """The first that was reserved for it; 0 of a teardown."""
    answerings: list[Answering] = field(default_factory=list)

    def join(self, answering: Answering) -> None:
        """Answer a repetition with the first, or at once if that was answered and only the partitions do not know."""
        if self.missing:
            self.answerings.append(answering)
        else:
            answering(self.indices)

    def committed(self) -> bool:
        """Take note of a command that is committed: see `Proposed`."""
        self.missing -= 1
        if self.missing:
            return False
        self._answer(self.indices)
        return True

    def fail(self, answer: NotLeader | Refused) -> None:
        """Tell everybody who asked: see `Proposed`."""
        self._answer(answer)

    def reserved(self) -> Iterable[tuple[int, int]]:
        """Return what is reserved for it: see `Proposed`."""
        return [(self.key[0], self.first_index)] if self.first_index else []

    def _answer(self, answer: Answer) -> None:
        for answering in self.answerings:
            answering(answer)


class PendingGroup:
    """Plain requests of one client that share an entry."""

    __slots__ = ("_found", "_is_done", "_joined", "_replies", "client_id", "commands", "places", "size")

    def __init__(self, client_id: bytes, replies: GroupReplies) -> None:
        self.client_id, self._replies = client_id, replies
        self.commands: list[PlainCommand] = []
        self.places: list[int] = []
        """Of the requests in the message that brought them."""
        self.size = 0
        """Bytes of the commands."""
        self._is_done = False
        self._joined: list[tuple[int, Answering]] = []
        """Repetitions, and of which of them."""
        self._found: dict[tuple[int, int], int] | None = None

    def add(self, place: int, command: PlainCommand, size: int) -> None:
        """Add a request, whose command has `size` bytes."""
        self.places.append(place)
        self.commands.append(command)
        self.size += size

    def join(self, key: Key, answering: Answering) -> bool:
        """Answer a repetition as `Pending.join`, if it is of one of these; say whether it is."""
        partition, client_id, request_id = key
        if client_id != self.client_id:
            return False
        if self._found is None:
            self._found = {(command[0], command[3]): at for at, command in enumerate(self.commands)}
        at = self._found.get((partition, request_id))
        if at is None:
            return False
        if self._is_done:
            answering(self._indices(at))
        else:
            self._joined.append((at, answering))
        return True

    def committed(self) -> bool:
        """Take note that they are committed, all at once: see `Proposed`."""
        self._is_done = True
        self._replies.add_plain(self.places, [command[1] - 1 for command in self.commands])
        for at, answering in self._joined:
            answering(self._indices(at))
        return True

    def fail(self, answer: NotLeader | Refused) -> None:
        """Tell everybody who asked: see `Proposed`."""
        for place in self.places:
            self._replies.answer(place, answer)
        for _, answering in self._joined:
            answering(answer)

    def reserved(self) -> Iterable[tuple[int, int]]:
        """Return what is reserved for them: see `Proposed`."""
        return [(partition, first) for partition, first, _, _ in reversed(self.commands)]

    def _indices(self, at: int) -> list[int]:
        _, first, payloads, _ = self.commands[at]
        return list(range(first, first + len(payloads)))
