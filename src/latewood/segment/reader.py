"""One segment, mapped to read: sealed, or open and being appended to by somebody.

Finds records by sequence and by timestamp, and hands them out as records or as columns.  Never writes.  A
sealed segment is checked against its footer when it is opened, and each record when it is read.

Format: docs/format/segment.md
"""

from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CorruptError
from latewood.format import seal
from latewood.format.entries import SegmentEntry
from latewood.format.segment import HEADER_SIZE, SegmentFooter
from latewood.fs import FileSystem
from latewood.kernel import (
    BAD,
    EXT_IDS,
    MORE,
    PAYLOADS,
    TIMESTAMPS,
    UNFIT,
    Record,
    columns,
    find_timestamp,
    index_records,
    scan,
    skip,
    verify,
)
from latewood.segment.sealed import check_seal, map_to_read, read_footer, read_header

Column = bytes | bytearray | None
Columns = tuple[int, int, int, Column, Column, Column, Column, Column, Column, Column]
"""count, next offset, state, timestamps, ext_ids, payload offsets, payloads, key validity, key offsets, keys"""


class Selection(NamedTuple):
    """Which columns are made."""

    wanted: int = TIMESTAMPS | EXT_IDS | PAYLOADS
    """The kernel's bits for them."""
    keyed: bool = False
    """Whether keys and payloads are taken apart."""


EVERYTHING: Final = Selection()
_RECORD_BYTES: Final = 32
"""What a record takes besides its payload: its header, and at the most that much padding."""


