"""Ctrl-C, held back while a log is being written.

An interrupt in the middle of an append or a roll would leave the work half done.  It is remembered instead, and
acts where the program says that it may: while it waits.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether Ctrl-C was pressed, and whether it may act now."""

    def __init__(self) -> None:
        self._pressed = self._allowed = False

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Remember Ctrl-C instead of acting on it, but inside `allowed`."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Only the main thread is ever interrupted.
            return
        before = signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let Ctrl-C act, also one that was pressed before.

        Raises:
            KeyboardInterrupt: it was.
        """
        self._allowed = True
        try:
            if self._pressed:
                raise KeyboardInterrupt
            yield
        finally:
            self._allowed = False

    def _press(self, signal_number: int, frame: FrameType | None) -> None:
        del signal_number, frame
        self._pressed = True
        if self._allowed:
            raise KeyboardInterrupt
