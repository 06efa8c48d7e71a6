"""Room for what waits or is on the way: whoever comes when it is taken waits for his turn.

Owned by the thread of the client's event loop.
"""

import asyncio
from collections import deque


class Room:
    """Bytes that may be taken.  Something larger than all of it is let in when nobody else is there."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._taken = bytes_max, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size: int) -> bool:
        """Take so many bytes if they are free, and nobody waits for them."""
        if self._waiting or not self._fits(size):
            return False
        self._taken += size
        return True

    async def take(self, size: int) -> None:
        """Take so many bytes; wait until they are free."""
        if self.try_take(size):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # It was its turn, and it has gone.
                self.give(size)
            raise

    def give(self, size: int) -> None:
        """Give so many bytes back."""
        self._taken -= size
        while self._waiting:
            wanted, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
            elif self._fits(wanted):
                self._waiting.popleft()
                self._taken += wanted
                turn.set_result(None)
            else:
                break

    def _fits(self, size: int) -> bool:
        return not self._taken or self._taken + size <= self._bytes_max
