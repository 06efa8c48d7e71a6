"""What one segment file says about itself, whatever its state: for `inspect`, `verify` and `rebuild`."""

from pathlib import Path
from typing import NamedTuple

from latewood.errors import CorruptError
from latewood.format import seal
from latewood.format.segment import HEADER_SIZE, SegmentFooter, SegmentHeader
from latewood.fs import File, FileSystem
from latewood.kernel import BAD, END, SEALED, verify
from latewood.segment import map_to_read, read_footer, read_header, read_seal_at


class SegmentSummary(NamedTuple):
    """One segment file, looked at by itself."""

    path: Path
    size: int
    header: SegmentHeader | None
    footer: SegmentFooter | None
    record_count: int
    """By the footer; of an open segment, or in a deep look, as counted up to the first that is not sound."""
    problem: str | None
    problem_offset: int
    records_end: int = 0
    """Where those records end."""


def summarize(fs: FileSystem, path: Path, *, deep: bool = False) -> SegmentSummary:
    """Look at a segment's header and footer; with `deep`, or if it is open, at every record too.

    Raises:
        NotFoundError: there is no such file.
        UnsupportedVersion: a later program wrote it.
    """
    file = fs.open(path)
    try:
        return _summarize(file, deep=deep)
    finally:
        file.close()


def _summarize(file: File, *, deep: bool) -> SegmentSummary:
    size = file.size()
    header = footer = None
    try:
        header = read_header(file)
        footer = _footer_of(file)
        if footer and not deep:
            return SegmentSummary(file.path, size, header, footer, footer.record_count, None, 0, footer.index_offset)
        count, end, problem = _count_records(file, header, footer)
    except CorruptError as error:
        return SegmentSummary(file.path, size, header, footer, 0, error.reason, error.offset)
    offset = problem.offset if problem else 0
    return SegmentSummary(file.path, size, header, footer, count, problem.reason if problem else None, offset, end)


def _footer_of(file: File) -> SegmentFooter | None:
    """Return the footer; None if the segment is open.  A cut file has a header's size and no seal: see below."""
    try:
        return read_footer(file)
    except CorruptError:
        return None


def _count_records(
    file: File, header: SegmentHeader, footer: SegmentFooter | None
) -> tuple[int, int, CorruptError | None]:
    """Check every record, and the seal; return how many sound ones there are, where they end, and what is wrong."""
    mapping = map_to_read(file)
    try:
        limit = footer.index_offset + seal.HEAD_SIZE if footer else len(mapping.view)
        count, end, state, *_ = verify(mapping.view, HEADER_SIZE, limit)
    finally:
        mapping.close()
    problem = None
    if state == SEALED:
        problem = _seal_problem(file, header, count, end)
    elif footer or state in (BAD, END):
        problem = CorruptError("a record does not match its checksum", file.path, end)
    return count, end, problem


def _seal_problem(file: File, header: SegmentHeader, count: int, end: int) -> CorruptError | None:
    try:
        found, _ = read_seal_at(file, end)
    except CorruptError as error:
        return error
    if found.record_count != count or found.base_record_count != header.base_record_count:
        return CorruptError("the footer does not agree with the records", file.path, end)
    return None
