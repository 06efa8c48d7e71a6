"""Named, durable positions: `readers/<name>.meta`.

Two slots take turns, so a torn commit leaves the one before it.  A cursor is never ahead of what is durable:
whoever stores one syncs the log first.  Order of writes: docs/crash-safety.md, "reader commit".
"""

from contextlib import suppress
from pathlib import Path

from latewood.errors import LatewoodError, NotFoundError
from latewood.format.cursor import (
    FILE_BYTES_MAX,
    SIZE,
    SLOT_OFFSETS,
    Cursor,
    decode_file,
    encode,
    slot_of,
)
from latewood.format.identity import Mark
from latewood.fs import File, FileSystem, replace_file
from latewood.types import Position

_SUFFIX = ".meta"


def cursor_path(directory: Path, name: str) -> Path:
    """Return the file of a named reader."""
    return directory / f"{name}{_SUFFIX}"


def cursor_names(fs: FileSystem, directory: Path) -> list[str]:
    """Return the names of all readers that have a position."""
    return [name.removesuffix(_SUFFIX) for name in fs.list(directory) if name.endswith(_SUFFIX)]


def load_cursor(fs: FileSystem, path: Path) -> Cursor | None:
    """Return a stored position, or None if there is none.

    Raises:
        CorruptError: neither of its slots is sound.
    """
    try:
        file = fs.open(path)
    except NotFoundError:
        return None
    try:
        return decode_file(file.pread(FILE_BYTES_MAX, 0), path)
    finally:
        file.close()


def store_cursor(
    fs: FileSystem,
    path: Path,
    known: Cursor | None,
    position: Position,
    now_ns: int,
    mark: Mark | None = None,
) -> Cursor:
    """Make `position` the stored one, durably; `known` is what the file holds now.  Return what it holds then.

    `mark` is that of the log that the position is of; None: it has none.

    Raises:
        DirectoryReplaced: the directory of the log, or of the store, is not the one that was opened any more.
    """
    fs.check_root()
    generation = known.generation + 1 if known else 1
    cursor = Cursor(generation, position.segment_id, position.offset, position.sequence, now_ns, mark)
    if known is None or known.sequence is None:  # No file yet, or one of an older program.
        blank = bytearray(FILE_BYTES_MAX)
        at = SLOT_OFFSETS[slot_of(generation)]
        slot = encode(cursor)
        blank[at : at + len(slot)] = slot
        replace_file(fs, path, bytes(blank))
        fs.check_root()
        return cursor
    file = fs.open(path, write=True)
    try:
        _write_slot(file, SLOT_OFFSETS[slot_of(generation)], encode(cursor))
    finally:
        file.close()
    fs.check_root()  # Before anybody is told that it is stored.
    return cursor


def sync_cursors(fs: FileSystem, directory: Path) -> None:
    """Make every stored position durable: retention must not act on one that a power cut would take back."""
    for name in cursor_names(fs, directory):
        with suppress(NotFoundError):  # Removed since we looked.
            file = fs.open(cursor_path(directory, name))
            try:
                file.sync()
            finally:
                file.close()
    if fs.exists(directory):
        fs.sync_directory(directory)


def _write_slot(file: File, at: int, slot: bytes) -> None:
    before = file.pread(SIZE, at)
    file.pwrite(slot, at)
    try:
        file.sync()
    except LatewoodError:
        # Nobody, retention least of all, may see a position that a power cut would take back.
        with suppress(LatewoodError):
            file.pwrite(before, at)
        raise
