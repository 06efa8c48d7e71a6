"""Appends to one partition: calls that wait together travel together, several requests are on the way at a time.

Requests are numbered in the order in which they are sent first.  No request goes out that is `REQUEST_WINDOW` numbers
ahead of one that is still on the way: beyond that nodes forget.

Owned by the thread of the client's event loop.
"""

import asyncio
from collections import deque
from typing import Any, Protocol

from latewood.errors import ClusterUnavailable, LatewoodError, UsageError
from latewood.replica.client.batch import Batch
from latewood.replica.client.options import ClientOptions
from latewood.replica.client.room import Room
from latewood.replica.requests import REQUEST_WINDOW, Append


class Sends(Protocol):
    """Who sends what waits."""

    deadline: float
    """Of what comes in this turn of the loop: true after `want`."""

    def want(self, batcher: "Batcher") -> None:
        """Call `take` at the end of this turn of the loop, and send what it hands over."""
        ...


class Batcher:
    """The way of appends to one partition."""

    def __init__(self, partition: int, client_id: bytes, options: ClientOptions, room: Room, sender: Sends) -> None:
        self.partition, self._client_id = partition, client_id
        self._options, self._room, self._sender = options, room, sender
        self._records_max, self._bytes_max = options.batch_records_max, options.batch_bytes_max
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Batch] = deque()
        self._filling: Batch | None = None
        """The last that waits, if calls may still be added to it."""
        self._on_the_way: dict[int, Batch] = {}
        """By request number, so the first is the oldest."""
        self._next_number = 1
        self._is_due = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is on the way."""
        return not self._waiting and not self._on_the_way

    def put(self, payload: bytes, size: int) -> "asyncio.Future[int]":
        """Have a record of `size` bytes appended; the future has its sequence.

        Room for it must have been taken: it is given back when it is done.
        """
        batch = self._filling
        future: asyncio.Future[int] = asyncio.Future(loop=self._loop)
        if batch is None or batch.size + size > self._bytes_max or len(batch.payloads) >= self._records_max:
            self._begin([payload], size, future)
        else:
            batch.size += size
            batch.payloads.append(payload)
            batch.futures.append(future)
        return future

    def put_many(self, payloads: list[bytes], size: int) -> "asyncio.Future[list[int]]":
        """Have records of together `size` bytes appended, in one request, as `put`."""
        batch = self._filling
        future: asyncio.Future[list[int]] = asyncio.Future(loop=self._loop)
        if (
            batch is None
            or batch.size + size > self._bytes_max
            or len(batch.payloads) + len(payloads) > self._records_max
        ):
            self._begin(payloads[:], size, future, {0: len(payloads)})  # Others' may be added: the list stays theirs.
        else:
            batch.add_many(payloads, size, future)
        return future

    def take(self, ready: list[Batch]) -> None:
        """Add the requests that may be sent now, with their numbers."""
        self._is_due = False
        waiting = self._waiting
        while waiting and (not self._on_the_way or self._may_send()):
            batch = waiting.popleft()
            if batch is self._filling:
                self._filling = None
            if dropped := batch.drop_done():
                self._room.give(dropped)
            if batch.futures:
                batch.number = number = self._next_number
                self._next_number = number + 1
                self._on_the_way[number] = batch
                ready.append(batch)
        if waiting:
            self._expire()

    def succeeded(self, batch: Batch) -> None:
        """Take note that a request was carried out, and its calls have been told; its room is not given back yet."""
        del self._on_the_way[batch.number]
        if self._waiting:
            self._want()

    def failed(self, batch: Batch, error: LatewoodError) -> None:
        """Tell the calls of a request that is given up."""
        del self._on_the_way[batch.number]
        if isinstance(error, UsageError) and len(batch.futures) > 1:
            # One of them is at fault, and nothing was written: send each on its own, so that only that one fails.
            self._waiting.extendleft(reversed(batch.split()))
        else:
            batch.fail(error, self.request(batch))
            self._room.give(batch.size)
        if self._waiting:
            self._want()

    def request(self, batch: Batch) -> Append:
        """Return a request as it is sent when it travels alone."""
        return Append(0, self.partition, self._client_id, batch.number, batch.payloads)

    def _begin(
        self, payloads: list[bytes], size: int, future: "asyncio.Future[Any]", counts: dict[int, int] | None = None
    ) -> None:
        """Begin a request with a call; others may be added to it."""
        if not self._is_due:
            self._want()
        batch = self._filling = Batch(self, self._sender.deadline, payloads, size, [future], counts)
        self._waiting.append(batch)

    def _want(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._sender.want(self)

    def _may_send(self) -> bool:
        if len(self._on_the_way) >= self._options.pipeline:
            return False
        return self._next_number - next(iter(self._on_the_way)) < REQUEST_WINDOW - 1

    def _expire(self) -> None:
        """Give up requests whose deadline came before they could be sent."""
        now = self._loop.time()
        while self._waiting and self._waiting[0].deadline <= now:
            message = f"not sent within {self._options.timeout_ms / 1000:.3g} s: what came before is not answered yet"
            batch = self._waiting.popleft()
            if batch is self._filling:
                self._filling = None
            batch.fail(ClusterUnavailable(message), None)
            self._room.give(batch.size)
