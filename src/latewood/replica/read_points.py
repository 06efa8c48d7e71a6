"""Read points: reads wait until a majority has confirmed that this node leads, those of one turn together.

Owned by the event loop's thread.
"""

import asyncio
from collections.abc import Callable, Sequence

from latewood.errors import UnavailableError
from latewood.replica.engine import ReadState


class ReadPoints:
    """Who waits for which point."""

    def __init__(self, ask: Callable[[bytes], None]) -> None:
        """`ask` has the engine find a point out, for a context; the answer comes to `answered`, or never."""
        self._ask_engine = ask
        self._new: list[asyncio.Future[int]] = []
        self._asked: dict[bytes, list[asyncio.Future[int]]] = {}
        self._number = 0

    async def index(self) -> int:
        """Return the global index that must have been routed before a read that begins now.

        May take for ever: the caller has a deadline.

        Raises:
            UnavailableError: this node leads no more.
        """
        loop = asyncio.get_running_loop()
        if not self._new:
            loop.call_soon(self._ask)
        future: asyncio.Future[int] = loop.create_future()
        self._new.append(future)
        return await future

    def answered(self, reads: Sequence[ReadState]) -> None:
        """Take the engine's answers."""
        for index, context in reads:
            for future in self._asked.pop(context, ()):
                if not future.done():
                    future.set_result(index)

    def fail(self, reason: str) -> None:
        """Tell everybody that there will be no answer."""
        waiting = [*self._new, *(future for futures in self._asked.values() for future in futures)]
        self._new, self._asked = [], {}
        for future in waiting:
            if not future.done():
                future.set_exception(UnavailableError(reason))

    def _ask(self) -> None:
        waiting, self._new = [future for future in self._new if not future.done()], []
        # What nobody waits for any more was never answered: the engine may lose a question.
        self._asked = {key: futures for key, futures in self._asked.items() if not all(one.done() for one in futures)}
        if waiting:
            self._number += 1
            context = self._number.to_bytes(8, "big")
            self._asked[context] = waiting
            self._ask_engine(context)
