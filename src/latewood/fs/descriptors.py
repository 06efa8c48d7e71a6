"""Descriptors: how many files this process may have open, and whether it has room for more.

A process that has none left can neither roll a log, nor sync a directory, nor even load a module.  So code that opens
files which stay open calls `check_room` first, and leaves a reserve to everything else.
"""

import fcntl
import os
import resource
import sys
from typing import Final

from latewood.errors import TooManyFiles

RESERVE: Final = 64
"""Left to rolls, syncs, chunks, connections and the program itself; of a small limit it is less."""
_RESERVE_PART: Final = 8
_OPEN: Final = "/dev/fd"
"""Names of the descriptors that this process has open."""


def descriptors_max() -> tuple[int, int]:
    """Return how many descriptors this process may have, and to how many it may raise that."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return soft, hard


def reserve_of(limit: int) -> int:
    """Return how many descriptors of so many are left to everything else.  Pure."""
    return min(RESERVE, limit // _RESERVE_PART)


def check_room(what: str, count: int, wanted: int | None = None) -> None:
    """Return if there is room for `count` more descriptors that stay open.

    `what` begins the text of the error; `wanted` is the limit that it advises.

    Raises:
        TooManyFiles: there is not.
    """
    check_free(what, count + reserve_of(descriptors_max()[0]), wanted)


def check_free(what: str, count: int, wanted: int | None = None) -> None:
    """Return if `count` more files can be open for a while, from the reserve if need be.

    Raises:
        TooManyFiles: they cannot.
    """
    soft, hard = descriptors_max()
    if not _has_free(soft, count):
        raise TooManyFiles(what, soft, hard, wanted)


def _has_free(limit: int, count: int) -> bool:
    """Say whether so many of the numbers below a limit are free: a new file gets the lowest of them."""
    if not any(_is_open(number) for number in range(max(0, limit - count), limit)):
        return count <= limit  # Nearly always: the highest numbers are the last to be given.
    try:
        names = os.listdir(_OPEN)
    except OSError:  # Without a list of them, a high number that is taken counts as the last of many.
        return False
    return sum(int(name) < limit for name in names if name.isdigit()) + count <= limit


def _is_open(number: int) -> bool:
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except (OSError, OverflowError):
        return False
    return True
