"""A tier in a directory: another disk, or a mounted one.

Files are made as chunks are: under another name, synced, renamed, and the directory synced.  Whoever makes one holds a
lock beside it meanwhile, which the kernel frees when its process dies: so `sweep` knows what is surely nobody's.

The directory is held open from its first use on.  If its path leads elsewhere by now, every call says so: an object
that nobody would find again is neither acknowledged nor believed to be safe.
"""

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from latewood.archive.names import (
    IDENTITY_KEY,
    TOKEN_BYTES,
    RandomBytes,
    lock_name,
    temporary_name,
    token_of_lock,
    token_of_temporary,
)
from latewood.archive.sink import FileSink, Hook, no_hook, remove_temporary
from latewood.archive.source import Digest, FileSource, Source, pieces
from latewood.archive.tier import ObjectInfo, check_key, check_prefix, settle_existing
from latewood.errors import ConflictError, LatewoodError, Locked, NotFoundError, ReadOnlyError, StorageError
from latewood.forking import OwnLock, close_after_fork
from latewood.fs import FileSystem

_logger: Final = logging.getLogger(__name__)


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
        self._disk, self._root, self._random_bytes, self._hook = fs, fs.absolute(root), random_bytes, hook
        self._fs = fs
        """The disk, with the directory held open once it is there."""
        self._naming, self._holding = OwnLock(), OwnLock()
        """Between the look whether a name is free and taking it; while the directory is being opened."""
        close_after_fork(self)

    @property
    def root(self) -> Path:
        """The directory."""
        return self._root

    def is_there(self) -> bool:
        """Say whether the directory is there."""
        return self._disk.exists(self._root)

    def missing_parent(self) -> Path | None:
        """Return the directory that this one should be in, if neither of them is there."""
        return None if self.is_there() or self._disk.exists(self._root.parent) else self._root.parent

    def put(self, key: str, source: Source, digest: Digest) -> ObjectInfo:
        """Make a file, durable on return, if there is none."""
        path = self._path(key)
        with self._found():
            if self._fs.exists(path):
                return settle_existing(self, key, digest)
            token = self._random_bytes(TOKEN_BYTES).hex()
            try:
                with self._at_work(path.parent, token):
                    self._make(path, token, source, digest)
            except ConflictError:
                return settle_existing(self, key, digest)
        return ObjectInfo(key, digest.size)

    def get(self, key: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes of a file at `offset`."""
        with self._found(), closing(FileSource(self._fs, self._path(key))) as source:
            return source.read(offset, length)

    def head(self, key: str) -> ObjectInfo:
        """Return the size of a file, and as its ETag what is another one once the file was changed or replaced."""
        with self._found(), closing(FileSource(self._fs, self._path(key))) as source:
            return ObjectInfo(key, source.size, source.stamp())

    def delete(self, key: str) -> None:
        """Remove a file, durably, if it is there."""
        path = self._path(key)
        with self._found():
            try:
                self._fs.remove(path)
            except NotFoundError:
                return
            self._fs.sync_directory(path.parent)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all files under a prefix, but neither unfinished ones nor the archive's identity."""
        with self._found():
            for path in self._fs.walk(self._root / check_prefix(prefix)):
                if token_of_temporary(path.name) is None and token_of_lock(path.name) is None:
                    key = path.relative_to(self._root).as_posix()
                    if key != IDENTITY_KEY:
                        yield self.head(key)

    def sweep(self, prefix: str, hook: Hook = no_hook) -> Sequence[str]:
        """Remove what puts that were killed have left directly under a prefix, and return the names.

        Where the file system has no locks nothing is removed: nobody knows then who is at work.
        """
        directory = self._root / check_prefix(prefix)
        with self._found():
            found = (token_of_temporary(name) or token_of_lock(name) for name in self._fs.list(directory))
            tokens = sorted({token for token in found if token is not None})
            removed = [temporary_name(token) for token in tokens if self._end(directory, token, hook)]
        if removed:
            _logger.info("%s: removed what puts that were killed had left: %s", directory, ", ".join(removed))
        return removed

    def abandon_after_fork(self) -> None:
        """Find the directory anew in the child: what is open is the parent's."""
        self._fs = self._disk

    @contextmanager
    def _found(self) -> Iterator[None]:
        """Hold the directory open if it is there, and look at the end whether its path still leads to it."""
        self._hold()
        try:
            yield
        except LatewoodError:
            self._fs.check_root()  # A directory that was deleted says more than what is missing in it.
            raise
        self._fs.check_root()

    def _hold(self) -> None:
        with self._holding:
            if self._fs is self._disk and self._disk.exists(self._root):
                self._fs = self._disk.rooted(self._root)

    def _make(self, path: Path, token: str, source: Source, digest: Digest) -> None:
        sink = FileSink(self._fs, path.parent, token, self._hook)
        try:
            for piece in pieces(source):
                sink.write(piece)
            sink.prove(digest, source.path)
            with self._naming:
                sink.publish(path.name)
        except BaseException:
            sink.abandon()
            raise

    @contextmanager
    def _at_work(self, directory: Path, token: str) -> Iterator[None]:
        """Hold the lock of a token; go on without where there are no locks."""
        self._fs.make_directory(directory)
        self._hold()
        name = directory / lock_name(token)
        try:
            lock = self._fs.lock(name)
        except StorageError:
            remove_temporary(self._fs, name)
            yield
            return
        with ExitStack() as end:
            end.callback(lock.close)
            end.callback(remove_temporary, self._fs, name)
            yield

    def _end(self, directory: Path, token: str, hook: Hook) -> bool:
        """Remove what is left of a put, if its lock is free; say whether it was."""
        name = directory / lock_name(token)
        try:
            lock = self._fs.lock(name)
        except (Locked, ReadOnlyError):
            return False
        except StorageError:
            remove_temporary(self._fs, name)
            return False
        try:
            hook("remove orphan")
            remove_temporary(self._fs, directory / temporary_name(token))
            remove_temporary(self._fs, name)
        finally:
            lock.close()
        return True

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)
