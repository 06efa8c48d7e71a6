"""One segment file: written, sealed, read."""

from latewood.segment.reader import EVERYTHING, Columns, SegmentReader, Selection
from latewood.segment.sealed import check_seal, map_to_read, read_footer, read_header, read_seal_at, read_sealed_footer
from latewood.segment.writer import SegmentWriter, Tail, empty_tail, file_bytes, prepare, write_header

__all__ = [
    "EVERYTHING",
    "Columns",
    "SegmentReader",
    "SegmentWriter",
    "Selection",
    "Tail",
    "check_seal",
    "empty_tail",
    "file_bytes",
    "map_to_read",
    "prepare",
    "read_footer",
    "read_header",
    "read_seal_at",
    "read_sealed_footer",
    "write_header",
]
