"""Which event loop a node runs on: uvloop's where it is installed, which does more of its work in C, else asyncio's."""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from importlib import import_module


def event_loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """Return what makes an event loop; None: asyncio's own."""
    try:
        factory: Callable[[], AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory
