"""How commands open a log."""

from pathlib import Path
from typing import Any

import latewood
from latewood import NotFoundError, Queue


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


def open_to_change(directory: Path) -> Queue:
    """Open a log that must be there to write.

    Raises:
        NotFoundError: there is none.
        Locked: another writer holds it.
    """
    open_to_read(directory).close()
    return open_to_append(directory)


def open_to_append(directory: Path, **chosen: Any) -> Queue:
    """Open a log to write, making it if it is not there.

    Its options are those that it has, but for those that are `chosen` and not None.

    Raises:
        Locked: another writer holds it.
    """
    return latewood.open(directory, **{name: value for name, value in chosen.items() if value is not None})
