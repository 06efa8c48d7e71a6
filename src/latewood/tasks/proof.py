"""Proof that a chunk is whole, in each place where it should be.

What is wrong is returned instead of raised: a scrub goes on, and a repair chooses by it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from latewood.archive.chunk_reader import ChunkReader, open_chunk
from latewood.archive.keys import KeyRing
from latewood.archive.source import Digest, FileSource, digest_of
from latewood.archive.tier import Tier, verify_object
from latewood.errors import CorruptError, JobFailed, KeyNotFound, NotFoundError, UsageError
from latewood.fs import FileSystem
from latewood.tasks.engine import Tools
from latewood.types import ChunkId

MISSING: Final = "it is not there"


class Contents(NamedTuple):
    """What a chunk's file and object must be."""

    digest: Digest
    shard: int
    sequence_min: int
    sequence_max: int


class ChunkLook(NamedTuple):
    """A chunk to look at."""

    chunk_id: ChunkId
    contents: Contents | None
    """None: an older program noted no checksum."""
    file_name: str
    file: str | None
    """The path of its file; None: it needs none."""
    key: str | None
    """Of its object; None: it needs none."""
    tier_name: str | None = None
    """The archive that the object should be in."""
    size_bytes: int = 0


class ChunkSeen(NamedTuple):
    """What was seen of a chunk."""

    chunk_id: ChunkId
    local: str | None = None
    """What is wrong with its file."""
    remote: str | None = None
    """What is wrong with its object."""
    unreadable: str | None = None
    """Why it could not be looked at, which says nothing about it: a key or an archive is not given."""


def look_at_chunks(task: tuple[ChunkLook, ...], tools: Tools) -> Iterator[ChunkSeen]:
    """Yield what is wrong with each chunk, reading all of it in every place.

    Raises:
        AccessDenied, UnavailableError: the archive refused, or did not answer.
    """
    for look in task:
        try:
            yield _seen(look, tools)
        except (KeyNotFound, UsageError, JobFailed) as error:
            yield ChunkSeen(look.chunk_id, unreadable=str(error))


def file_trouble(fs: FileSystem, path: Path, keys: KeyRing | None, contents: Contents) -> str | None:
    """Return what is wrong with a chunk's file: its bytes, its records, or that it is another's; None: nothing.

    Raises:
        KeyNotFound: it is encrypted, and the key is not given.
    """
    try:
        source = FileSource(fs, path)
        try:
            if digest_of(source) != contents.digest:
                return "its bytes are not those that were written"
        finally:
            source.close()
        with open_chunk(fs, path, keys) as reader:
            return _record_trouble(reader, contents)
    except KeyNotFound:
        raise
    except NotFoundError:
        return MISSING
    except CorruptError as error:
        return error.reason


def object_trouble(tier: Tier, key: str, digest: Digest) -> str | None:
    """Return what is wrong with a chunk's object, reading all of it back; None: nothing.

    Raises:
        AccessDenied, UnavailableError: the tier refused, or did not answer.
    """
    try:
        verify_object(tier, key, digest)
    except NotFoundError:
        return MISSING
    except CorruptError as error:
        return error.reason
    return None


def _seen(look: ChunkLook, tools: Tools) -> ChunkSeen:
    if look.contents is None:
        raise UsageError(f"the row of {look.file_name} has no checksum; compact it with a neighbour to get one")
    local = file_trouble(tools.fs, Path(look.file), tools.keys, look.contents) if look.file else None
    if look.key is None:
        return ChunkSeen(look.chunk_id, local)
    tier = tools.tier()
    if look.tier_name not in (None, tier.name):
        raise UsageError(f"{look.file_name} is in {look.tier_name}, and the database's tier is {tier.name}")
    return ChunkSeen(look.chunk_id, local, object_trouble(tier, look.key, look.contents.digest))


def _record_trouble(reader: ChunkReader, contents: Contents) -> str | None:
    meta = reader.verify()
    if (meta.shard, meta.sequence_min, meta.sequence_max) != contents[1:]:
        return "it holds other records than its row says"
    return None
