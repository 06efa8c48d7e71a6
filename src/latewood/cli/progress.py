"""How far a long command is: one line on stderr that is drawn over, and only on a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

Report = Callable[[int, int], None]
"""Told how much is done, of how much."""

_INTERVAL_S: Final = 0.1
_CLEAR_LINE: Final = "\r\x1b[K"


@contextmanager
def progress(what: str) -> Iterator[Report | None]:
    """Yield what to call after each step; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    drawn_at = 0.0

    def report(done: int, total: int) -> None:
        nonlocal drawn_at
        now = time.monotonic()
        if now - drawn_at >= _INTERVAL_S or done == total:
            drawn_at = now
            share = done * 100 // max(total, 1)
            sys.stderr.write(f"{_CLEAR_LINE}{what}: {done:,} of {total:,} ({share}%)")
            sys.stderr.flush()

    try:
        yield report
    finally:
        if drawn_at:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
