"""Readers whose positions are not, or no longer, of their log: of another log, or beyond its end.

A position says of which log it is, and of which of its lives: see `latewood.log.identity`.  A stranger refuses to
resume: the log was deleted and made anew, or it is not the copy that the reader has read.

A commit makes records durable before it stores a position, so no crash leaves a reader ahead: an older copy of the log
was restored, or it was rebuilt without its end.  What such a reader had read is gone, and records that it has not read
take the numbers.  A rebuild says in the list of lives where that was.  A copy does not: once the log has grown past the
reader nothing would show it, and it would skip records.  So whoever opens the log to append marks such readers first; a
marked one refuses to resume until it is moved.

A mark is a position beyond any log, so that an older program refuses it too.  Format: docs/format/cursor.md
"""

import logging
from pathlib import Path
from typing import Final

from latewood.errors import AnotherLog, CorruptError, ReaderAhead, UnsupportedVersion
from latewood.format.cursor import Cursor
from latewood.format.identity import LogIdentity
from latewood.log import Log
from latewood.log.identity import lost_from, stranger_reason
from latewood.queue.cursor import cursor_names, cursor_path, load_cursor, store_cursor
from latewood.types import Position

MARK: Final = 1 << 63
"""Added to where the reader stood; the offset is then the sequence that the log went back to."""

_logger = logging.getLogger(__name__)


def lost_records(cursor: Cursor, end: int, identity: LogIdentity | None) -> range:
    """Return the records that a reader had read and a log that ends at `end` has no more; empty if all is well."""
    if cursor.sequence is None:
        return range(end, end)
    if identity and cursor.mark and (went_back_to := lost_from(identity, cursor.mark.life)) is not None:
        end = min(end, went_back_to)
    if cursor.sequence >= MARK:
        return range(min(cursor.offset, end), cursor.sequence - MARK)
    return range(end, max(end, cursor.sequence))


def stored_sequence(cursor: Cursor) -> int | None:
    """Return where a reader stood last, marked or not."""
    return None if cursor.sequence is None else cursor.sequence % MARK


def stranger_of(cursor: Cursor, path: Path, identity: LogIdentity | None) -> AnotherLog | None:
    """Return the error of a reader, whose file is `path`, that has read another log than this; None if it has not."""
    reason = stranger_reason(identity, cursor.mark, 0)
    if reason is None:
        return None
    root, name = path.parent.parent, path.stem
    mend = (
        f"if this is the right log, `latewood readers seek {root} {name} --earliest` or "
        f"`log.reader({name!r}, start='earliest')` begins anew in it"
    )
    return AnotherLog(reason, path, mend)


def problem_of(cursor: Cursor, path: Path, end: int, identity: LogIdentity | None) -> CorruptError | None:
    """Return why a reader, whose file is `path`, cannot go on in a log that ends at `end`; None if it can."""
    if stranger := stranger_of(cursor, path, identity):
        return stranger
    lost = lost_records(cursor, end, identity)
    return ReaderAhead(path, lost.start, lost.stop) if lost else None


def check_goes_on(log: Log, name: str, cursor: Cursor) -> None:
    """Do nothing if a reader may go on from a stored position.

    Raises:
        AnotherLog: the position is of another log than this.
        ReaderAhead: the log went back behind it.
    """
    if problem := problem_of(cursor, cursor_path(log.path / "readers", name), log.next_sequence, log.identity):
        raise problem


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
        if cursor is not None and not stranger_reason(log.identity, cursor.mark, 0):  # Nor does a stranger resume.
            _mark_if_ahead(log, name, cursor)


def _mark_if_ahead(log: Log, name: str, cursor: Cursor) -> None:
    end = log.next_sequence
    # Only beyond the end: what a rebuild has lost is in the list of lives for good.
    is_ahead = bool(lost_records(cursor, end, None))
    lost = lost_records(cursor, end, log.identity) if is_ahead else _lost_by_place(log, cursor)
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
