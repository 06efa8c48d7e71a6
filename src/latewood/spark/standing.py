"""Whether a stored position is of the log that is here, and where to go on if it is not.  Pure.

A checkpoint names its log, and the life that the log was in.  A path does not: a log that was deleted and made anew is
found under the same one.  A query whose checkpoint is of another log fails, unless `failOnDataLoss` is false: then it
begins that log at its earliest record.  If this log lost records, such a query goes on where the loss began.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import AnotherLog
from latewood.format.identity import LogIdentity, Mark
from latewood.log.identity import lost_from, stranger_reason
from latewood.spark.offsets import ShardId, StoredOffsets

CHECKPOINT_MEND: Final = (
    "start the query with a new checkpointLocation, which reads this log from its earliest record, or wherever "
    "startingOffsets says; to keep the checkpoint and go on {place}, set failOnDataLoss to false"
)
READER_MEND: Final = (
    "`latewood readers rm {path} {reader}` forgets that position; to begin elsewhere at once, set startingOffsets; to "
    "go on {place}, set failOnDataLoss to false"
)
AGAIN_MEND: Final = "run the query again: it is planned anew, with the log that is here"


class Home(NamedTuple):
    """The log of a shard, as it is now."""

    path: Path
    target: Path
    """What commands call it: the log, or `lake/clicks` for a shard of that database."""
    identity: LogIdentity | None
    """None: an older program made it, and it was not opened to append since."""
    first: int
    """The first sequence that can be read."""


class Standing(NamedTuple):
    """Where a position that was stored leads to in the log that is here."""

    sequence: int
    stranger: str | None = None
    """Why the position is not of this log; `sequence` is then where to go on, if that is wanted."""
    place: str = ""
    """What `sequence` is then, in words."""


def standing(home: Home, mark: Mark | None, sequence: int) -> Standing:
    """Return where a position that was stored with `mark` leads to."""
    reason = stranger_reason(home.identity, mark, sequence)
    if reason is None:
        return Standing(sequence)
    lost: int | None = None
    if home.identity is not None and mark is not None and mark.identity == home.identity.identity:
        lost = lost_from(home.identity, mark.life)
    if lost is None or lost < home.first:
        return Standing(home.first, reason, "at the earliest record of the log that is here")
    return Standing(lost, reason, f"at sequence {lost}, where the lost records began")


def behind(sequence: int, end: int) -> Standing:
    """Return where a position leads to in a log that ends before it, and says of no loss: an older copy does not."""
    reason = (
        f"the position is {sequence}, and the log ends at {end}: an older copy was put in its place, or its end is lost"
    )
    return Standing(end, reason, f"at sequence {end}, where the log that is here ends")


def standings(homes: Mapping[ShardId, Home], stored: StoredOffsets) -> dict[ShardId, Standing]:
    """Return where each of the shards that are here, and in what was stored, stands."""
    return {
        shard: standing(home, stored.mark(shard), stored.sequences[shard])
        for shard, home in homes.items()
        if shard in stored.sequences
    }


def another_log(shard: ShardId, home: Home, found: Standing, whose: str, mend: str) -> AnotherLog:
    """Return the error of a position that is not of the log that is here; `whose` says where it is stored."""
    which = f" ({shard})" if shard.database else ""
    reason = f"{whose} is not of this log{which}: {found.stranger}"
    return AnotherLog(reason, home.path, mend.replace("{place}", found.place).replace("{path}", str(home.target)))
