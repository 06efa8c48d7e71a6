"""Proof that a chunk is whole, in each place where its row says that it is.

Returns what is wrong instead of raising: a scrub goes on, and a repair chooses by it.  What only could not be looked at
(a store that does not answer, a missing key) is raised: it says nothing about the chunk.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from latewood.archive.chunk_reader import ChunkReader, open_chunk
from latewood.archive.source import FileSource
from latewood.archive.source import digest_of as digest_of_source
from latewood.archive.tier import Tier, verify_object
from latewood.catalog.tables import ChunkRecord
from latewood.errors import CorruptError, KeyNotFound, NotFoundError, UsageError
from latewood.jobs.handlers.attempt import Attempt
from latewood.jobs.handlers.chunks import digest_of, object_of
from latewood.types import ChunkId

T = TypeVar("T")

MISSING: Final = "it is not there"

_LOOKS_MAX: Final = 16
"""How often a chunk that other jobs move about is looked at again; a later run will find it where it is."""


def local_trouble(attempt: Attempt, record: ChunkRecord) -> str | None:
    """Return what is wrong with a chunk's file: its bytes, its records, or that it is another's; None: nothing.

    Raises:
        KeyNotFound: it is encrypted, and the key is not given.
    """
    path = attempt.db.chunk_path(record)
    try:
        source = FileSource(attempt.fs, path)
        try:
            if digest_of_source(source) != digest_of(record):
                return "its bytes are not those that were written"
        finally:
            source.close()
        with open_chunk(attempt.fs, path, attempt.db.keys) as reader:
            return _record_trouble(reader, record)
    except KeyNotFound:
        raise
    except NotFoundError:
        return MISSING
    except CorruptError as error:
        return error.reason


def remote_trouble(tier: Tier, record: ChunkRecord) -> str | None:
    """Return what is wrong with a chunk's object, reading all of it back; None: nothing.

    Raises:
        UsageError: the row names none, or one in another tier.
        AccessDenied, UnavailableError: the tier refused, or did not answer.
    """
    try:
        verify_object(tier, object_key_in(tier, record), digest_of(record))
    except NotFoundError:
        return MISSING
    except CorruptError as error:
        return error.reason
    return None


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


def _record_trouble(reader: ChunkReader, record: ChunkRecord) -> str | None:
    meta = reader.verify()
    if (meta.shard, meta.sequence_min, meta.sequence_max) != (record.shard, record.sequence_min, record.sequence_max):
        return "it holds other records than its row says"
    return None
