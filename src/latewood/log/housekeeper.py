"""The one background thread of a log that is open to write."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from latewood.errors import ClosedError, LatewoodError
from latewood.interrupts import Uninterrupted

_logger = logging.getLogger(__name__)
_RETRY_S = 1.0
"""After a failure the work is tried again so soon, and no sooner."""


class Housekeeper:
    """Runs `work` whenever it is poked, and again when `work` said that more is due.

    The thread starts with the first poke, so a small log never has one.
    """

    def __init__(self, work: Callable[[], float | None]) -> None:
        self._work = work
        self._idle = threading.Lock()
        """Held while nothing is due.  An event would have a lock of its own, which an interrupt leaves taken."""
        self._idle.acquire()
        self._stopped = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def poke(self) -> None:
        """Have the work looked at soon."""
        if self._thread is not None and not self._idle.locked():
            return  # It is taken before the work begins, which will see whatever there is to be seen now.
        self._wake()
        if self._thread is None:
            with Uninterrupted(), self._starting:
                self._start()

    def _start(self) -> None:
        """Start the thread; if that cannot be, whoever appended is not the one to be told, and the next poke tries."""
        if self._thread is not None or self._stopped:
            return
        thread = threading.Thread(target=self._run, name="latewood-housekeeper", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # No memory for its stack, too many of them, or the interpreter ends.
            _logger.warning("in the background: %s", error)
        else:
            self._thread = thread

    def stop(self) -> None:
        """End the thread, after the work at hand."""
        with self._starting:
            self._stopped = True
        self._wake()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # It is awake, or will be.
            self._idle.release()

    def _run(self) -> None:
        due_s: float | None = None
        while True:
            self._idle.acquire(timeout=-1 if due_s is None else min(due_s, threading.TIMEOUT_MAX))
            if self._stopped:
                return
            try:
                due_s = self._work()
            except ClosedError:
                return
            except LatewoodError as error:  # The next append meets it too, and tells the caller.
                _logger.warning("in the background: %s", error)
                due_s = _RETRY_S
            except Exception:
                _logger.exception("in the background")
                due_s = _RETRY_S
