"""How commands open a log."""

from pathlib import Path
from typing import Any

import latewood
from latewood import NotFoundError, Queue
from latewood.fs import PosixFS
from latewood.log.inheritance import inherited_options
from latewood.log.layout import Layout


def is_log(directory: Path) -> bool:
    """Say whether there is a log.

    Raises:
        CorruptError: there is one, and it is damaged.
    """
    try:
        open_to_read(directory).close()
    except NotFoundError:
        return False
    return True


def open_to_read(directory: Path) -> Queue:
    """Open a log beside its writer.

    Raises:
        NotFoundError: there is none.
    """
    return latewood.open(directory, mode="r")


def open_to_append(directory: Path, **chosen: Any) -> Queue:
    """Open a log to write, with the options that its open segment was made with but for those `chosen`, if not None.

    Raises:
        Locked: another writer holds it.
    """
    kept = inherited_options(PosixFS(), Layout(directory))
    fields = {name: value for name, value in chosen.items() if value is not None}
    return latewood.open(directory, **{**kept, **fields})
