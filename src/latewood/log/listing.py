"""Every segment of a log with what its header and footer say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from latewood.errors import ManifestCorrupted, NotFoundError
from latewood.format.entries import SegmentEntry
from latewood.fs import FileSystem
from latewood.log.log import Log
from latewood.log.view import View
from latewood.segment import read_header, read_sealed_footer


class SegmentInfo(NamedTuple):
    """One segment of a log, seen from outside."""

    segment_id: int
    state: Literal["sealed", "open"]
    first_sequence: int
    record_count: int
    size_bytes: int
    """Of the file; of the open segment, as far as it is written."""
    created_at_ns: int
    sealed_at_ns: int | None
    first_timestamp_ns: int | None
    last_timestamp_ns: int | None
    """Of its records; None while it is open."""
    ext_id: int
    path: Path


def list_segments(log: Log) -> Iterator[SegmentInfo]:
    """Yield the segments of a log, the oldest first.

    Works beside a writer: what is retired meanwhile is left out, and what is sealed meanwhile is not.

    Raises:
        CorruptError: a header or footer is damaged, or a segment is missing.
    """
    view, last = log.view(), -1
    while True:
        for entry in _entries_after(view, last):
            last = entry.segment_id
            path = view.layout.absolute(entry.path)
            try:
                yield _sealed(view.fs, path, entry)
            except NotFoundError as error:
                if entry.start_sequence >= log.first_sequence:
                    raise ManifestCorrupted("the segment is missing", path, 0) from error
        opened = _open(view)  # This looks at the manifest again.
        if not any(True for _ in _entries_after(view, last)):
            yield opened
            return


def _entries_after(view: View, segment_id: int) -> Iterator[SegmentEntry]:
    entries = view.manifest.entries
    return (entries[index] for index in range(entries.index_after_segment(segment_id), len(entries)))


def _sealed(fs: FileSystem, path: Path, entry: SegmentEntry) -> SegmentInfo:
    file = fs.open(path)
    try:
        header, footer = read_header(file), read_sealed_footer(file, entry)
    finally:
        file.close()
    return SegmentInfo(
        segment_id=entry.segment_id,
        state="sealed",
        first_sequence=entry.start_sequence,
        record_count=footer.record_count,
        size_bytes=entry.size,
        created_at_ns=header.created_at,
        sealed_at_ns=footer.sealed_at,
        first_timestamp_ns=footer.first_record_timestamp,
        last_timestamp_ns=footer.last_record_timestamp,
        ext_id=header.ext_id,
        path=path,
    )


def _open(view: View) -> SegmentInfo:
    end = view.end()
    path = view.layout.absolute(view.manifest.active.path)
    file = view.fs.open(path)
    try:
        header = read_header(file)
    finally:
        file.close()
    return SegmentInfo(
        segment_id=header.segment_index,
        state="open",
        first_sequence=header.base_record_count,
        record_count=end.sequence - header.base_record_count,
        size_bytes=end.offset,
        created_at_ns=header.created_at,
        sealed_at_ns=None,
        first_timestamp_ns=None,
        last_timestamp_ns=None,
        ext_id=header.ext_id,
        path=path,
    )