class SegmentReader:
    """Reads one segment.  Not thread-safe; each reader has its own."""

    def __init__(self, fs: FileSystem, path: Path, entry: SegmentEntry | None) -> None:
        """Open the segment at `path`; `entry` is what the manifest says of it if it is sealed.

        Raises:
            NotFoundError: the file is gone.
            CorruptError: header, footer and manifest do not agree.
        """
        self.path = path
        self._file = fs.open(path)
        try:
            self.header = read_header(self._file)
            self.footer = self._checked_footer(entry) if entry else None
            self._mapping = map_to_read(self._file)
        except BaseException:
            self._file.close()
            raise
        self.limit = self.footer.index_offset + seal.HEAD_SIZE if self.footer else len(self._mapping.view)
        self._records_end = self.footer.index_offset if self.footer else None
        self._marks: list[tuple[int, int]] = []
        self._index: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """The whole file."""
        return self._mapping.view

    @property
    def segment_id(self) -> int:
        """This segment's number."""
        return self.header.segment_index

    @property
    def base_sequence(self) -> int:
        """The sequence of its first record."""
        return self.header.base_record_count

    def read(self, offset: int, sequence: int, records_max: int, bytes_max: int) -> tuple[list[Record], int, int]:
        """Return records from `offset` on, where the next begins, and the kernel's state there.

        Raises:
            CorruptError: a record of a sealed segment is not as it was written.
        """
        records, end, state = scan(self.view, offset, self.limit, sequence, records_max, bytes_max)
        self._check(end, state, empty=not records)
        return records, end, state

    def read_columns(
        self, offset: int, sequence: int, records_max: int, bytes_max: int, selection: Selection = EVERYTHING
    ) -> Columns:
        """Return the same as columns, ready for Arrow; those that are not selected are None.

        Raises:
            CorruptError: as `read`, or a payload is too short for its key.
        """
        if self.footer:  # Of an open segment this would fill the page cache with what is still to be written.
            self._mapping.load(offset, min(self.limit, offset + bytes_max + records_max * _RECORD_BYTES))
        result = columns(self.view, offset, self.limit, sequence, records_max, bytes_max, *selection)
        if result[0] == 0 and result[2] == UNFIT:
            raise CorruptError("a payload is too short for its key", self.path, result[1])
        self._check(result[1], result[2], empty=result[0] == 0)
        return result

    def offset_of(self, sequence: int) -> int:
        """Return where the record with this sequence begins, or would.

        Raises:
            CorruptError: the segment holds fewer records than that, or one on the way there is damaged.
        """
        ordinal = sequence - self.base_sequence
        start, before = self._mark_before(ordinal)
        offset, hopped = skip(self.view, start, self.limit, ordinal - before)
        if hopped != ordinal - before:
            reason = f"record {sequence} should be here and is not"
            raise CorruptError(reason, self.path, offset)
        self._check_hops(start, offset, hopped)
        return offset

    def sequence_at(self, offset: int) -> int | None:
        """Return the sequence of the record that begins at `offset`, or None if none does.

        Raises:
            CorruptError: one on the way there is damaged.
        """
        at, hopped = HEADER_SIZE, 0
        while at < offset:
            at, step = skip(self.view, at, self.limit, 1)
            hopped += step
            if not step:
                return None
        self._check_hops(HEADER_SIZE, at, hopped)
        return self.base_sequence + hopped if at == max(offset, HEADER_SIZE) else None

    def end_at(self, offset: int) -> None:
        """Look no further than to `offset`, up to which an open segment is known to have records."""
        self.limit = self._records_end = offset

    def find_timestamp(self, timestamp_ns: int) -> tuple[int, int] | None:
        """Return sequence and offset of the first record at or after a time, or None if there is none yet.

        Raises:
            CorruptError: one on the way there is damaged.
        """
        start, before = self._mark_earlier_than(timestamp_ns)
        hopped, offset, state = find_timestamp(self.view, start, self.limit, timestamp_ns)
        self._check_hops(start, offset, hopped)
        if state == MORE:
            return self.base_sequence + before + hopped, offset
        if self._records_end not in (None, offset):
            raise CorruptError("a record does not match its checksum", self.path, offset)
        return None

    def sync(self) -> None:
        """Make all that was appended durable; any process that can read the file may ask for that."""
        self._file.sync()

    def close(self) -> None:
        """Let go of the file, and of the memory once no view of it is left."""
        if self._index is not None:
            self._index.release()
            self._index = None
        self._mapping.close()
        self._file.close()

    def _checked_footer(self, entry: SegmentEntry) -> SegmentFooter:
        footer = read_footer(self._file)
        header = self.header
        if footer.segment_index != header.segment_index or footer.base_record_count != header.base_record_count:
            raise CorruptError("header and footer do not agree", self.path, footer.index_offset)
        check_seal(footer, entry, self.path)
        return footer

    def _check(self, offset: int, state: int, *, empty: bool) -> None:
        # In an open segment a bad record may be a torn tail: the log decides, by what is durable.
        if self.footer and empty and (state == BAD or (state != MORE and offset != self.footer.index_offset)):
            raise CorruptError("a record does not match its checksum", self.path, offset)

    def _check_hops(self, start: int, stop: int, count: int) -> None:
        """Raise unless `count` sound records lie between two offsets.

        Hopping trusts lengths: a damaged one may lead to another record, which is sound and the wrong one.
        """
        found, end, *_ = verify(self.view, start, stop)
        if (found, end) != (count, stop):
            raise CorruptError("a record does not match its checksum", self.path, end)

    def _mark_before(self, ordinal: int) -> tuple[int, int]:
        """Return offset and ordinal of an indexed record at or before `ordinal`."""
        interval = self.header.index_interval
        number = ordinal // interval
        if self.footer:
            entries = self._sealed_index()
            number = min(number, len(entries) // 2 - 1)
            return (entries[2 * number], number * interval) if number >= 0 else (HEADER_SIZE, 0)
        self._extend_marks(number)
        number = min(number, len(self._marks) - 1)
        return (self._marks[number][0], number * interval) if number >= 0 else (HEADER_SIZE, 0)

    def _mark_earlier_than(self, timestamp_ns: int) -> tuple[int, int]:
        """Return offset and ordinal of the last indexed record before which no timestamp reaches this one."""
        if self.footer:
            entries = self._sealed_index()
            count = len(entries) // 2
        else:
            self._extend_marks(None)
            entries, count = None, len(self._marks)
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            reached = entries[2 * middle + 1] if entries is not None else self._marks[middle][1]
            low, high = (middle + 1, high) if reached < timestamp_ns else (low, middle)
        return self._mark_before((low - 1) * self.header.index_interval) if low else (HEADER_SIZE, 0)

    def _extend_marks(self, number: int | None) -> None:
        """Index an open segment as far as mark `number`, or to its end."""
        interval = self.header.index_interval
        if number is not None and number < len(self._marks):
            return
        # The last mark is indexed again, as the first record of the stretch that follows it.
        start, reached = self._marks.pop() if self._marks else (HEADER_SIZE, 0)
        wanted = self.limit if number is None else (number - len(self._marks)) * interval + 1
        raw = memoryview(index_records(self.view, start, self.limit, wanted, interval, reached)).cast("Q")
        marks = list(zip(raw[::2], raw[1::2], strict=True))
        if marks:
            self._check_hops(start, marks[-1][0], (len(marks) - 1) * interval)
        self._marks += marks

    def _sealed_index(self) -> memoryview:
        if self._index is None:
            assert self.footer is not None
            start = self.footer.index_offset
            end = start + seal.HEAD_SIZE + self.footer.index_count * seal.ENTRY_SIZE
            seal.check(bytes(self.view[start:end]), self.path, start)
            self._index = self.view[start + seal.HEAD_SIZE : end].cast("Q")
        return self._index
