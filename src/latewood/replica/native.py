"""What of a node is native and has no pure twin: looked up when a node needs it, for clients do without."""

from importlib import import_module
from typing import Any, Final

from latewood.errors import NotFoundError

REMEDY: Final = "install Rust 1.85 or later (https://rustup.rs) and then latewood again"
"""What builds the native module."""


def native(name: str) -> Any:
    """Return something of the native module.

    Raises:
        NotFoundError: it is not built here.
    """
    try:
        return vars(import_module("latewood._native"))[name]
    except (ImportError, KeyError) as error:
        message = f"a node of a cluster needs the native module, which is not built here: {REMEDY}"
        raise NotFoundError(message) from error


def check_native() -> None:
    """Check that a node can run here, before it makes or opens any file.

    Raises:
        NotFoundError: the native module is not built here.
    """
    native("_RaftCore")
