"""How many descriptors the shards of a database take, and whether this process may have so many.

The log of a shard is opened when it is first used, and stays open.  A limit that is too low is told when a database is
made, which is then refused, and when it is opened, because another process may have a lower limit than the one that
made it; the shard for which there is no room is refused before anything of it is opened.
"""

import logging
from typing import Final

from latewood.catalog.tables import DbRecord
from latewood.errors import UsageError
from latewood.fs import check_room, descriptors_max, reserve_of

_logger: Final = logging.getLogger(__name__)

DESCRIPTORS_TO_APPEND: Final = 5
"""Of a log that is open to append: its lock, its wake file, its last flush, and its segment, as a file and mapped."""
DESCRIPTORS_TO_READ: Final = 1
"""Of a log that is open to read: its wake file."""
DESCRIPTORS_OF_A_STREAM: Final = 2
"""Of a reader in one shard: its segment, as a file and mapped."""
_THOUSAND: Final = 1000


def check_shards_fit(name: str, shards: int) -> None:
    """Return if this process could append to all shards of a new database.

    Raises:
        UsageError: its limit is too low.
    """
    soft, hard = descriptors_max()
    if _needed(shards) <= soft:
        return
    most = (soft - reserve_of(soft)) // DESCRIPTORS_TO_APPEND
    above = " after the hard limit is raised" if _wanted(shards) > hard else ""
    message = (
        f"database {name!r} would have {shards:,} shards, and a process that appends to all of them has "
        f"{shards * DESCRIPTORS_TO_APPEND:,} files open; this one may have {soft:,} (at most {hard:,}): "
        f"`ulimit -n {_wanted(shards)}` before it starts{above}, or take at most {most:,} shards"
    )
    raise UsageError(message)


def warn_of_shards(record: DbRecord, *, writable: bool) -> None:
    """Say in the log of the program if it may not have all shards of a database open at once."""
    soft, _ = descriptors_max()
    if writable and _needed(record.wal_shards) > soft:
        _logger.warning(
            "database %r has %d shards: to append to all of them takes %d open files, and this process may have %d; "
            "raise that before it starts: `ulimit -n %d`",
            record.name,
            record.wal_shards,
            record.wal_shards * DESCRIPTORS_TO_APPEND,
            soft,
            _wanted(record.wal_shards),
        )


def check_room_for_log(record: DbRecord, shard: int, *, writable: bool) -> None:
    """Return if the log of one more shard may be opened.

    Raises:
        TooManyFiles: too little would be left.
    """
    count = DESCRIPTORS_TO_APPEND if writable else DESCRIPTORS_TO_READ
    check_room(f"there is no room for shard {shard} of {record.name!r}", count, _wanted(record.wal_shards))


def _needed(shards: int) -> int:
    """Return how many descriptors it takes to append to so many shards, and to have some left."""
    count = shards * DESCRIPTORS_TO_APPEND
    return count + reserve_of(count)


def _wanted(shards: int) -> int:
    """Return a round limit for a process that appends to so many shards, and has a reader or two of all of them."""
    count = shards * (DESCRIPTORS_TO_APPEND + 2 * DESCRIPTORS_OF_A_STREAM) + _THOUSAND
    return -(-count // _THOUSAND) * _THOUSAND
