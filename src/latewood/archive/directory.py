"""A tier in a directory: another disk, or a mounted one.

Files are made as chunks are: under another name, synced, renamed, and the directory synced.
"""

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from latewood.archive.names import TOKEN_BYTES, RandomBytes, token_of_temporary
from latewood.archive.sink import FileSink, Hook, no_hook
from latewood.archive.source import Digest, FileSource, Source, pieces
from latewood.archive.tier import ObjectInfo, check_key, check_prefix, settle_existing
from latewood.errors import ConflictError, NotFoundError
from latewood.fs import FileSystem


class DirectoryTier:
    """Objects as files under one directory."""

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        *,
        random_bytes: RandomBytes = secrets.token_bytes,
        hook: Hook = no_hook,
    ) -> None:
        self.name = root.absolute().as_uri()
        self._fs, self._root, self._random_bytes, self._hook = fs, root, random_bytes, hook
        self._naming = threading.Lock()
        """Between the look whether a name is free and taking it."""

    def put(self, key: str, source: Source, digest: Digest) -> ObjectInfo:
        """Make a file, durable on return, if there is none."""
        path = self._path(key)
        if self._fs.exists(path):
            return settle_existing(self, key, digest)
        sink = FileSink(self._fs, path.parent, self._random_bytes(TOKEN_BYTES).hex(), self._hook)
        try:
            for piece in pieces(source):
                sink.write(piece)
            sink.prove(digest, source.path)
            with self._naming:
                sink.publish(path.name)
        except ConflictError:
            sink.abandon()
            return settle_existing(self, key, digest)
        except BaseException:
            sink.abandon()
            raise
        return ObjectInfo(key, digest.size)

    def get(self, key: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes of a file at `offset`."""
        source = FileSource(self._fs, self._path(key))
        try:
            return source.read(offset, length)
        finally:
            source.close()

    def head(self, key: str) -> ObjectInfo:
        """Return the size of a file."""
        source = FileSource(self._fs, self._path(key))
        source.close()
        return ObjectInfo(key, source.size)

    def delete(self, key: str) -> None:
        """Remove a file, durably, if it is there."""
        path = self._path(key)
        try:
            self._fs.remove(path)
        except NotFoundError:
            return
        self._fs.sync_directory(path.parent)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all files under a prefix, but not unfinished ones."""
        for path in self._fs.walk(self._root / check_prefix(prefix)):
            if token_of_temporary(path.name) is None:
                yield self.head(path.relative_to(self._root).as_posix())

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)
