"""One segment file: written, sealed, read."""

from latewood.segment.reader import Columns, SegmentReader
from latewood.segment.sealed import map_to_read, read_footer, read_header, read_seal_at
from latewood.segment.writer import SegmentWriter, Tail, empty_tail, file_bytes, prepare, write_header

__all__ = [
    "Columns",
    "SegmentReader",
    "SegmentWriter",
    "Tail",
    "empty_tail",
    "file_bytes",
    "map_to_read",
    "prepare",
    "read_footer",
    "read_header",
    "read_seal_at",
    "write_header",
]
