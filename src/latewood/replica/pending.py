"""Requests on their way through Raft, and who waits for them.

Most are plain: one command each, and those of a client that came together share a place in the log (`PendingGroup`).
Whatever else there is to a request goes its own way (`Pending`).  Owned by the event loop's thread.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from latewood.replica.grouping import Answer, GroupReplies
from latewood.replica.replies import NotLeader, Refused
from latewood.replica.requests import AppendGroup

Answering: TypeAlias = Callable[[Answer], None]

Key: TypeAlias = tuple[int, bytes, int]
"""Partition, client and number of a request."""


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
    """Plain requests of one client that share an entry: neighbours in the message that brought them."""

    __slots__ = (
        "_client_id",
        "_counts",
        "_firsts",
        "_found",
        "_is_done",
        "_joined",
        "_partitions",
        "_places",
        "_replies",
        "_request_ids",
    )

    def __init__(self, group: AppendGroup, place: int, firsts: list[int], replies: GroupReplies) -> None:
        """`place` is that of the first of them; `firsts` are the first indices of all.

        Nothing is kept of the message but numbers: its payloads would be in nobody's books.
        """
        self._places = range(place, place + len(firsts))
        self._client_id, self._firsts, self._replies = group.client_id, firsts, replies
        self._partitions, self._request_ids, self._counts = group.partitions, group.request_ids, group.counts
        self._is_done = False
        self._joined: list[tuple[int, Answering]] = []
        """Repetitions, and of which of them."""
        self._found: dict[tuple[int, int], int] | None = None

    def join(self, key: Key, answering: Answering) -> bool:
        """Answer a repetition as `Pending.join`, if it is of one of these; say whether it is."""
        partition, client_id, request_id = key
        if client_id != self._client_id:
            return False
        if self._found is None:
            self._found = {(self._partitions[place], self._request_ids[place]): place for place in self._places}
        place = self._found.get((partition, request_id))
        if place is None:
            return False
        if self._is_done:
            answering(self._indices(place))
        else:
            self._joined.append((place, answering))
        return True

    def committed(self) -> bool:
        """Take note that they are committed, all at once: see `Proposed`."""
        self._is_done = True
        self._replies.add_plain(self._places, [first - 1 for first in self._firsts])
        for place, answering in self._joined:
            answering(self._indices(place))
        return True

    def fail(self, answer: NotLeader | Refused) -> None:
        """Tell everybody who asked: see `Proposed`."""
        for place in self._places:
            self._replies.answer(place, answer)
        for _, answering in self._joined:
            answering(answer)

    def reserved(self) -> Iterable[tuple[int, int]]:
        """Return what is reserved for them: see `Proposed`."""
        own = zip(self._places, self._firsts, strict=True)
        return [(self._partitions[place], first) for place, first in reversed(list(own))]

    def _indices(self, place: int) -> list[int]:
        first = self._firsts[place - self._places.start]
        return list(range(first, first + (self._counts[place] if self._counts else 1)))
