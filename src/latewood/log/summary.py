"""What one segment file says about itself, whatever its state: for `inspect`, `verify` and `rebuild`."""

from pathlib import Path
from typing import NamedTuple

from latewood.errors import CorruptError, UnsupportedVersion
from latewood.format import seal
from latewood.format.segment import HEADER_SIZE, SegmentFooter, SegmentHeader
from latewood.fs import File, FileSystem
from latewood.kernel import BAD, END, SEALED, verify
from latewood.segment import read_footer, read_header, read_seal_at


class SegmentSummary(NamedTuple):
    """One segment file, looked at by itself."""

    path: Path
    size: int
    header: SegmentHeader | None
    footer: SegmentFooter | None
    record_count: int
    """By the footer; of an open segment, or in a deep look, as counted."""
    problem: str | None
    problem_offset: int
    records_end: int = 0
    """Where the records end, if they are sound."""

    @property
    def is_sealed(self) -> bool:
        """Whether it has a sound footer."""
        return self.footer is not None


def summarize(fs: FileSystem, path: Path, *, deep: bool = False) -> SegmentSummary:
    """Look at a segment's header and footer; with `deep`, or if it is open, at every record too.

    Raises:
        NotFoundError: there is no such file.
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
        counted = (
            (footer.record_count, footer.index_offset) if footer and not deep else _count_records(file, header, footer)
        )
    except CorruptError as error:
        return SegmentSummary(file.path, size, header, footer, 0, error.reason, error.offset)
    except UnsupportedVersion as error:
        return SegmentSummary(file.path, size, header, footer, 0, str(error), 0)
    return SegmentSummary(file.path, size, header, footer, counted[0], None, 0, counted[1])


def _footer_of(file: File) -> SegmentFooter | None:
    """Return the footer; None if the segment is open.  A cut file has a header's size and no seal: see below."""
    try:
        return read_footer(file)
    except CorruptError:
        return None


def _count_records(file: File, header: SegmentHeader, footer: SegmentFooter | None) -> tuple[int, int]:
    """Check every record, and the seal; return how many records there are, and where they end.

    Raises:
        CorruptError: a record or the seal is damaged.
    """
    mapping = file.map(file.size(), writable=False)
    try:
        limit = footer.index_offset + seal.HEAD_SIZE if footer else file.size()
        count, end, state, *_ = verify(mapping.view, HEADER_SIZE, limit)
    finally:
        mapping.close()
    if state == SEALED:
        found, _ = read_seal_at(file, end)
        if found.record_count != count or found.base_record_count != header.base_record_count:
            raise CorruptError("the footer does not agree with the records", file.path, end)
    elif footer or state in (BAD, END):
        raise CorruptError("a record does not match its checksum", file.path, end)
    return count, end
