"""Patience: wait for another writer, with pauses that double, up to a bound."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from latewood.errors import Locked

T = TypeVar("T")
_PAUSE_FIRST_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.5


def patiently(action: Callable[[], T], timeout_ms: int, sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what `action` does, trying again while somebody else holds a lock that it needs.

    Raises:
        Locked: that did not end in time.
    """
    left_s, pause_s = timeout_ms / 1000, _PAUSE_FIRST_S
    while True:
        try:
            return action()
        except Locked as error:
            if left_s <= 0:
                error.add_note(f"waited {timeout_ms / 1000:g} s (lockTimeout); a log has one writer: close the other")
                raise
        sleep(min(pause_s, left_s))
        left_s -= pause_s
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
