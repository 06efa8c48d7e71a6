"""Room for what waits or is on the way: whoever comes when it is taken waits for his turn.

Owned by the thread of the client's event loop.
"""

import asyncio
from collections import deque


class Room:
    """Bytes that may be taken.  Something larger than all of it is let in when nobody else is there.

    Whoever finds `size <= free` and not `is_crowded` may take by himself: `free -= size`.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.free = bytes_max
        """Below 0 while something larger than all of it is in."""
        self.is_crowded = False
        """Somebody waits: whoever comes waits behind."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        """Bytes that are not free."""
        return self._bytes_max - self.free

    async def take(self, size: int) -> None:
        """Take so many bytes; wait until they are free."""
        if not self.is_crowded and self._fits(size):
            self.free -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        self.is_crowded = True
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # It was its turn, and it has gone.
                self.give(size)
            raise

    def give(self, size: int) -> None:
        """Give so many bytes back."""
        self.free += size
        if self.is_crowded:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            wanted, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(wanted):
                    break
                self.free -= wanted
                turn.set_result(None)
            self._waiting.popleft()
        self.is_crowded = bool(self._waiting)

    def _fits(self, size: int) -> bool:
        return self.free == self._bytes_max or size <= self.free
