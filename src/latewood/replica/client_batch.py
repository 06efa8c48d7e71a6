"""Appends to one partition: those that wait together travel together, several requests are on the way at a time.

Each request has a number.  It keeps it, and its payloads, however often it is sent: that is how nodes recognize it.
No request goes out that is `REQUEST_WINDOW` numbers ahead of one that is still on the way: beyond that they forget.

Owned by the thread of the client's event loop.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from latewood.errors import ClusterUnavailable, LatewoodError, OutcomeUnknown, UsageError
from latewood.replica.client_options import PATIENCE_MS_MAX, ClientOptions
from latewood.replica.client_parts import SentPart
from latewood.replica.client_room import Room
from latewood.replica.replies import Appended
from latewood.replica.requests import REQUEST_WINDOW, Append

Send: TypeAlias = Callable[[Append, float], Awaitable[Appended]]
"""Sends a request until it is answered, at most until a time of the loop's clock."""


class _Call:
    """Records that belong together, and who waits for their sequences."""

    __slots__ = ("alone", "deadline", "future", "payloads", "size")

    def __init__(self, payloads: list[bytes], size: int, future: "asyncio.Future[list[int]]", deadline: float) -> None:
        self.payloads, self.size, self.future, self.deadline = payloads, size, future, deadline
        self.alone = False


class Batcher:
    """The way of appends to one partition."""

    def __init__(self, partition: int, client_id: bytes, options: ClientOptions, room: Room, send: Send) -> None:
        self._partition, self._client_id, self._options, self._send = partition, client_id, options, send
        self._room = room
        self._patience_s = options.timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Call] = deque()
        self._on_the_way: dict[int, asyncio.Task[None]] = {}
        """By request number, so the first is the oldest."""
        self._next_number = 1
        self._is_due = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is on the way."""
        return not self._waiting and not self._on_the_way

    def put(self, payloads: list[bytes], size: int) -> "asyncio.Future[list[int]]":
        """Have records of together `size` bytes appended; the future has their sequences.

        They must fit one request, and have been given room for: it is given back when they are done.
        """
        future: asyncio.Future[list[int]] = self._loop.create_future()
        self._waiting.append(_Call(payloads, size, future, self._loop.time() + self._patience_s))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._pump)  # Those who call in this turn of the loop travel together.
        return future

    async def drain(self) -> None:
        """Return when nothing waits and nothing is on the way."""
        while self._on_the_way or self._waiting:
            if self._on_the_way:
                await asyncio.wait(list(self._on_the_way.values()))
            await asyncio.sleep(0)

    def _pump(self) -> None:
        self._is_due = False
        while self._waiting and self._may_send():
            calls = self._take()
            if not calls:
                continue
            number, self._next_number = self._next_number, self._next_number + 1
            payloads = calls[0].payloads if len(calls) == 1 else [one for call in calls for one in call.payloads]
            request = Append(0, self._partition, self._client_id, number, payloads)
            self._on_the_way[number] = self._loop.create_task(self._deliver(request, calls))
        if self._waiting:
            self._expire()

    def _may_send(self) -> bool:
        if len(self._on_the_way) >= self._options.pipeline:
            return False
        oldest = next(iter(self._on_the_way), self._next_number)
        return self._next_number - oldest < REQUEST_WINDOW - 1

    def _take(self) -> list[_Call]:
        """Return the calls of the next request."""
        calls, count, size, waiting = list[_Call](), 0, 0, self._waiting
        while waiting:
            call = waiting[0]
            if call.future.done():  # Whoever asked does not wait any more, and nothing was sent.
                self._room.give(waiting.popleft().size)
                continue
            count, size = count + len(call.payloads), size + call.size
            if calls and (
                call.alone or count > self._options.batch_records_max or size > self._options.batch_bytes_max
            ):
                break
            calls.append(waiting.popleft())
            if call.alone:
                break
        return calls

    async def _deliver(self, request: Append, calls: Sequence[_Call]) -> None:
        try:
            appended = await self._send(request, calls[0].deadline)
            if len(appended.sequences) != len(request.payloads):
                reason = f"{len(appended.sequences)} sequences came back for {len(request.payloads)} records"
                raise OutcomeUnknown(reason)
            _succeed(calls, appended.sequences)
        except UsageError as error:
            self._refused(calls, error)
        except LatewoodError as error:
            _fail(calls, error, request)
        finally:
            del self._on_the_way[request.request_id]
            self._end(calls)
            self._pump()

    def _end(self, calls: Sequence[_Call]) -> None:
        """Give back the room of those that are done, which are all but those that are to be sent again."""
        again = len(calls) > 1 and calls[0].alone
        for call in calls if not again else ():
            if not call.future.done():  # The task was cancelled, with the loop.
                call.future.cancel()
        if not again:
            self._room.give(sum([call.size for call in calls]))

    def _refused(self, calls: Sequence[_Call], error: LatewoodError) -> None:
        """One of them is at fault, and nothing was written: send each on its own, so that only that one fails."""
        if len(calls) == 1:
            _fail(calls, error, None)
            return
        for call in reversed(calls):
            call.alone = True
            self._waiting.appendleft(call)

    def _expire(self) -> None:
        """Give up calls whose deadline came before there was room to send them."""
        now = self._loop.time()
        while self._waiting and self._waiting[0].deadline <= now:
            message = f"not sent within {self._options.timeout_ms / 1000:.3g} s: what came before is not answered yet"
            call = self._waiting.popleft()
            _fail([call], ClusterUnavailable(message), None)
            self._room.give(call.size)


def _succeed(calls: Sequence[_Call], sequences: list[int]) -> None:
    at = 0
    for call in calls:
        start, at = at, at + len(call.payloads)
        if not call.future.done():
            call.future.set_result(sequences[start:at])


def _fail(calls: Sequence[_Call], error: LatewoodError, request: Append | None) -> None:
    """Give each its own error: one that is raised twice would show the way of both."""
    at = 0
    for call in calls:
        start, at = at, at + len(call.payloads)
        if call.future.done():
            continue
        own: LatewoodError
        if isinstance(error, OutcomeUnknown) and request is not None:
            until = call.deadline + PATIENCE_MS_MAX / 1000
            own = OutcomeUnknown(error.reason, (SentPart(request, start, at, until),))
        else:
            own = type(error)(*error.args)
        call.future.set_exception(own)
        call.future.exception()  # Whoever was told to wait may have gone.
