"""Records that travel in one request, and who waits for their sequences.

Calls are added while the request waits to be sent.  From then on its number and its payloads stay as they are however
often it is sent: that is how nodes recognize it.

Most calls are of one record, and cost no more than a place in two lists.  Owned by the thread of the event loop.
"""

from collections.abc import Iterator, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from latewood.errors import LatewoodError, OutcomeUnknown
from latewood.replica.client.options import PATIENCE_MS_MAX
from latewood.replica.client.parts import SentPart
from latewood.replica.requests import Append

if TYPE_CHECKING:
    import asyncio

    from latewood.replica.client.batcher import Batcher

_IS_DONE: Final = methodcaller("done")


class Trouble(NamedTuple):
    """Attempts that have failed."""

    attempts: int
    in_doubt: bool
    """One of them may have been carried out."""
    last: LatewoodError
    """Why the last one failed."""


class Batch:
    """One request to one partition."""

    __slots__ = ("counts", "deadline", "futures", "number", "owner", "payloads", "size", "trouble")

    def __init__(
        self,
        owner: "Batcher",
        deadline: float,
        payloads: list[bytes],
        size: int,
        futures: "list[asyncio.Future[Any]]",
        counts: dict[int, int] | None = None,
    ) -> None:
        self.owner = owner
        self.deadline = deadline
        """Of the call that came first; by the loop's clock."""
        self.number = 0
        """Of the request; 0 until it is sent."""
        self.payloads = payloads
        self.size = size
        """Bytes of the payloads."""
        self.futures = futures
        """One for each call: of a sequence, or of a list of them."""
        self.counts = counts
        """How many records a call has, by its place; calls of `append` are not in it."""
        self.trouble: Trouble | None = None
        """What its attempts so far have come to, if it had to be sent more than once."""

    def add_many(self, payloads: list[bytes], size: int, future: "asyncio.Future[list[int]]") -> None:
        """Add a call of many records."""
        if self.counts is None:
            self.counts = {}
        self.counts[len(self.futures)] = len(payloads)
        self.payloads += payloads
        self.size += size
        self.futures.append(future)

    def drop_done(self) -> int:
        """Leave out calls that nobody waits for any more, before anything is sent; return the bytes that they had."""
        futures = self.futures
        if not (futures[0].done() if len(futures) == 1 else any(map(_IS_DONE, futures))):
            return 0
        kept, size = Batch(self.owner, self.deadline, [], 0, []), self.size
        for one in self.split():
            if not one.futures[0].done():
                kept.join(one)
        self.payloads, self.futures, self.counts, self.size = kept.payloads, kept.futures, kept.counts, kept.size
        return size - kept.size

    def join(self, other: "Batch") -> None:
        """Add the one call of another."""
        if other.counts:
            self.add_many(other.payloads, other.size, other.futures[0])
        else:
            self.payloads += other.payloads
            self.futures += other.futures
            self.size += other.size

    def split(self) -> "list[Batch]":
        """Return each call as a request of its own."""
        found = list[Batch]()
        for place, start, stop in self._shares():
            payloads = self.payloads[start:stop]
            counts = {0: stop - start} if self.counts and place in self.counts else None
            size = sum(map(len, payloads))
            found.append(Batch(self.owner, self.deadline, payloads, size, [self.futures[place]], counts))
        return found

    def succeed_from(self, sequence: int) -> None:
        """Give each call its sequences, which are neighbours, from this one on."""
        if len(self.payloads) == 1 and self.counts is None:  # As with many partitions: all else costs more than this.
            if not self.futures[0].done():
                self.futures[0].set_result(sequence)
        else:
            self.succeed([(sequence, len(self.payloads))])

    def succeed(self, runs: Sequence[tuple[int, int]]) -> bool:
        """Give each call its sequences; False, and nothing given, if there are not as many as records."""
        if sum([count for _, count in runs]) != len(self.payloads):
            return False
        if self.counts is not None:
            self._give([sequence for start, count in runs for sequence in range(start, start + count)])
            return True
        futures = iter(self.futures)
        for start, count in runs:  # The numbers first: `zip` must not take a future that it has none for.
            for sequence, future in zip(range(start, start + count), futures, strict=False):
                if not future.done():
                    future.set_result(sequence)
        return True

    def fail(self, error: LatewoodError, request: Append | None) -> None:
        """Give each call its own error: one that is raised twice would show the way of both.

        `request`: what was sent, with which an unknown outcome can be resolved.
        """
        for place, start, stop in self._shares():
            future = self.futures[place]
            if future.done():
                continue
            own: LatewoodError
            if isinstance(error, OutcomeUnknown) and request is not None:
                until = self.deadline + PATIENCE_MS_MAX / 1000
                own = type(error)(error.reason, (SentPart(request, start, stop, until),))
            else:
                own = type(error)(*error.args)
            future.set_exception(own)
            future.exception()  # Whoever was told to wait may have gone.

    def _give(self, sequences: Sequence[int]) -> None:
        assert self.counts is not None
        for place, start, stop in self._shares():
            future = self.futures[place]
            if not future.done():
                future.set_result(list(sequences[start:stop]) if place in self.counts else sequences[start])

    def _shares(self) -> Iterator[tuple[int, int, int]]:
        """Yield for each call its place, and where its records begin and end."""
        counts, at = self.counts or {}, 0
        for place in range(len(self.futures)):
            start, at = at, at + counts.get(place, 1)
            yield place, start, at
