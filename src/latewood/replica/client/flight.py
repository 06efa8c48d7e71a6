"""One message on the way, with the requests in it: each is answered once, or lost.

There is no task for it: the connection calls it with what comes.  A request whose deadline comes is given up alone; a
node that leaves any unanswered for too long hangs, and its connection is broken off.

Owned by the thread of the client's event loop.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from latewood.replica.client.batch import Batch
from latewood.replica.client.link import Link
from latewood.replica.client.options import ClientOptions
from latewood.replica.client.verdict import Lost
from latewood.replica.replies import Appended, AppendedGroup
from latewood.replica.requests import AppendGroup
from latewood.replica.wire import Reply

Outcome: TypeAlias = Reply | Lost


class Hears(Protocol):
    """Who is told of the ends of requests."""

    def answered(self, batch: Batch, outcome: Outcome, asked: str) -> None:
        """Take the end of a request, and which node was asked."""
        ...

    def carried_out(self, done: Sequence[tuple[Batch, int]]) -> None:
        """Take that requests were carried out: the records of each are neighbours, from that sequence on."""
        ...


class Flight:
    """A message on the way."""

    __slots__ = ("_batches", "_begun", "_hears", "_link", "_loop", "_missing", "_patience_s", "_timer")

    def __init__(self, link: Link, batches: Sequence[Batch], options: ClientOptions, hears: Hears) -> None:
        self._link, self._hears = link, hears
        self._batches: list[Batch | None] = list(batches)
        """By place in the group; None when it is over."""
        self._missing = len(batches)
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._patience_s = min(options.attempt_ms, options.timeout_ms) / 1000
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, client_id: bytes) -> None:
        """Send it.

        Raises:
            WireError: it is larger than a message may be.
        """
        batches = [batch for batch in self._batches if batch is not None]
        if len(batches) == 1:
            self._link.post(batches[0].owner.request(batches[0]), self._take)
        else:
            self._link.post(_group_of(batches, client_id), self._take)
        if self._missing:
            self._wait()

    def _take(self, outcome: Outcome) -> bool:
        if type(outcome) is AppendedGroup:
            answers = zip(outcome.places, outcome.sequences, strict=False)  # A place without a sequence is no answer.
            landed = [(self._landed(place), sequence) for place, sequence in answers]
            self._hears.carried_out([(batch, sequence) for batch, sequence in landed if batch is not None])
            for answer in outcome.answers:
                self._end(answer.id, answer)
        elif type(outcome) is Appended and len(self._batches) > 1:
            return False  # Of which of them?  The deadline will tell.
        else:
            for place in range(len(self._batches)):
                self._end(place, outcome)
        if self._missing:
            return False
        if self._timer is not None:
            self._timer.cancel()
        return True

    def _end(self, place: int, outcome: Outcome) -> None:
        if (batch := self._landed(place)) is not None:
            self._hears.answered(batch, outcome, self._link.address)

    def _landed(self, place: int) -> Batch | None:
        """Return the request at a place, once; None if it was answered before, or nobody waits any more."""
        batch = self._batches[place] if 0 <= place < len(self._batches) else None
        if batch is not None:
            self._batches[place] = None
            self._missing -= 1
        return batch

    def _wait(self) -> None:
        deadline = min([batch.deadline for batch in self._batches if batch is not None])
        when = max(min(self._begun + self._patience_s, deadline), self._loop.time() + 0.001)
        self._timer = self._loop.call_at(when, self._late)

    def _late(self) -> None:
        now = self._loop.time()
        if now >= self._begun + self._patience_s:
            self._link.close(f"{self._link.address} did not answer in time")
            return
        for place, batch in enumerate(self._batches):
            if batch is not None and batch.deadline <= now:
                self._end(place, Lost(f"{self._link.address} did not answer in time", was_sent=True))
        if self._missing:
            self._wait()


def _group_of(batches: Sequence[Batch], client_id: bytes) -> AppendGroup:
    """Return requests as one message."""
    partitions = [batch.owner.partition for batch in batches]
    numbers = [batch.number for batch in batches]
    payloads = [payload for batch in batches for payload in batch.payloads]
    counts = [] if len(payloads) == len(batches) else [len(batch.payloads) for batch in batches]
    return AppendGroup(0, client_id, partitions, numbers, counts, payloads)
