"""What of a node is native and has no pure twin: looked up when a node needs it, for clients do without."""

from importlib import import_module
from typing import Any

from latewood.errors import NotFoundError


def native(name: str) -> Any:
    """Return something of the native module.

    Raises:
        NotFoundError: it is not built here.
    """
    try:
        return vars(import_module("latewood._native"))[name]
    except (ImportError, KeyError) as error:
        raise NotFoundError("replication needs the native module, which is not built here") from error
