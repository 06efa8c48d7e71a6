"""What the library logs, on stderr: warnings as the program's own lines or, for whoever wants to see all, a log."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from latewood.cli.errors import say

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_AGAIN_S: Final = 60.0
"""After so long the same warning is news."""
_TEXTS_MAX: Final = 256
"""Warnings that are remembered: a server lives for months."""


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print the library's warnings as our own lines, each of them once in a while."""
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
    """Says each warning once; what comes up again in a program that runs for long is said again."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._said: dict[str, float] = {}
        """When each was said, the oldest first."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless it has been said lately."""
        message = record.getMessage()
        if record.created < self._said.get(message, float("-inf")) + _AGAIN_S:
            return
        self._said.pop(message, None)
        self._said[message] = record.created
        if len(self._said) > _TEXTS_MAX:
            del self._said[next(iter(self._said))]
        say(f"warning: {message}")
