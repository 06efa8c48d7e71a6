"""Find and check the seal of a segment, whether or not its file was already trimmed."""

from pathlib import Path

from latewood.errors import CorruptError
from latewood.format import seal
from latewood.format.entries import SegmentEntry
from latewood.format.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    decode_footer,
    decode_header,
)
from latewood.fs import File, Mapping


def map_to_read(file: File) -> Mapping:
    """Map a whole segment, which its writer may be trimming."""
    try:
        return file.map(file.size(), writable=False)
    except ValueError:  # Trimmed between these two calls, which happens once in its life.
        return file.map(file.size(), writable=False)


def read_header(file: File) -> SegmentHeader:
    """Return a segment's header.

    Raises:
        CorruptError: there is no sound one.
    """
    return decode_header(file.pread(HEADER_SIZE, 0), file.path)


def read_footer(file: File) -> SegmentFooter:
    """Return the footer at the end of a trimmed segment.

    Raises:
        CorruptError: there is no sound one, or it does not fit the file.
    """
    size = file.size()
    at = size - FOOTER_SIZE
    if at < HEADER_SIZE:
        raise CorruptError("the segment is cut short", file.path, size)
    footer = decode_footer(file.pread(FOOTER_SIZE, at), file.path, at)
    end = footer.index_offset + seal.HEAD_SIZE + footer.index_count * seal.ENTRY_SIZE
    if end != at:
        raise CorruptError("the footer does not fit the size of the file", file.path, at)
    return footer


def check_seal(footer: SegmentFooter, entry: SegmentEntry, path: Path) -> None:
    """Do nothing if a footer is that of the segment which the log sealed, as the manifest's entry has it.

    Raises:
        CorruptError: another file is in the segment's place.
    """
    count = entry.end_sequence - entry.start_sequence + 1
    if (footer.base_record_count, footer.record_count) != (entry.start_sequence, count):
        raise CorruptError("footer and manifest do not agree", path, footer.index_offset)
    if entry.seal_checksum not in (0, footer.checksum):
        error = CorruptError(
            "this file is not the segment that the log sealed: it is of another log, or of another copy of this one",
            path,
            footer.index_offset,
        )
        error.mend = (
            "restore the right file from a copy of this log; or move this one out of the log, and `latewood rebuild "
            "--accept-loss DIR` goes on without its records"
        )
        raise error


def read_sealed_footer(file: File, entry: SegmentEntry) -> SegmentFooter:
    """Return the footer of a segment that the manifest lists.

    Raises:
        CorruptError: there is no sound one, or it is not that of the segment which the log sealed.
    """
    footer = read_footer(file)
    check_seal(footer, entry, file.path)
    return footer


def read_seal_at(file: File, offset: int) -> tuple[SegmentFooter, int]:
    """Return the footer behind a seal block at `offset`, and where the footer ends.

    Raises:
        CorruptError: seal block or footer is not whole: the seal was never completed.
    """
    head = seal.decode_head(file.pread(seal.HEAD_SIZE, offset), file.path, offset)
    length = seal.HEAD_SIZE + head.entry_count * seal.ENTRY_SIZE
    if length + FOOTER_SIZE > file.size() - offset:
        raise CorruptError("the seal does not fit the file", file.path, offset)
    seal.check(file.pread(length, offset), file.path, offset)
    end = offset + length
    footer = decode_footer(file.pread(FOOTER_SIZE, end), file.path, end)
    if footer.index_offset != offset:
        raise CorruptError("the footer belongs to another seal", file.path, end)
    return footer, end + FOOTER_SIZE
