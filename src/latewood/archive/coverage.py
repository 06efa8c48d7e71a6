"""How far a shard's log must reach, given what the store has, or had, in chunks.  Pure.

A chunk is made of sealed segments alone, and its row is committed after it.  So a log whose sealed segments end before
its chunks do is not the log that they were made of: an older copy was restored, or its directory was replaced.  Were it
appended to, its new records would get the numbers of records that are in chunks, and one of the two would be hidden.

A segment leaves the log only when a chunk whose row is committed has its records.  So if the log begins behind the
chunks that the catalog knows, and there are chunks that it does not know, the catalog is an older copy.
"""

from collections.abc import Iterable

from latewood.archive.cover import Ranged
from latewood.log.reach import LogReach


def covered_end(applied: int, chunks: Iterable[Ranged]) -> int:
    """Return the sequence behind the last record that a shard has, or had, in a chunk; `applied` is the catalog's."""
    return max([applied, *(chunk.sequence_max + 1 for chunk in chunks)])


def shortfall(reach: LogReach | None, covered: int, wanted: bytes | None) -> str | None:
    """Return why a log, None if there is none, cannot be the one that chunks up to `covered` are of; None: it can.

    `wanted` is the identity that the catalog notes of it; None: it notes none.
    """
    chunks = f"the store had its records up to {covered - 1} in chunks" if covered else "no chunk was made of it yet"
    if reach is None:
        return f"the log of this shard is not there, and {chunks}"
    if wanted is not None and reach.identity not in (None, wanted):
        return f"the log that is there is {reach.identity.hex()}, that of this shard is {wanted.hex()}, and {chunks}"
    if reach.end < covered:
        return f"the log of this shard ends at {reach.end}, and {chunks}"
    if reach.sealed_end < covered:
        return (
            f"the open segment of this shard's log begins at {reach.sealed_end}, and {chunks}, "
            f"which are made of sealed segments: other records have taken their numbers"
        )
    return None


def catalog_shortfall(reach: LogReach, covered: int, named: str) -> str:
    """Return why the catalog, by which chunks go up to `covered`, is older than a chunk with records before the log.

    `named` is the file name of that chunk.
    """
    known = f"has its records up to {covered - 1} in chunks" if covered else "has no chunk of it"
    return (
        f"the log of this shard begins at {reach.first}, the catalog {known}, and {named}, which no row of the catalog "
        f"names, has records in between: the catalog is older than its chunks"
    )
