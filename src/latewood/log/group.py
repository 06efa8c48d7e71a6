"""Group commit for asyncio: many producers await one fdatasync.

Rounds of flushing follow each other, one at a time for each event loop.  A round serves whoever appended before it
began; those that came later are served by the next, which starts as soon as it ends.  The flush itself runs in a
thread of its own; everything else here belongs to the event loop.
"""

from asyncio import AbstractEventLoop, Future, get_running_loop
from concurrent.futures import ThreadPoolExecutor

from latewood.errors import ClosedError
from latewood.log.writer import Writer


class GroupCommit:
    """Flushes for all that wait, of any number of event loops."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="latewood-group-commit")
        self._waiting: dict[AbstractEventLoop, list[Future[None]]] = {}
        """Who waits for the next round, in each loop that has one under way or due."""

    def durable(self, stop: int) -> "Future[None]":
        """Return a future that is done when every record below sequence `stop` is durable.

        It fails as `Writer.flush` does.
        """
        loop = get_running_loop()
        future: Future[None] = loop.create_future()
        if self._writer.durability.durable_sequence >= stop:
            future.set_result(None)
        elif (waiting := self._waiting.get(loop)) is not None:
            waiting.append(future)
        else:
            self._waiting[loop] = [future]
            loop.call_soon(self._start_round, loop)  # After everybody who is ready to append has done so.
        return future

    async def append(self, payload: bytes, ext_id: int, timestamp_ns: int | None) -> int:
        """Append where room must be made first, which may wait for the disk, off the event loop."""
        return await get_running_loop().run_in_executor(
            self._executor, self._writer.append, payload, ext_id, timestamp_ns
        )

    def close(self) -> None:
        """End the flushing thread."""
        self._executor.shutdown()

    def _start_round(self, loop: AbstractEventLoop) -> None:
        waiters, self._waiting[loop] = self._waiting[loop], []
        try:
            flushed = loop.run_in_executor(self._executor, self._writer.flush)
        except RuntimeError:  # `close` ended the thread.
            self._answer(waiters, ClosedError("the log is closed; open it again"))
            del self._waiting[loop]
        else:
            flushed.add_done_callback(lambda done: self._end_round(loop, done, waiters))

    def _end_round(self, loop: AbstractEventLoop, flushed: "Future[None]", waiters: "list[Future[None]]") -> None:
        """Answer the producers of a round, and start the next for those that came meanwhile."""
        self._answer(waiters, flushed.exception())
        if self._waiting[loop]:
            loop.call_soon(self._start_round, loop)
        else:
            del self._waiting[loop]

    @staticmethod
    def _answer(waiters: "list[Future[None]]", error: BaseException | None) -> None:
        for future in waiters:
            if future.done():
                continue  # Its producer was cancelled; the record is in the log.
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
