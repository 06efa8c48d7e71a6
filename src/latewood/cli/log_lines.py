"""What the library logs, on stderr: warnings as the program's own lines or, for whoever wants to see all, a log."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from latewood.cli.errors import say

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print the library's warnings as our own lines, each of them once."""
    handler = _Lines(logging.WARNING)
    logger = logging.getLogger("latewood")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def log_instead() -> None:
    """Write a log of all that happens, and no lines: each warning would be there twice."""
    logger = logging.getLogger("latewood")
    for handler in [one for one in logger.handlers if isinstance(one, _Lines)]:
        logger.removeHandler(handler)
    logging.basicConfig(level=logging.INFO, format=_FORMAT, stream=sys.stderr)


class _Lines(logging.Handler):
    """Says each warning once."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless it has been said."""
        message = record.getMessage()
        if message not in self._said:
            self._said.add(message)
            say(f"warning: {message}")
