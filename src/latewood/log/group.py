"""Group commit for asyncio: many producers await one fdatasync."""

from asyncio import AbstractEventLoop, Future, get_running_loop, shield
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from latewood.log.writer import Writer

if TYPE_CHECKING:
    from latewood.log.durability import Durability


class GroupCommit:
    """Rounds of flushing, one at a time for each event loop.

    Whoever appended before a round began is served by it; the others wait for the next, which the first of them
    starts.  Used from event loops only; the flush itself runs in a thread of its own.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="latewood-group-commit")
        self._rounds: WeakKeyDictionary[AbstractEventLoop, Future[None]] = WeakKeyDictionary()

    async def durable(self, stop: int) -> None:
        """Return when every record below sequence `stop` is durable.

        Raises:
            Poisoned: the flush failed.
        """
        durability: Durability = self._writer.durability
        while durability.durable_sequence < stop:
            loop = get_running_loop()
            current = self._rounds.get(loop)
            if current is None or current.done():
                current = loop.run_in_executor(self._executor, self._writer.flush)
                self._rounds[loop] = current
            await shield(current)

    async def append(self, payload: bytes, ext_id: int, timestamp_ns: int | None) -> int:
        """Append where room must be made first, which may wait for the disk, off the event loop."""
        return await get_running_loop().run_in_executor(
            self._executor, self._writer.append, payload, ext_id, timestamp_ns
        )

    def close(self) -> None:
        """End the flushing thread."""
        self._executor.shutdown()
