"""The open segment: the one file that records are being appended to.

Appending is the kernel's, through a mapping.  This module makes the file, begins it with a header and ends it
with a seal; it decides nothing.  Owner: the log's writer, whose locks guard everything but `appender`.

Format: docs/format/segment.md
"""

from pathlib import Path
from typing import Final, NamedTuple

from latewood.format import seal
from latewood.format.segment import (
    HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    encode_footer,
    encode_header,
)
from latewood.fs import File, FileSystem
from latewood.kernel import Appender, index_records
from latewood.limits import KiB

U64_MAX = 0xFFFF_FFFF_FFFF_FFFF
_FILL_BYTES: Final = 64 * KiB
"""In larger pieces the page cache would hold them in pages so large that each sync of a record wrote all of one."""


class Tail(NamedTuple):
    """What is known of the records of an open segment, up to `offset`."""

    offset: int
    record_count: int
    first_timestamp: int
    last_timestamp: int
    max_timestamp: int
    """The largest in the whole log, so that it never falls from one segment to the next."""
    min_ext_id: int
    max_ext_id: int


def empty_tail(max_timestamp: int) -> Tail:
    """Return the tail of a segment without records."""
    return Tail(HEADER_SIZE, 0, 0, 0, max_timestamp, U64_MAX, 0)


def file_bytes(segment_bytes_max: int, index_interval: int) -> int:
    """Return what a segment's file is allocated: the seal must never fail for want of room."""
    return segment_bytes_max + seal.tail_bytes_max(segment_bytes_max, index_interval)


def prepare(fs: FileSystem, path: Path, size: int, *, fill: bool = False) -> File:
    """Return a new file of `size` durable zeros, which the disk has only promised, or, with `fill`, has written.

    A file that is already there is removed, never truncated: after a crash it may be another name of a segment.
    """
    if fs.exists(path):
        fs.remove(path)
    file = fs.open(path, create=True)
    try:
        file.allocate(size)
        for start in range(0, size if fill else 0, _FILL_BYTES):
            file.pwrite(bytes(min(_FILL_BYTES, size - start)), start)
        file.sync()
    except BaseException:
        file.close()
        fs.remove(path)
        raise
    return file


def write_header(file: File, header: SegmentHeader) -> None:
    """Write a header and make it durable."""
    file.pwrite(encode_header(header), 0)
    file.sync()


class SegmentWriter:
    """One open segment, mapped."""

    def __init__(self, file: File, header: SegmentHeader, tail: Tail, wake: memoryview | None) -> None:
        self.file, self.header = file, header
        self._attached_count = tail.record_count
        # All of `file_bytes`, but for a segment that a crash left sealed and trimmed: it gets no more records.
        self._mapping = file.map(file.size(), writable=True)
        self.appender = Appender(
            self._mapping.view,
            wake,
            tail.offset,
            header.base_record_count + tail.record_count,
            tail.record_count,
            header.index_interval,
            *tail[2:],
        )

    @property
    def records_end_max(self) -> int:
        """No record may end after this byte."""
        return self.header.max_size

    def tail(self) -> Tail:
        """Return a consistent view of what has been appended."""
        offset, _, *rest = self.appender.state()
        return Tail(offset, *rest)

    def write_staged(self, scratch: memoryview) -> None:
        """Write the batch that the appender staged in `scratch`, its first mark last, and count it."""
        self.file.pwrite_head_last(scratch[: self.appender.staged_bytes], self.appender.offset)
        self.appender.count_staged()

    def sync_and_note(self, start: int, stop: int, note: File, data: bytes, *, durable: bool) -> None:
        """Sync, then write a checkpoint; `start` to `stop` is what was appended since the last time."""
        self._mapping.unload(start, stop)
        self.file.sync_and_note(note, data, durable=durable)

    def write_ext_id(self, ext_id: int) -> None:
        """Change the cohort of a segment that has no records yet."""
        self.header = self.header._replace(ext_id=ext_id)
        write_header(self.file, self.header)

    def seal(self, *, now_ns: int, coordinator_watermark: int, flush_failed: bool) -> tuple[SegmentFooter, int]:
        """End the segment for good; return its footer and its final size.  Durable on return.

        1. Appending stops.  2. Seal block and footer are written, but for the seal's mark.  3. The mark: live
        readers leave.  4. The file is trimmed and synced.  Cut points: docs/crash-safety.md, "seal".
        """
        self.appender.close()
        tail = self.tail()
        block = seal.encode(self._index(tail), self.header.index_interval, tail.record_count)
        footer = self._footer(tail, block, now_ns, coordinator_watermark, flush_failed=flush_failed)
        written = block[:4] + b"\0\0\0\0" + block[8:] + encode_footer(footer)
        self.file.pwrite(written, tail.offset)
        with self._mapping.view[tail.offset : tail.offset + 8] as head, head.cast("I") as words:
            words[1] = int.from_bytes(block[4:8], "little")
        size = tail.offset + len(written)
        self.file.truncate(size)
        self.file.sync()
        return footer, size

    def close(self) -> None:
        """Stop appending and let go of the file."""
        self.appender.release()
        self._mapping.close()
        self.file.close()

    def _index(self, tail: Tail) -> bytes:
        before = min(self._attached_count, tail.record_count)
        interval = self.header.index_interval
        front = index_records(self._mapping.view, HEADER_SIZE, tail.offset, before, interval, 0) if before else b""
        return front + self.appender.index()

    def _footer(
        self, tail: Tail, block: bytes, now_ns: int, coordinator_watermark: int, *, flush_failed: bool
    ) -> SegmentFooter:
        return SegmentFooter(
            flush_failure_flag=flush_failed,
            segment_index=self.header.segment_index,
            ext_id=self.header.ext_id,
            durable_bytes=tail.offset - HEADER_SIZE,
            record_count=tail.record_count,
            first_record_timestamp=tail.first_timestamp,
            last_record_timestamp=tail.last_timestamp,
            max_timestamp=tail.max_timestamp,
            coordinator_watermark=coordinator_watermark,
            min_ext_id=tail.min_ext_id,
            max_ext_id=tail.max_ext_id,
            index_offset=tail.offset,
            index_count=(len(block) - seal.HEAD_SIZE) // seal.ENTRY_SIZE,
            index_interval=self.header.index_interval,
            base_record_count=self.header.base_record_count,
            sealed_at=now_ns,
        )
