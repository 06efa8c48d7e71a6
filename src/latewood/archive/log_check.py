"""Looks whether the log of a shard, its chunks and the catalog fit one another; `coverage` decides.  Never writes.

Chunks are those that the catalog knows and, in the database's directory, also files that no row names: a catalog that
was restored from an older copy, with the logs or without, knows nothing of them, and they may be the only copies.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from latewood.archive.coverage import catalog_shortfall, shortfall
from latewood.archive.keys import KeyRing
from latewood.archive.names import ChunkName, parse_file_name
from latewood.errors import CatalogBehind, LatewoodError, LogBehind
from latewood.forking import OwnLock, no_fork
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.log.reach import LogReach, reach_of


class ChunkFiles:
    """The chunk files of a database, by their names.  Thread-safe.

    They are listed once: what a job makes later has records that the log of its shard has sealed.
    """

    def __init__(self, fs: FileSystem, directory: Path, keys: KeyRing | None = None) -> None:
        self._fs, self._directory, self._keys = fs, directory, keys
        self._lock = OwnLock()
        self._names: dict[int, list[ChunkName]] | None = None
        """None until a listing has succeeded: one that failed says nothing of what is there."""

    def beyond(self, shard: int, sequence: int) -> Sequence[ChunkName]:
        """Return those of a shard that have records from a sequence on."""
        with self._lock:
            if self._names is None:
                found: dict[int, list[ChunkName]] = {}
                for name in filter(None, map(parse_file_name, self._fs.list(self._directory))):
                    found.setdefault(name.shard, []).append(name)
                self._names = found
            return [name for name in self._names.get(shard, []) if name.sequence_max >= sequence]

    def is_of_log(self, name: ChunkName, identity: bytes | None) -> bool:
        """Say whether the records of a file may have come from the log of this identity, None: of any.

        One that cannot be read may: its records could turn out to be the only ones.
        """
        with no_fork():
            from latewood.archive.chunk_reader import open_chunk  # noqa: PLC0415 - Arrow takes its time to load

        try:
            with open_chunk(self._fs, self._directory / name.file_name, self._keys) as reader:
                mark = reader.meta.mark
        except LatewoodError:
            return self._fs.exists(self._directory / name.file_name)
        return identity is None or mark is None or mark.identity == identity


def log_behind(
    fs: FileSystem,
    path: Path,
    covered: int,
    wanted: bytes | None,
    files: ChunkFiles | None = None,
    shard: int = 0,
    covered_now: Callable[[], int | None] | None = None,
) -> LogBehind | None:
    """Return what is wrong with the log of a shard whose chunks go up to `covered`; None: nothing.

    `wanted` is the identity that the catalog notes of it; None: nobody has noted one.  `files` are the chunk files of
    its database.  What chunks cover must have been looked up before, because a writer may go on meanwhile: both only
    grow, and the log is never behind.  The catalog is never behind a log that was looked at before it: so
    `covered_now` looks it up again; None, or if it returns None: the catalog cannot be asked, and is not judged.

    Raises:
        CorruptError, UnsupportedVersion: the log cannot be read.
        DirectoryReplaced: the whole store is gone, or another directory is in its place.
    """
    ahead = files.beyond(shard, covered) if files is not None else []
    reach = reach_of(fs, Layout(path), max([covered, *(name.sequence_max + 1 for name in ahead)]))
    reason = shortfall(reach, covered, wanted)
    found: LogBehind | None = None
    if reason is not None:
        found = LogBehind(path, reason)
    elif files is not None and reach is not None:
        if (reason := _shortfall_of_files(reach, ahead, files)) is not None:
            found = LogBehind(path, reason)
        elif covered < reach.first and ahead and covered_now is not None and (now := covered_now()) is not None:
            found = _catalog_behind(path, reach, ahead, files, now)
    if found is not None:
        fs.check_root()  # A store that was deleted says more than a log that is missing in it.
    return found


def _catalog_behind(
    path: Path, reach: LogReach, ahead: Sequence[ChunkName], files: ChunkFiles, covered: int
) -> CatalogBehind | None:
    """Return that the catalog is older than a chunk, if that has records which neither the catalog nor the log has."""
    for name in ahead:
        is_between = name.sequence_min < reach.first and name.sequence_max >= covered < reach.first
        if is_between and files.is_of_log(name, reach.identity):
            return CatalogBehind(path, catalog_shortfall(reach, covered, name.file_name))
    return None


def _shortfall_of_files(reach: LogReach, ahead: Sequence[ChunkName], files: ChunkFiles) -> str | None:
    for name in ahead:
        reason = shortfall(reach, name.sequence_max + 1, None)
        if reason is not None and files.is_of_log(name, reach.identity):
            return (
                f"{reason}; {name.file_name} is one of them, and no row of the catalog names it: if an older copy of "
                f"that was restored too, `latewood rebuild --catalog` of the store counts the chunk in, and goes first"
            )
    return None
