"""Waiting in a process that does not write: there is nobody to tell it, so it looks."""

import threading
import time
from collections.abc import Callable
from typing import Final

from latewood.clock import Clock
from latewood.errors import WaitExpired

_FIRST_S: Final = 0.001
_LAST_S: Final = 0.05
_MS: Final = 1_000_000


def wait_by_looking(look: Callable[[], int], component: int, target: int, deadline_ms: int | None, clock: Clock) -> int:
    """Return what `look()` gives once it is `target` or more; looks at least every 50 ms.

    Raises:
        WaitExpired: the deadline came first.
    """
    never, pause_s = threading.Event(), _FIRST_S
    patience_s = None if deadline_ms is None else max(0, deadline_ms - clock.now_ns() // _MS) / 1000
    began_s = time.monotonic()
    while (generation := look()) < target:
        late = deadline_ms is not None and clock.now_ns() // _MS >= deadline_ms
        if late or (patience_s is not None and time.monotonic() - began_s >= patience_s):
            message = f"component {component} did not come to generation {target} in time"
            raise WaitExpired(message)
        never.wait(pause_s)
        pause_s = min(2 * pause_s, _LAST_S)
    return generation
