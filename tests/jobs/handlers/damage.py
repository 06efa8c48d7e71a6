"""Bits that flip, in files and in objects."""

from pathlib import Path

from latewood.archive.source import BytesSource, Digest
from latewood.jobs.handlers.chunks import Row, object_of
from latewood.kernel import crc32c
from tests.jobs.handlers.lake import DB, Lake


def break_file(lake: Lake, row: Row) -> None:
    """Flip a bit in the middle of a chunk's file."""
    file = lake.fs.open(lake.database(DB).chunk_path(row.record), write=True)
    middle = row.record.size_bytes // 2
    file.pwrite(bytes([file.pread(1, middle)[0] ^ 1]), middle)
    file.close()


def remove_file(lake: Lake, row: Row) -> None:
    lake.fs.remove(lake.database(DB).chunk_path(row.record))


def break_object(lake: Lake, row: Row) -> None:
    """Flip a bit in the middle of a chunk's object."""
    named = object_of(row.record)
    assert named
    size = row.record.size_bytes
    data = bytearray(lake.tier.get(named.key, 0, size))
    data[size // 2] ^= 1
    lake.tier.delete(named.key)
    lake.tier.put(named.key, BytesSource(bytes(data), Path(named.key)), Digest(size, crc32c(data)))
