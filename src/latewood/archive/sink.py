"""A new file that is written from front to back, and seen by others whole or not at all.

1. It grows under a name that nobody reads.   step `written`
2. It is synced.                              step `synced`
3. It gets its name.                          step `renamed`
4. The directory is synced.                   step `durable`

A crash before 3 leaves only an unfinished file, which whoever knows its token may remove.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from latewood.archive.names import temporary_name
from latewood.archive.source import Digest
from latewood.errors import ConflictError, CorruptError, NotFoundError
from latewood.fs import FileSystem
from latewood.kernel import crc32c

Hook: TypeAlias = Callable[[str], None]
"""Called with the name of each step that is done; whatever it raises ends the work there."""

FILE_STEPS: Final = ("written", "synced", "renamed", "durable")


def no_hook(step: str) -> None:
    """Let the work go on."""
    del step


class Sink(Protocol):
    """Where bytes go, in order."""

    def write(self, data: bytes | memoryview) -> int:
        """Take all of `data`; return its length."""
        ...


class FileSink:
    """One new file.  It counts and sums what is written."""

    def __init__(self, fs: FileSystem, directory: Path, token: str, hook: Hook = no_hook) -> None:
        """Begin the file, over what an earlier attempt of the same token left."""
        self._fs, self._directory, self._hook = fs, directory, hook
        self._temporary = directory / temporary_name(token)
        fs.make_directory(directory)
        self._file = fs.open(self._temporary, create=True)
        self._file.truncate(0)
        self._size = self._checksum = 0

    @property
    def digest(self) -> Digest:
        """Length and checksum of what was written so far."""
        return Digest(self._size, self._checksum)

    def write(self, data: bytes | memoryview) -> int:
        """Append all of `data`; return its length."""
        length = memoryview(data).nbytes
        if length:
            self._file.pwrite(data, self._size)
            self._checksum = crc32c(data, self._checksum)
            self._size += length
        return length

    def prove(self, digest: Digest, origin: Path) -> None:
        """Raise unless what was written is what should have been.

        Raises:
            CorruptError: it is not; `origin` is where it came from.
        """
        if self.digest != digest:
            raise CorruptError("what was read from it is not what should be there", origin, 0)

    def publish(self, name: str) -> Path:
        """Give the file its name, durably, and return its path.

        Raises:
            ConflictError: another file has that name; it was left as it is.
        """
        path = self._directory / name
        self._hook("written")
        self._file.sync()
        self._hook("synced")
        self._file.close()
        if self._fs.exists(path):
            raise ConflictError(f"{path} exists already; a new file needs a new name")
        self._fs.rename(self._temporary, path)
        self._hook("renamed")
        self._fs.sync_directory(self._directory)
        self._hook("durable")
        return path

    def abandon(self) -> None:
        """Remove what is unfinished."""
        self._file.close()
        remove_temporary(self._fs, self._temporary)


def remove_temporary(fs: FileSystem, path: Path) -> None:
    """Remove an unfinished file, if it is there."""
    try:
        fs.remove(path)
    except NotFoundError:
        return
