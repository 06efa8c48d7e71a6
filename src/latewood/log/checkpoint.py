"""`index.meta` on disk: written at every flush, trusted only if it is sound."""

import logging

from latewood.errors import CorruptError
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


class CheckpointFile:
    """The writer's open `index.meta`."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        known = fs.exists(layout.checkpoint)
        self.file: File = fs.open(layout.checkpoint, create=True)
        try:
            self.is_empty = self.file.size() == 0
            """Whether no checkpoint was written yet, and the first may find no room."""
            if not known:
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
