"""`segments/current.sealed` on disk: advisory, and rewritten whenever it is not what it should be."""

import logging

from latewood.errors import CorruptError, NotFoundError
from latewood.format.pointer import SIZE, SealedPointer, decode, encode
from latewood.format.segment import SegmentFooter
from latewood.fs import FileSystem, replace_file
from latewood.log.layout import Layout

_logger = logging.getLogger(__name__)


def pointer_to(footer: SegmentFooter) -> SealedPointer:
    """Return the pointer that names a sealed segment."""
    return SealedPointer(
        footer.segment_index, footer.coordinator_watermark, footer.durable_bytes, footer.flush_failure_flag
    )


def store_pointer(fs: FileSystem, layout: Layout, pointer: SealedPointer) -> None:
    """Replace the pointer, durably."""
    replace_file(fs, layout.sealed_pointer, encode(pointer))


def load_pointer(fs: FileSystem, layout: Layout) -> SealedPointer | None:
    """Return the pointer, or None if there is no sound one.

    Raises:
        UnsupportedVersion: a later program wrote it.
    """
    try:
        file = fs.open(layout.sealed_pointer)
    except NotFoundError:
        return None
    try:
        return decode(file.pread(SIZE, 0), layout.sealed_pointer)
    except CorruptError as error:
        _logger.warning("%s; it is ignored", error)
        return None
    finally:
        file.close()


def mend_pointer(fs: FileSystem, layout: Layout, footer: SegmentFooter) -> SealedPointer:
    """Make the pointer name the latest sealed segment, and warn if it did not."""
    right = pointer_to(footer)
    if load_pointer(fs, layout) != right:
        _logger.warning("%s was missing or stale; it is written again", layout.sealed_pointer)
        store_pointer(fs, layout, right)
    return right
