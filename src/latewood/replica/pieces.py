"""The state of a user's machine, piece by piece, from a thread of its own: so that one that hangs keeps nobody.

The machine is at work until `snapshot` has ended, however long that takes: only then `on_end` is called.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Final

from latewood.errors import UnavailableError
from latewood.replica.machine import PartitionStateMachine

_WAITING_MAX: Final = 4
"""Pieces that wait for whoever writes them."""
_LOOK_S: Final = 0.1
"""So often the thread looks whether anybody still wants its pieces."""


class PieceFeed:
    """Yields what a machine's `snapshot` yields.  Iterate once, in one thread, then `stop`."""

    def __init__(
        self,
        partition_id: int,
        machine: PartitionStateMachine,
        wait_s: float,
        on_piece: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        """`on_piece` and `on_end` are called by the thread, after each piece and at the end."""
        self._partition_id, self._machine, self._wait_s = partition_id, machine, wait_s
        self._on_piece, self._on_end = on_piece, on_end
        self._pieces: queue.Queue[bytes | Exception | None] = queue.Queue(_WAITING_MAX)
        self._is_wanted = True
        threading.Thread(target=self._run, name=f"latewood-snapshot-{partition_id}", daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces.

        Raises:
            UnavailableError: none came for too long.
            Exception: whatever the machine raised.
        """
        while True:
            try:
                piece = self._pieces.get(timeout=self._wait_s)
            except queue.Empty:
                message = f"the machine of partition {self._partition_id} has given no piece of its state for too long"
                raise UnavailableError(message) from None
            if isinstance(piece, Exception):
                raise piece
            if piece is None:
                return
            yield piece

    def stop(self) -> None:
        """Want no more."""
        self._is_wanted = False

    def _run(self) -> None:
        end: Exception | None = None
        try:
            for piece in self._machine.snapshot():
                self._on_piece()
                if not self._put(piece):
                    break
        except Exception as error:  # noqa: BLE001 - user code: whoever iterates is told
            end = error
        self._on_end()
        self._put(end)

    def _put(self, piece: bytes | Exception | None) -> bool:
        """Hand a piece on; say whether somebody wants it."""
        while self._is_wanted:
            try:
                self._pieces.put(piece, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False
