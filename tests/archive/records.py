"""Records to make chunks of, and what they are made with."""

import hashlib
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from latewood.archive.chunk import memory_schema
from latewood.archive.chunk_reader import ChunkReader, open_chunk
from latewood.archive.chunk_writer import Chunk, ChunkSite, Origin, write_chunks
from latewood.archive.keys import KeyRing
from latewood.archive.options import ChunkOptions
from latewood.fs import FileSystem
from latewood.testing import FakeClock, MemFS

DIRECTORY: Final = Path("lake/clicks/chunks")
START_NS: Final = 1_772_452_800_000_000_123
SECRETS: Final = {"new": bytes(range(32)), "old": bytes(32)}
KEYS: Final = KeyRing(SECRETS, "new")


def payload_of(sequence: int) -> bytes:
    """Different for every sequence, and of different lengths, 0 among them."""
    return hashlib.sha256(b"%d" % sequence).digest()[: sequence % 33] * (1 + sequence % 3)


def batch_of(start: int, stop: int, *, keyed: bool = False) -> Any:
    sequences = range(start, stop)
    columns = {
        "sequence": pa.array(sequences, pa.int64()),
        "timestamp": pa.array([START_NS + 1_001 * sequence for sequence in sequences], pa.timestamp("ns", tz="UTC")),
        "ext_id": pa.array([(1 << 64) - 1 - sequence for sequence in sequences], pa.uint64()),
        "key": pa.array([None if n % 5 == 0 else b"user-%d" % (n % 7) for n in sequences], pa.binary()),
        "payload": pa.array([payload_of(sequence) for sequence in sequences], pa.binary()),
    }
    schema = memory_schema(keyed=keyed)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def batches_of(start: int, stop: int, step: int = 100, *, keyed: bool = False) -> list[Any]:
    return [batch_of(at, min(at + step, stop), keyed=keyed) for at in range(start, stop, step)]


class Yard:
    """A disk, and a site on it whose tokens count up from 1."""

    def __init__(self, fs: FileSystem | None = None, directory: Path = DIRECTORY, **changes: Any) -> None:
        self.fs = fs or MemFS()
        numbers = count(1)
        fields = {
            "fs": self.fs,
            "directory": directory,
            "database": "clicks",
            "database_id": 7,
            "shard": 3,
            "options": ChunkOptions(row_group_rows=250),
            "clock": FakeClock(),
            "random_bytes": lambda length: next(numbers).to_bytes(length, "big"),
            **changes,
        }
        self.site = ChunkSite(**fields)

    def write(self, batches: Sequence[Any], origin: Origin | None = None) -> list[Chunk]:
        return list(write_chunks(self.site, iter(batches), origin or Origin()))

    def one(self, start: int = 0, stop: int = 1000, *, keyed: bool = False) -> Chunk:
        (chunk,) = self.write(batches_of(start, stop, keyed=keyed))
        return chunk

    def open(self, chunk: Chunk) -> ChunkReader:
        return open_chunk(self.fs, chunk.path, self.site.keys)

    def raw(self, path: Path) -> bytes:
        file = self.fs.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def names(self) -> list[str]:
        return self.fs.list(self.site.directory)


def table_of(batches: Any) -> Any:
    batches = list(batches)
    return pa.Table.from_batches(batches, schema=batches[0].schema)
