"""`index.meta` on disk: written at every flush, trusted only if it is sound."""

import logging

from latewood.errors import CorruptError, Locked
from latewood.forking import no_fork
from latewood.format.checkpoint import SIZE, Checkpoint, decode, encode
from latewood.fs import File, FileSystem
from latewood.log.layout import Layout

_logger = logging.getLogger(__name__)


def load_checkpoint(fs: FileSystem, layout: Layout) -> Checkpoint | None:
    """Return the last checkpoint, or None, with a warning if there is one that cannot be used.

    An empty file is one of a log that nothing was appended to yet.

    Raises:
        UnsupportedVersion: a later program wrote it.
    """
    path = layout.checkpoint
    if not fs.exists(path):
        return None
    file = fs.open(path)
    try:
        raw = file.pread(SIZE, 0)
        return decode(raw, path) if raw else None
    except CorruptError as error:
        _logger.warning("%s; the whole open segment is scanned instead", error)
        return None
    finally:
        file.close()


def lock_checkpoint(fs: FileSystem, layout: Layout) -> File | None:
    """Return `index.meta` of a log that is about to be written, open and locked; None if it is not there yet.

    Its writer has it open anyway, so this lock takes no descriptor.  It keeps a second writer out where the lock file
    was removed and the directory is not locked, as that of a shard is not.

    Raises:
        Locked: a living process, perhaps this one, writes the log.
    """
    return _locked(fs, layout, create=False) if fs.exists(layout.checkpoint) else None


def _locked(fs: FileSystem, layout: Layout, *, create: bool) -> File:
    with no_fork():  # A child that did not know of the file would hold its lock for as long as it lives.
        file = fs.open(layout.checkpoint, write=True, create=create)
        try:
            file.lock()
        except Locked as error:
            file.close()
            raise Locked(layout.lock, error.pid) from error
        except BaseException:
            file.close()
            raise
        return file


class CheckpointFile:
    """The writer's open `index.meta`."""

    def __init__(self, fs: FileSystem, layout: Layout, locked: File | None) -> None:
        """Take over the file from `lock_checkpoint`, or make it."""
        self.file = locked or _locked(fs, layout, create=True)
        try:
            self.is_empty = self.file.size() == 0
            """Whether no checkpoint was written yet, and the first may find no room."""
            if locked is None:
                self.file.sync()
                fs.sync_directory(layout.root)
        except BaseException:
            self.file.close()
            raise

    def write(self, checkpoint: Checkpoint, *, durable: bool) -> None:
        """Write it in place.  Not durable unless asked: an older one is as true, only further back."""
        self.file.pwrite(encode(checkpoint), 0)
        self.is_empty = False
        if durable:
            self.file.sync()

    def close(self) -> None:
        """Close the file."""
        self.file.close()
