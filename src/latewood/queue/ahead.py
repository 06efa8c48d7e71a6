"""Readers that stand beyond the end of their log.

A commit makes records durable before it stores a position, so no crash does this: an older copy of the log was
restored, or it was rebuilt without its end.  What such a reader had read is gone, and records that it has not read
take the numbers.  Once the log has grown past the reader nothing would show that, and it would skip them.  So
whoever opens the log to append marks such readers first; a marked one refuses to resume until it is moved.

A mark is a position beyond any log, so that an older program refuses it too.  Format: docs/format/cursor.md
"""

import logging
from typing import Final

from latewood.errors import CorruptError, ReaderAhead, UnsupportedVersion
from latewood.format.cursor import Cursor
from latewood.log import Log
from latewood.queue.cursor import cursor_names, cursor_path, load_cursor, store_cursor
from latewood.types import Position

MARK: Final = 1 << 63
"""Added to where the reader stood; the offset is then the sequence that the log went back to."""

_logger = logging.getLogger(__name__)


def lost_records(cursor: Cursor, end: int) -> range:
    """Return the records that a reader had read and a log that ends at `end` has no more; empty if all is well."""
    if cursor.sequence is None:
        return range(end, end)
    if cursor.sequence >= MARK:
        return range(min(cursor.offset, end), cursor.sequence - MARK)
    return range(end, max(end, cursor.sequence))


def stored_sequence(cursor: Cursor) -> int | None:
    """Return where a reader stood last, marked or not."""
    return None if cursor.sequence is None else cursor.sequence % MARK


def check_not_ahead(log: Log, name: str, cursor: Cursor) -> None:
    """Do nothing if a reader may go on from a stored position.

    Raises:
        ReaderAhead: the log went back behind it.
    """
    lost = lost_records(cursor, log.next_sequence)
    if lost:
        raise ReaderAhead(cursor_path(log.path / "readers", name), lost.start, lost.stop)


def mark_readers_ahead(log: Log) -> None:
    """Mark every reader that stands beyond the end, durably, before the log grows past it.

    Raises:
        Locked: one of them is open: whoever has it reads another log than this.
        ReadOnlyError, StorageError: one of them cannot be marked.
    """
    directory = log.path / "readers"
    for name in cursor_names(log.file_system, directory):
        try:
            cursor = load_cursor(log.file_system, cursor_path(directory, name))
        except (CorruptError, UnsupportedVersion):  # It refuses to resume as it is.
            continue
        if cursor is not None:
            _mark_if_ahead(log, name, cursor)


def _mark_if_ahead(log: Log, name: str, cursor: Cursor) -> None:
    lost = lost_records(cursor, log.next_sequence) or _lost_by_place(log, cursor)
    if not lost or (cursor.sequence is not None and cursor.sequence >= MARK and cursor.offset == lost.start):
        return
    path = cursor_path(log.path / "readers", name)
    lock = log.file_system.lock(path.with_suffix(".lock"))
    try:
        position = Position(0, lost.start, MARK + lost.stop)
        store_cursor(log.file_system, path, cursor, position, cursor.committed_at, cursor.mark)
    finally:
        lock.close()
    _logger.warning("%s", ReaderAhead(path, lost.start, lost.stop))


def _lost_by_place(log: Log, cursor: Cursor) -> range:
    """Return the same for a position that an older program stored without a sequence: at least one record."""
    if cursor.sequence is not None:
        return range(0)
    end = log.view().end()
    beyond = (cursor.segment_id, cursor.offset) > (end.segment_id, end.offset)
    return range(end.sequence, end.sequence + beyond)
