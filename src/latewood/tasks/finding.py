"""Reads chunks of which nothing is known but their names, as they are found on disk and in the archive."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from latewood.archive.chunk import ChunkMeta
from latewood.archive.chunk_reader import ChunkReader
from latewood.archive.crypt import HEADER_SIZE, decode_header
from latewood.archive.names import ChunkName
from latewood.archive.source import Digest, FileSource, Source, digest_of
from latewood.archive.tier import TierSource
from latewood.errors import CorruptError, KeyNotFound
from latewood.tasks.engine import Tools

_UNREADABLE: Final = (CorruptError, KeyNotFound)
"""What is wrong with a chunk itself.  An archive that does not answer says nothing about it, and ends the task, and so
does a chunk of a later program, which may be sound."""


class ChunkFind(NamedTuple):
    """A chunk by its name."""

    number: int
    """What the result is told apart by."""
    name: ChunkName
    database_id: int
    """Whose it must be: a database of the same name may have left others in the archive."""
    file: str | None
    key: str | None
    """Of its object in the archive."""


class ChunkRead(NamedTuple):
    """A chunk as it was read."""

    meta: ChunkMeta | None
    """None: it is damaged, or cannot be read.  What its name says is all that is known."""
    digest: Digest
    key_id: str | None


class ChunkFound(NamedTuple):
    """What a name stands for."""

    number: int
    chunk: ChunkRead | None
    """None: it is another database's."""
    is_local: bool
    """Whether this is what the file is; else it is the object."""
    problems: tuple[str, ...]


def read_chunks(task: tuple[ChunkFind, ...], tools: Tools) -> Iterator[ChunkFound]:
    """Yield what each chunk is, with nothing believed that was not proved: the object if the file is damaged.

    Raises:
        AccessDenied, UnavailableError: the archive refused, or did not answer.
        UnsupportedVersion: a later program wrote one of them.
    """
    for find in task:
        yield _found(find, tools)


def _found(find: ChunkFind, tools: Tools) -> ChunkFound:
    problems: list[str] = []
    damaged: ChunkRead | None = None
    if find.file is not None:
        one = _read(find, FileSource(tools.fs, Path(find.file)), tools, problems)
        if one is not None and one.meta is not None:
            return ChunkFound(find.number, one, is_local=True, problems=tuple(problems))
        damaged = one
    if find.key is not None:
        one = _read(find, TierSource(tools.tier(), find.key), tools, problems)
        if one is not None and (one.meta is not None or damaged is None):
            return ChunkFound(find.number, one, is_local=False, problems=tuple(problems))
    return ChunkFound(find.number, damaged, is_local=damaged is not None, problems=tuple(problems))


def _read(find: ChunkFind, source: Source, tools: Tools, problems: list[str]) -> ChunkRead | None:
    """Return a chunk; None if it is another database's."""
    with closing(source):
        found = ChunkRead(None, digest_of(source), _key_id(find.name, source))
        try:
            with ChunkReader(source, tools.keys) as reader:
                if reader.meta.database_id != find.database_id:
                    return None
                return found._replace(meta=reader.verify(), key_id=reader.key_id)
        except _UNREADABLE as error:
            problems.append(str(error))
            return found


def _key_id(name: ChunkName, source: Source) -> str | None:
    """Return the key that a file names, which can be told without having it."""
    if not name.encrypted:
        return None
    try:
        return decode_header(source.read(0, min(HEADER_SIZE, source.size)), source.path).key_id
    except _UNREADABLE:
        return None
