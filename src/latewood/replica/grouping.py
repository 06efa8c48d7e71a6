"""Answers to requests that came in a group: those that are known in one turn of the loop leave together.

None waits for another, so a partition that is slow to answer holds up nobody but itself.  Owned by the event loop's
thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from latewood.replica.replies import Appended, AppendedGroup, NotLeader, Refused

Answer: TypeAlias = list[int] | NotLeader | Refused
"""The indices of a request's records, or why there are none."""

AppendAnswer: TypeAlias = Appended | NotLeader | Refused


class GroupReplies:
    """The replies to one `AppendGroup`."""

    def __init__(self, number: int, send: Callable[[AppendedGroup], None], refused: Callable[[], None]) -> None:
        """`refused` hears of each request that is."""
        self._number, self._send, self._refused = number, send, refused
        self._loop = asyncio.get_running_loop()
        self._answers: list[AppendAnswer] = []
        self._places: list[int] = []
        self._sequences: list[int] = []

    def answer(self, place: int, answer: Answer) -> None:
        """Send the answer to the request at a place in the group, at the end of this turn."""
        if isinstance(answer, Refused):
            self._refused()
        self._want()
        self._answers.append(reply_to(place, answer))

    def add_plain(self, places: Sequence[int], sequences: Sequence[int]) -> None:
        """Send the answers to requests whose records are neighbours, from these sequences on, in the same way."""
        self._want()
        self._places += places
        self._sequences += sequences

    def _want(self) -> None:
        if not self._answers and not self._places:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        reply = AppendedGroup(self._number, self._answers, self._places, self._sequences)
        self._answers, self._places, self._sequences = [], [], []
        self._send(reply)


def reply_to(number: int, answer: Answer) -> AppendAnswer:
    """Return what is said to the request of that number."""
    if isinstance(answer, list):
        return Appended(number, sequence_runs(answer))
    return msgspec.structs.replace(answer, id=number)


def sequence_runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Return the sequences of records as runs; their partition indices, in ascending order, are one more."""
    if not indices:
        return []
    if indices[-1] - indices[0] == len(indices) - 1:
        return [(indices[0] - 1, len(indices))]
    runs, start = list[tuple[int, int]](), 0
    for at in range(1, len(indices) + 1):
        if at == len(indices) or indices[at] != indices[at - 1] + 1:
            runs.append((indices[start] - 1, at - start))
            start = at
    return runs
