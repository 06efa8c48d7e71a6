"""A thread for what waits for a disk, beside an event loop.

One piece of work at a time, in order, and a call back on the loop: an executor does the same with three futures and
their locks, which costs more than writing a small entry.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any


class StorageThread:
    """One thread.  `submit` and `close` are for the event loop's thread."""

    def __init__(self, loop: AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._work: SimpleQueue[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None]
        self._work = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], after: Callable[[Any, BaseException | None], None]) -> None:
        """Do `work` on the thread, then `after`, with what came of it, on the event loop."""
        self._work.put((work, after))

    def close(self) -> None:
        """Wait for all that was submitted, and end."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, after = item
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whoever submitted it decides what it means
                failure = error
            try:
                self._loop.call_soon_threadsafe(after, result, failure)
            except RuntimeError:  # The loop has ended: nobody waits any more.
                return
