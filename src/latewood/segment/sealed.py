"""Find and check the seal of a segment, whether or not its file was already trimmed."""

from latewood.errors import CorruptError
from latewood.format import seal
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
