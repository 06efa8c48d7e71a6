"""Removes files and objects of chunks that nobody needs any more.

Whoever plans it has made sure that no row of any database claims them.  A chunk's name is never used again, so a
removal that comes late, or twice, removes nothing else.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from latewood.archive.sink import Hook
from latewood.errors import NotFoundError
from latewood.fs import FileSystem
from latewood.tasks.engine import Tools
from latewood.types import ChunkId


class Removal(NamedTuple):
    """What goes of one chunk."""

    chunk_id: ChunkId
    file: str | None
    keys: tuple[str, ...] = ()
    """Of objects in the archive."""
    is_all: bool = True
    """Whether nothing is left of it then."""


def remove_chunks(task: tuple[Removal, ...], tools: Tools) -> Iterator[Removal]:
    """Yield each removal once it is durable."""
    for removal in task:
        if removal.file is not None and tools.fs.exists(Path(removal.file).parent):
            remove_file(Path(removal.file), tools.fs, tools.step)
        for key in removal.keys:
            tools.step("remove object")
            tools.tier().delete(key)
        yield removal


def remove_file(path: Path, fs: FileSystem, step: Hook) -> None:
    """Remove a file durably, if it is there."""
    step("remove file")
    with suppress(NotFoundError):  # An earlier attempt came as far as this, or there was none.
        fs.remove(path)
    step("sync directory")
    fs.sync_directory(path.parent)
