"""Records in order, from a sequence on, across segments, as far as they are written.

A stream leaves a segment only when it meets the seal, and then asks the manifest for the next one: that a
file exists proves nothing.  Not thread-safe.
"""

from typing import Final

from latewood.errors import ClosedError, CorruptError, DataLost, StorageError
from latewood.format.record import SEAL_LENGTH
from latewood.kernel import BAD, END, SEALED, Record
from latewood.limits import ARROW_BYTES_MAX, ARROW_RECORDS_MAX, READ_BYTES_MAX, READ_RECORDS_MAX
from latewood.log.checkpoint import load_checkpoint
from latewood.log.view import View
from latewood.segment import EVERYTHING, Columns, SegmentReader, Selection
from latewood.types import Position

_UNCOMMITTED: Final = b"\0\0\0\0"
_SEALED: Final = SEAL_LENGTH.to_bytes(4, "little")


class Stream:
    """A place in a log that moves forward as it is read."""

    def __init__(self, view: View, sequence: int) -> None:
        self._view = view
        self._segment: SegmentReader | None = None
        self._is_closed = False
        self._offset = 0
        self._judged = -1
        self._torn = b""
        """How a record began that was not sound: there is nothing to read until that changes."""
        self.sequence = sequence

    def read(self, records_max: int = READ_RECORDS_MAX, bytes_max: int = READ_BYTES_MAX) -> list[Record]:
        """Return the next records, at least one unless none is written yet.

        Raises:
            DataLost: they were retired.
            CorruptError: one of them is damaged.
        """
        while True:
            segment = self._opened()
            records, offset, state = segment.read(self._offset, self.sequence, records_max, bytes_max)
            self._offset, self.sequence = offset, self.sequence + len(records)
            if records or not self._goes_on(segment, state):
                return records

    def read_columns(
        self,
        records_max: int = ARROW_RECORDS_MAX,
        bytes_max: int = ARROW_BYTES_MAX,
        selection: Selection = EVERYTHING,
    ) -> Columns:
        """Return the next records as columns; the count is 0 only if none is written yet.

        Raises:
            DataLost: they were retired.
            CorruptError: one of them is damaged.
        """
        while True:
            segment = self._opened()
            result = segment.read_columns(self._offset, self.sequence, records_max, bytes_max, selection)
            self._offset, self.sequence = result[1], self.sequence + result[0]
            if result[0] or not self._goes_on(segment, result[2]):
                return result

    def has_more(self) -> bool:
        """Say whether `read` would return a record now."""
        segment = self._opened()
        head = bytes(segment.view[self._offset : self._offset + 8])
        if head[4:] == _UNCOMMITTED:
            return False
        if head == self._torn:  # The same record may have been written again, and whole.
            return bool(segment.read(self._offset, self.sequence, 1, 1)[0])
        return head[:4] != _SEALED or (self._cross(segment) and self.has_more())

    def position(self) -> Position:
        """Return where the next record is, or will be."""
        segment = self._opened()
        return Position(segment.segment_id, self._offset, self.sequence)

    def position_of(self, sequence: int) -> Position:
        """Return where a record that was read from this stream is."""
        segment = self._opened()
        if sequence >= segment.base_sequence:
            return Position(segment.segment_id, segment.offset_of(sequence), sequence)
        return self._view.position_of(sequence)

    def sync(self) -> None:
        """Make everything before the position durable.

        Raises:
            StorageError: it did not work, or an earlier sync by the writer had failed.
        """
        if self._segment is None or self.sequence <= self._view.durable():
            return
        self._segment.sync()
        checkpoint = load_checkpoint(self._view.fs, self._view.layout)
        if checkpoint and checkpoint.segment_id == self._segment.segment_id and checkpoint.flush_failure_flag:
            # The kernel told the writer alone, and took the pages for clean: our sync has skipped them.
            message = f"{self._segment.path}: a sync failed; these records are durable once the writer says so"
            raise StorageError(message)

    def close(self) -> None:
        """Let go of the segment, for good."""
        self._is_closed = True
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _opened(self) -> SegmentReader:
        if self._segment is None:
            if self._is_closed:
                raise ClosedError("this place in the log is closed")
            segment = self._view.segment_with(self.sequence)
            try:
                self._offset = segment.offset_of(self.sequence)
            except BaseException:
                segment.close()
                raise
            self._segment = segment
        return self._segment

    def _goes_on(self, segment: SegmentReader, state: int) -> bool:
        """Say whether to read again, after a read that found nothing."""
        if state == SEALED:
            return self._cross(segment)
        if self._judged != self._offset or state in (BAD, END):
            self._judge(segment, state)
            self._judged = self._offset
            self._torn = bytes(segment.view[self._offset : self._offset + 8]) if state == BAD else b""
        return False

    def _cross(self, segment: SegmentReader) -> bool:
        """Go on to the next segment, if the writer has begun it."""
        following = self._view.segment_after(segment.segment_id)
        if following is None:
            return False
        if following.base_sequence != self.sequence:
            following.close()
            raise DataLost(self.sequence, following.base_sequence)
        offset = following.offset_of(self.sequence)
        self._segment, self._offset = following, offset  # At once: an interrupt comes before it, or after.
        segment.close()
        return True

    def _judge(self, segment: SegmentReader, state: int) -> None:
        """Raise if records were durable where there are none now; else it is a tail still being written."""
        checkpoint, active = load_checkpoint(self._view.fs, self._view.layout), self._view.manifest.active
        marks = [(active.segment_id, active.write_offset)]  # Up to here, at the least, the log was durable.
        marks += [(checkpoint.segment_id, checkpoint.write_offset)] if checkpoint else []
        if state == END or (segment.segment_id, self._offset) < max(marks):
            # The writer may have gone on between our look at the record and our look at the checkpoint.
            records, _, again = segment.read(self._offset, self.sequence, 1, 1)
            if not records and again != SEALED:
                raise CorruptError("a durable record is damaged", segment.path, self._offset)
