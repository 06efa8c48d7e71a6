"""Ctrl-C, held back while a step is half done.

Python runs a signal's handler between any two of the main thread's instructions, and the handler of Ctrl-C raises.  In
the middle of a roll that would leave a seal half written, and between taking a lock and noting that it is taken the
lock would stay taken.  Work that cannot be begun anew runs in `Uninterrupted`.  Other work that an interrupt may cut,
such as an append, leaves its state as it was before, or finished.

Locks: up to Python 3.13 `with` enters and leaves a lock of `threading` (`Lock`, `RLock`) in one step.  A class in
Python, `Condition` among them, has instructions in between: the property in `Exclusion` and `OwnLock` is there for
that.  Python 3.14 enters in two steps.  A Ctrl-C between them leaves any lock of any program taken, unless it comes in
`Uninterrupted`.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def open_or_close(open_it: "Callable[[], Any]", close_it: "Callable[[], Any]") -> None:
    """Open something uninterrupted.  If Ctrl-C came meanwhile, close it again: the caller will not get it."""
    is_open = False
    try:
        with Uninterrupted():
            open_it()
            is_open = True
    except BaseException:
        if is_open:
            close_it()
        raise


class Uninterrupted:
    """A block that Ctrl-C does not cut: its handler runs at the end of the block.

    Only the main thread runs handlers, so in any other thread this does nothing.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._came = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            try:
                signal.signal(signal.SIGINT, self._note)
                self._handler = handler
            except BaseException:  # The handler of another signal has raised.
                signal.signal(signal.SIGINT, handler)
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self._came:
                signal.raise_signal(signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._came = True
