"""Every named reader of a queue, also those whose files are damaged."""

from pathlib import Path
from typing import NamedTuple

from latewood.errors import AnotherLog, CorruptError, DataLost, NotFoundError
from latewood.queue.ahead import lost_records, problem_of, stored_sequence
from latewood.queue.cursor import cursor_names, cursor_path, load_cursor
from latewood.queue.queue import Queue

_MS = 1_000_000


class ReaderStatus(NamedTuple):
    """A named reader, seen from outside; all but name and problem are None if its file is damaged."""

    name: str
    sequence: int | None
    """The next record it wants."""
    lag: int | None
    """Records written that it has not committed; of one that the log went back behind, those since.  None also if its
    position is of another log."""
    behind_ms: int | None
    """How long the next record has been waiting for it; None if there is none, or it was retired."""
    committed_at_ns: int | None
    problem: str | None


def list_readers(queue: Queue) -> list[ReaderStatus]:
    """Return all named readers of a queue, in the order of their names.

    Raises:
        UnsupportedVersion: a later program wrote the position of one.
    """
    directory = queue.path / "readers"
    return [_status(queue, name, directory) for name in cursor_names(queue.file_system, directory)]


def _status(queue: Queue, name: str, directory: Path) -> ReaderStatus:
    try:
        cursor = load_cursor(queue.file_system, cursor_path(directory, name))
    except CorruptError as error:
        return ReaderStatus(name, None, None, None, None, f"{error.path} at byte {error.offset}: {error.reason}")
    if cursor is None:  # Removed since we looked.
        return ReaderStatus(name, None, None, None, None, "it was removed meanwhile")
    sequence = stored_sequence(cursor)
    if sequence is None:  # A position of an older program: the start of its segment is near enough.
        sequence = queue.view().sequence_at(cursor.segment_id, 0) or 0
    end, identity = queue.next_sequence, queue.identity
    if problem := problem_of(cursor, cursor_path(directory, name), end, identity):
        lag = None if isinstance(problem, AnotherLog) else end - lost_records(cursor, end, identity).start
        return ReaderStatus(name, sequence, lag, None, cursor.committed_at, str(problem))
    return ReaderStatus(name, sequence, end - sequence, _behind_ms(queue, sequence), cursor.committed_at, None)


def _behind_ms(queue: Queue, sequence: int) -> int | None:
    try:
        appended_ns = queue.read(sequence).timestamp_ns
    except (NotFoundError, DataLost):
        return None
    return max(0, queue.clock.now_ns() - appended_ns) // _MS
