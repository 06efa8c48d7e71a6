"""Whether a disk is quick enough to be waited for on the event loop.  Pure.

To have a thread write and sync costs two changes of threads, which on a quick disk is as much as a sync.  So small
writes are done where they come up, as long as the disk is quick; after a slow one, a thread does them again for a
while.  Nothing else happens on the loop meanwhile: the bounds are far below what a node may be silent for.
"""

from typing import Final

from latewood.limits import KiB

SMALL_BYTES: Final = 4 * KiB
"""Of entries: those of a few who wait.  With many on the way a thread gets more done."""
QUICK_S: Final = 0.004
TRIALS: Final = 8
"""Writes in a row that must have been quick."""


class Pace:
    """What is known of a disk.  Its owner guards it."""

    def __init__(self) -> None:
        self._trials_left = TRIALS

    def note(self, seconds: float) -> None:
        """Take note of how long a small write took."""
        self._trials_left = max(0, self._trials_left - 1) if seconds < QUICK_S else TRIALS

    def is_waited_for(self, size: int) -> bool:
        """Say whether so many bytes are written without a thread."""
        return not self._trials_left and size <= SMALL_BYTES
