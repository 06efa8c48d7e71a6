"""Proof that a chunk is whole, in each place where its row says that it is.

Returns what is wrong instead of raising: a scrub goes on, and a repair chooses by it.  What only could not be looked at
(a store that does not answer, a missing key) is raised: it says nothing about the chunk.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Final, NamedTuple, TypeVar

from latewood.archive.tier import Tier
from latewood.catalog.tables import ChunkRecord
from latewood.errors import UsageError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import digest_of, has_file, object_of
from latewood.tasks.parcels import parcels
from latewood.tasks.proof import (
    MISSING,
    ChunkLook,
    ChunkSeen,
    Contents,
    file_trouble,
    look_at_chunks,
    object_trouble,
)
from latewood.types import ChunkId

__all__ = [
    "MISSING",
    "Looked",
    "local_trouble",
    "look_of",
    "looked_at",
    "looked_at_all",
    "object_key_in",
    "remote_trouble",
]

T = TypeVar("T")

_LOOKS_MAX: Final = 16
"""How often a chunk that other jobs move about is looked at again; a later run will find it where it is."""


class Looked(NamedTuple):
    """A chunk that was looked at, and was the same before and after."""

    chunk_id: ChunkId
    record: ChunkRecord
    seen: ChunkSeen


def local_trouble(attempt: Attempt, record: ChunkRecord) -> str | None:
    """Return what is wrong with a chunk's file: its bytes, its records, or that it is another's; None: nothing.

    Raises:
        KeyNotFound: it is encrypted, and the key is not given.
    """
    return file_trouble(attempt.fs, attempt.db.chunk_path(record), attempt.db.keys_to_read, _contents(record))


def remote_trouble(tier: Tier, record: ChunkRecord) -> str | None:
    """Return what is wrong with a chunk's object, reading all of it back; None: nothing.

    Raises:
        UsageError: the row names none, or one in another tier.
        AccessDenied, UnavailableError: the tier refused, or did not answer.
    """
    return object_trouble(tier, object_key_in(tier, record), digest_of(record))


def looked_at(attempt: Attempt, chunk_id: ChunkId, look: Callable[[ChunkRecord], T]) -> tuple[ChunkRecord, T] | None:
    """Return a chunk's row, and what a look at its file or object found; None if it is not live, or keeps changing.

    Rows change before files and objects do: so what was found is true of a row that is the same before and after.
    """
    for _ in range(_LOOKS_MAX):
        record = attempt.row(chunk_id)
        if record is None or not record.is_live:
            return None
        found = look(record)
        if attempt.row(chunk_id) == record:
            return record, found
    return None


def looked_at_all(
    attempt: Attempt, chunk_ids: Iterable[ChunkId], look: Callable[[ChunkId, ChunkRecord], ChunkLook]
) -> Generator[Looked]:
    """Yield what looks at chunks found, wherever they are done; those not live, or that keep changing, are left out.

    As with `looked_at`, what was found is true of a row that is the same before and after; others are looked at again.
    """
    waiting = list(chunk_ids)
    for _ in range(_LOOKS_MAX):
        records: dict[ChunkId, ChunkRecord] = {}
        looks = _looks(attempt, waiting, look, records)
        waiting = []
        bundles = parcels(looks, lambda one: one.size_bytes, attempt.parcel_bytes)
        with closing(attempt.map(look_at_chunks, bundles)) as found:
            for seen in found:
                record = records.pop(seen.chunk_id)
                if attempt.row(seen.chunk_id) == record:
                    yield Looked(seen.chunk_id, record, seen)
                else:
                    waiting.append(seen.chunk_id)
        if not waiting:
            return


def look_of(attempt: Attempt, chunk_id: ChunkId, record: ChunkRecord) -> ChunkLook:
    """Return a look at a chunk wherever its row says that it is."""
    named = object_of(record)
    return ChunkLook(
        chunk_id,
        None if record.checksum is None else _contents(record),
        record.file_name,
        str(attempt.db.chunk_path(record)) if has_file(record) else None,
        named.key if named else None,
        named.tier if named else None,
        record.size_bytes,
    )


def object_key_in(tier: Tier, record: ChunkRecord) -> str:
    """Return the key of a chunk's object in a tier.

    Raises:
        UsageError: the row names none, or one in another tier.
    """
    found = object_of(record)
    if found is None:
        raise UsageError(f"{record.file_name} is in no tier")
    if found.tier != tier.name:
        raise UsageError(f"{record.file_name} is in {found.tier}, and the database's tier is {tier.name}")
    return found.key


def _looks(
    attempt: Attempt,
    chunk_ids: Iterable[ChunkId],
    look: Callable[[ChunkId, ChunkRecord], ChunkLook],
    records: dict[ChunkId, ChunkRecord],
) -> Iterator[ChunkLook]:
    """Yield looks at those that are live, each from its row at the moment when it is asked for."""
    for chunk_id in chunk_ids:
        record = attempt.row(chunk_id)
        if record is not None and record.is_live:
            records[chunk_id] = record
            yield look(chunk_id, record)


def _contents(record: ChunkRecord) -> Contents:
    return Contents(digest_of(record), record.shard, record.sequence_min, record.sequence_max)
