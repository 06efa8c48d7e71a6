"""Waiting for something that another thread or process does, never longer than a bound."""

import threading
from collections.abc import Callable
from typing import Final

SECONDS_MAX: Final = 60
_NAP_S: Final = 0.002


def wait_until(condition: Callable[[], object]) -> None:
    """Return once `condition()` is true; it is an error if that never comes."""
    never = threading.Event()
    for _ in range(int(SECONDS_MAX / _NAP_S)):
        if condition():
            return
        never.wait(_NAP_S)
    message = f"waited {SECONDS_MAX} seconds in vain"
    raise AssertionError(message)
