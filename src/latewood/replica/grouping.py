"""Answers to requests that came in a group: those that are known in one turn of the loop leave together.

None waits for another, so a partition that is slow to answer holds up nobody but itself.  Owned by the event loop's
thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from latewood.replica.replies import Appended, AppendedGroup, NotLeader, Refused

AppendAnswer: TypeAlias = Appended | NotLeader | Refused


class GroupReplies:
    """The replies to one `AppendGroup`."""

    def __init__(self, number: int, send: Callable[[AppendedGroup], None]) -> None:
        self._number, self._send = number, send
        self._loop = asyncio.get_running_loop()
        self._answers: list[AppendAnswer] = []

    def add(self, answer: AppendAnswer) -> None:
        """Send an answer, whose id is its place in the group, at the end of this turn."""
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.append(answer)

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        self._send(AppendedGroup(self._number, answers))


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
