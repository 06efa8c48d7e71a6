"""Names of chunks, as files and as objects, both ways.

An archive's identity is `_latewood-archive.json`, beside the databases' objects.
A file:    `00003-00000000000000000042-00000000000000001041-<token>.parquet`, with `.enc` behind it if it is encrypted.
An object: `clicks/00003/` in front of the same name.
Unfinished: `<token>.tmp`, beside the file that it will become; in a tier also `<token>.lock`, held by who makes it.

Shard and sequences are padded, so that names sort as the records do.  The token is 128 random bits: whoever tries again
makes another file, and never overwrites one that somebody reads.  Pure.   Format: docs/format/chunk.md
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Self, TypeAlias

from latewood.errors import UsageError
from latewood.limits import TIMESTAMP_NS_MAX, U16_MAX, check_name, check_number

RandomBytes: TypeAlias = Callable[[int], bytes]
"""Where randomness comes from: so many bytes of it."""

TOKEN_BYTES: Final = 16
IDENTITY_KEY: Final = "_latewood-archive.json"
"""The object that says which archive this is.  No database's name begins so, and what reads all Parquet files under a
directory, as Arrow and Spark do, skips such a name."""
SEQUENCE_MAX: Final = TIMESTAMP_NS_MAX
"""A chunk stores sequences in 63 bits."""

_TOKEN: Final = re.compile(r"[0-9a-f]{32}")
_FILE: Final = re.compile(r"([0-9]{5})-([0-9]{20})-([0-9]{20})-([0-9a-f]{32})\.parquet(\.enc)?")
_TEMPORARY: Final = re.compile(r"([0-9a-f]{32})\.tmp")
_LOCK: Final = re.compile(r"([0-9a-f]{32})\.lock")


class ChunkName(NamedTuple):
    """What the name of a chunk says: which records of which shard, and whether they are encrypted."""

    shard: int
    sequence_min: int
    sequence_max: int
    """The last sequence in it, counted in."""
    token: str
    """32 hexadecimal digits: no two chunks have the same."""
    encrypted: bool = False

    @property
    def file_name(self) -> str:
        """Its name in the database's chunk directory."""
        ending = ".parquet.enc" if self.encrypted else ".parquet"
        return f"{self.shard:05}-{self.sequence_min:020}-{self.sequence_max:020}-{self.token}{ending}"

    def object_key(self, database: str) -> str:
        """Return its key in a tier.

        Raises:
            BadName: that is no name of a database.
        """
        return shard_prefix(database, self.shard) + self.file_name

    @classmethod
    def checked(cls, shard: int, sequence_min: int, sequence_max: int, token: str, *, encrypted: bool = False) -> Self:
        """Return a name that can be written and read back.

        Raises:
            UsageError: a number is out of bounds, the range is empty, or the token is none.
        """
        check_number(shard, U16_MAX, "shard")
        check_number(sequence_min, SEQUENCE_MAX, "sequence_min")
        check_number(sequence_max, SEQUENCE_MAX, "sequence_max")
        if sequence_max < sequence_min:
            raise UsageError(f"a chunk holds at least one record, not {sequence_min} to {sequence_max}")
        return cls(shard, sequence_min, sequence_max, check_token(token), encrypted)


def check_token(token: str) -> str:
    """Return `token` if it is one.

    Raises:
        UsageError: it is not.
    """
    if not _TOKEN.fullmatch(token):
        raise UsageError(f"a token is 32 hexadecimal digits, not {token!r}")
    return token


def temporary_name(token: str) -> str:
    """Return what the unfinished file of a token is called."""
    return f"{check_token(token)}.tmp"


def token_of_temporary(file_name: str) -> str | None:
    """Return the token of an unfinished file, or None if it is something else."""
    match = _TEMPORARY.fullmatch(file_name)
    return match[1] if match else None


def lock_name(token: str) -> str:
    """Return what is locked by whoever makes the file of a token."""
    return f"{check_token(token)}.lock"


def token_of_lock(file_name: str) -> str | None:
    """Return the token of such a lock, or None if it is something else."""
    match = _LOCK.fullmatch(file_name)
    return match[1] if match else None


def parse_file_name(file_name: str) -> ChunkName | None:
    """Return what a file name says, or None if it is not that of a chunk."""
    match = _FILE.fullmatch(file_name)
    if match is None:
        return None
    name = ChunkName(int(match[1]), int(match[2]), int(match[3]), match[4], match[5] is not None)
    is_sound = name.shard <= U16_MAX and name.sequence_min <= name.sequence_max <= SEQUENCE_MAX
    return name if is_sound else None


def shard_prefix(database: str, shard: int) -> str:
    """Return what the keys of all chunks of a shard begin with.

    Raises:
        UsageError: that is no name of a database, or no shard.
    """
    return f"{check_name(database, 'database')}/{check_number(shard, U16_MAX, 'shard'):05}/"


def parse_object_key(key: str) -> tuple[str, ChunkName] | None:
    """Return the database and the name that an object's key says, or None if it is not that of a chunk."""
    database, _, rest = key.partition("/")
    shard, _, file_name = rest.partition("/")
    name = parse_file_name(file_name)
    if name is None or shard != f"{name.shard:05}":
        return None
    try:
        check_name(database, "database")
    except UsageError:
        return None
    return database, name
