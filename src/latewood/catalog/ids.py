"""Ids that are never given out twice, reserved durably in blocks."""

from collections.abc import Callable

from latewood.errors import UsageError
from latewood.forking import OwnLock
from latewood.limits import CATALOG_BATCH_OPS_MAX, CATALOG_ID_BLOCK


class IdSource:
    """Gives out the numbers that one component's generation has passed.

    A block is reserved by raising the generation, durably, before any id of it is given out.  What is left of a block
    when the process ends is lost.
    """

    def __init__(self, raise_generation: Callable[[int], int]) -> None:
        """`raise_generation(increment)` commits, and returns the generation it raised the component to."""
        self._raise_generation = raise_generation
        self._lock = OwnLock()
        self._next = self._stop = 0

    def reserve(self, count: int = 1) -> range:
        """Return so many consecutive ids.

        Raises:
            UsageError: more than a commit could use.
        """
        if not 0 < count <= CATALOG_BATCH_OPS_MAX:
            message = f"ids come from 1 to {CATALOG_BATCH_OPS_MAX:,} at a time, not {count}"
            raise UsageError(message)
        with self._lock:
            if self._stop - self._next < count:
                block = max(count, CATALOG_ID_BLOCK)
                last = self._raise_generation(block)
                self._next, self._stop = last - block + 1, last + 1
            first = self._next
            self._next += count
            return range(first, first + count)
