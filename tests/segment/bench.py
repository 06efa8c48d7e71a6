"""One segment on a disk in memory, written and read without a log around it."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from latewood.format.entries import SegmentEntry
from latewood.format.segment import SegmentFooter, SegmentHeader
from latewood.fs import FileSystem
from latewood.segment import SegmentReader, SegmentWriter, Tail, empty_tail, file_bytes, prepare, write_header

PATH = Path("segment.q")
UNBOUNDED = 1 << 62


class Line(NamedTuple):
    """What goes into one record."""

    payload: bytes
    timestamp_ns: int = 1
    ext_id: int = 0


def header(**fields: int) -> SegmentHeader:
    usual = {
        "segment_index": 3,
        "base_offset": 1_000,
        "base_record_count": 100,
        "max_size": 4096,
        "flags": 0,
        "created_at": 50,
        "ext_id": 0,
        "index_interval": 4,
    }
    return SegmentHeader(**(usual | fields))


def begin(fs: FileSystem, tail: Tail | None = None, **fields: int) -> SegmentWriter:
    """A new segment, open for appends up to its maximal size."""
    made = header(**fields)
    file = prepare(fs, PATH, file_bytes(made.max_size, made.index_interval))
    write_header(file, made)
    return opened(SegmentWriter(file, made, tail or empty_tail(0), None))


def reattached(fs: FileSystem, before: SegmentWriter) -> SegmentWriter:
    """The same open segment, as it is after the log was closed and opened again."""
    head, tail = before.header, before.tail()
    before.close()
    return opened(SegmentWriter(fs.open(PATH, write=True), head, tail, None))


def opened(writer: SegmentWriter) -> SegmentWriter:
    writer.appender.allow(writer.records_end_max, writer.records_end_max, UNBOUNDED)
    return writer


def append(writer: SegmentWriter, lines: Iterable[Line]) -> None:
    for line in lines:
        assert writer.appender.append(line.payload, line.ext_id, line.timestamp_ns) >= 0


def seal(
    writer: SegmentWriter, *, now_ns: int = 90, watermark: int = 0, flush_failed: bool = False
) -> tuple[SegmentFooter, int]:
    sealed = writer.seal(now_ns=now_ns, coordinator_watermark=watermark, flush_failed=flush_failed)
    writer.close()
    return sealed


def entry_of(footer: SegmentFooter, size: int) -> SegmentEntry:
    first = footer.base_record_count
    return SegmentEntry(first, first + footer.record_count - 1, size, footer.ext_id, footer.checksum, PATH.as_posix())


def sealed_reader(fs: FileSystem, lines: Iterable[Line], tail: Tail | None = None, **fields: int) -> SegmentReader:
    """A reader of a sealed segment with these records."""
    writer = begin(fs, tail, **fields)
    append(writer, lines)
    return SegmentReader(fs, PATH, entry_of(*seal(writer)))


def payloads(reader: SegmentReader) -> list[bytes]:
    """Every record, read until there is none: a damaged one is told of when it comes first."""
    found: list[bytes] = []
    offset = reader.offset_of(reader.base_sequence)
    while True:
        records, offset, _ = reader.read(offset, reader.base_sequence + len(found), UNBOUNDED, UNBOUNDED)
        if not records:
            return found
        found += [record.payload for record in records]


def raw(fs: FileSystem) -> bytes:
    file = fs.open(PATH)
    data = file.pread(file.size(), 0)
    file.close()
    return data


def overwrite(fs: FileSystem, data: bytes, offset: int) -> None:
    file = fs.open(PATH, write=True)
    file.pwrite(data, offset)
    file.close()
