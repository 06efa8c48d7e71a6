"""Which log this is: how its identity begins and is kept, who may write it, and which positions belong to it.

A position that is stored outside of its log, as by a reader or a Spark checkpoint, carries the log's `mark`.  A path is
where a log is found, never which log it is: `stranger_reason` compares.  `born`, `reborn`, `check_may_write` and
`stranger_reason` decide, from plain values; the rest reads and writes the file `identity`, a second copy of what the
manifest says.

Format: docs/format/identity.md.  Order of writes: docs/crash-safety.md, "create", "upgrade" and "rebuild".
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, cast

from latewood.errors import CorruptError, ManifestCorrupted, NotFoundError, Owned, UsageError
from latewood.format.identity import (
    FILE_BYTES_MAX,
    HEADER_SIZE,
    IDENTITY_BYTES,
    LIVES_MAX,
    Life,
    LogIdentity,
    Mark,
    Owner,
    decode,
    encode,
)
from latewood.fs import FileSystem, replace_file
from latewood.log.layout import Layout

RandomBytes: TypeAlias = Callable[[int], bytes]
"""Returns so many random bytes."""

_LIFE_BYTES: Final = 8
_logger = logging.getLogger(__name__)


class Claim(NamedTuple):
    """As which owner a log is opened to append, and which identity it gets if it has none yet."""

    owner: Owner = Owner.ANYBODY
    birth: bytes | None = None
    """The identity of a log that is made now, or that an older program made without one; None: random."""


def claim_of(owner: Owner, birth: bytes | None) -> Claim:
    """Return the claim of a caller.

    Raises:
        UsageError: `owner` is no owner, or `birth` no identity.
    """
    keeper, given = cast("tuple[object, object]", (owner, birth))  # Whatever their types say.
    if not isinstance(keeper, Owner):
        message = f"owner must be an Owner, not {keeper!r}"
        raise UsageError(message)
    if given is not None and not (isinstance(given, bytes) and len(given) == IDENTITY_BYTES and any(given)):
        message = f"birth must be {IDENTITY_BYTES} bytes, not all zero, and not {birth!r}"
        raise UsageError(message)
    return Claim(owner, birth)


def born(claim: Claim, start_sequence: int, random_bytes: RandomBytes | None = None) -> LogIdentity:
    """Return the identity of a log that has none.

    Its first life follows from it: logs that share a birth, as copies of one partition do, share that life too.
    """
    identity = claim.birth or (random_bytes or _system_random)(IDENTITY_BYTES)
    first = int.from_bytes(identity[:_LIFE_BYTES], "little") or 1
    return LogIdentity(identity, claim.owner, (Life(first, start_sequence),))


def reborn(identity: LogIdentity, start_sequence: int, random_bytes: RandomBytes | None = None) -> LogIdentity:
    """Return an identity in a new life, which begins where the log ends now: records beyond that may be lost."""
    life = int.from_bytes((random_bytes or _system_random)(_LIFE_BYTES), "little") or 1
    return identity._replace(lives=(*identity.lives, Life(life, start_sequence))[-LIVES_MAX:])


def check_may_write(layout: Layout, identity: LogIdentity | None, owner: Owner) -> None:
    """Do nothing if `owner` may append to a log of this identity: to its own log, or to one that has no owner.

    Raises:
        Owned: the log has another owner.
    """
    if identity is not None and identity.owner not in (Owner.ANYBODY, owner):
        raise Owned(layout.root, identity.owner.name.lower())


def lost_from(identity: LogIdentity, life: int) -> int | None:
    """Return the lowest end at which a later life began: positions of `life` beyond it are of lost records.

    None: no life followed, or the log never had this one.
    """
    lives = [one.life for one in identity.lives]
    later = identity.lives[lives.index(life) + 1 :] if life in lives else ()
    return min((one.start_sequence for one in later), default=None)


def stranger_reason(identity: LogIdentity | None, mark: Mark | None, sequence: int) -> str | None:
    """Say why a position, taken with `mark`, is not one of the log of this identity; None: it is.

    A mark of None was stored by an older program, and belongs.  So does every position of a log without an identity.
    """
    if identity is None or mark is None:
        return None
    if mark.identity != identity.identity:
        return f"the position is of the log {mark.identity.hex()}, and this one is {identity.identity.hex()}"
    if mark.life not in [one.life for one in identity.lives]:
        return (
            f"the position is of the life {mark.life:016x} of this log, which this copy of it never had or has "
            f"forgotten; it is in {identity.life:016x}"
        )
    end = lost_from(identity, mark.life)
    if end is None or sequence <= end:
        return None
    return f"the position is {sequence}, and the log went back to {end} since: it was rebuilt or restored"


# -- on disk ------------------------------------------------------------------------------------------


def load_identity(fs: FileSystem, layout: Layout) -> LogIdentity | None:
    """Return what the file `identity` says, or None if there is no sound one.

    Raises:
        UnsupportedVersion: a later program wrote it.
    """
    try:
        file = fs.open(layout.identity)
    except NotFoundError:
        return None
    try:
        return decode(file.pread(FILE_BYTES_MAX + 1, 0), layout.identity)
    except CorruptError as error:
        _logger.warning("%s: %s; it is ignored", error.path, error.reason)
        return None
    finally:
        file.close()


def store_identity(fs: FileSystem, layout: Layout, identity: LogIdentity) -> None:
    """Write the second copy, durably: before the manifest that has the first."""
    replace_file(fs, layout.identity, encode(identity))


def check_is_of(fs: FileSystem, layout: Layout, identity: LogIdentity) -> LogIdentity | None:
    """Return what the file `identity` says, or None if there is no sound one, unless that is of another log.

    Raises:
        ManifestCorrupted: it is: one of the two files came from another log.
        UnsupportedVersion: a later program wrote it.
    """
    found = load_identity(fs, layout)
    if found is not None and found.identity != identity.identity:
        raise of_two_logs(layout, found, identity)
    return found


def of_two_logs(layout: Layout, found: LogIdentity, identity: LogIdentity) -> ManifestCorrupted:
    """Return the error for a file `identity` that names another log than the manifest does."""
    named, listed = found.identity.hex(), identity.identity.hex()
    reason = f"it names the log {named}, and the manifest {listed}: one of the two files came from another log"
    error = ManifestCorrupted(reason, layout.identity, HEADER_SIZE)
    error.mend = (
        f"`latewood rebuild --dry-run {layout.root}` says which log's segments are here; restore the other file from a "
        "copy of that log; if the manifest is right, remove `identity`: it is written again"
    )
    return error


def mend_identity(fs: FileSystem, layout: Layout, identity: LogIdentity) -> None:
    """Make the file `identity` say what the manifest does, and warn if it did not.

    Raises:
        ManifestCorrupted: it is of another log.
        UnsupportedVersion: a later program wrote it.
    """
    if check_is_of(fs, layout, identity) != identity:
        _logger.warning("%s was missing or stale; it is written again", layout.identity)
        store_identity(fs, layout, identity)


def _system_random(count: int) -> bytes:
    from secrets import token_bytes  # noqa: PLC0415 - takes a while to import, and only a birth needs it

    return token_bytes(count)
