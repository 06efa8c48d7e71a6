"""Memory stays flat, however much passes through."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from latewood.archive.chunk import memory_schema
from latewood.archive.chunk_reader import open_chunk
from latewood.archive.compact import compact_chunks
from latewood.archive.directory import DirectoryTier
from latewood.archive.options import ChunkOptions
from latewood.archive.transfer import hydrate, upload
from latewood.fs import PosixFS
from tests.archive.records import KEYS, Yard

MiB: Final = 1024 * 1024
ROWS: Final = 1024
BATCHES: Final = 96
BOUND: Final = 40 * MiB
"""A row group of 4 MiB in its several forms, and pieces of 8 MiB; far below the 96 MiB that pass through."""


class Watch:
    """The most that Arrow and Python held at any look."""

    def __init__(self) -> None:
        self.start, self.peak = pa.total_allocated_bytes(), 0
        tracemalloc.start()

    def look(self) -> None:
        held = pa.total_allocated_bytes() - self.start + tracemalloc.get_traced_memory()[1]
        self.peak = max(self.peak, held)
        tracemalloc.reset_peak()

    def stop(self) -> None:
        self.look()
        tracemalloc.stop()


def large_batches(watch: Watch) -> Iterator[Any]:
    """1 MiB each, that hardly compresses."""
    schema = memory_schema(keyed=False)
    for number in range(BATCHES):
        watch.look()
        first, source = number * ROWS, Random(number)
        arrays = [
            pa.arange(first, first + ROWS),
            pa.array(range(first, first + ROWS), pa.int64()).view(schema.field("timestamp").type),
            pa.array([0] * ROWS, pa.uint64()),
            pa.array([source.randbytes(1024) for _ in range(ROWS)], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_memory_stays_flat_all_the_way(tmp_path: Path, keys: Any) -> None:
    options = ChunkOptions(row_group_bytes=4 * MiB, chunk_bytes=1024 * MiB)
    yard = Yard(PosixFS(), tmp_path / "chunks", options=options, keys=keys)
    watch = Watch()
    (chunk,) = yard.write(large_batches(watch))  # type: ignore[arg-type]  # any iterable will do
    assert chunk.digest.size > 90 * MiB
    with open_chunk(yard.fs, chunk.path, keys) as reader:
        for _ in reader.batches():
            watch.look()
        (again,) = compact_chunks(yard.site, [reader])
    watch.look()
    tier = DirectoryTier(yard.fs, tmp_path / "tier")
    upload(yard.fs, chunk.path, tier, "one.parquet", chunk.digest)
    watch.look()
    hydrate(tier, "one.parquet", yard.fs, tmp_path / "back" / "one.parquet", chunk.digest)
    watch.stop()
    assert again.meta.checksum == chunk.meta.checksum
    assert watch.peak < BOUND


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("latewood", {"pyarrow", "obstore", "cryptography"}),
        ("latewood.archive.names", {"pyarrow", "obstore", "cryptography"}),
        ("latewood.archive.transfer", {"pyarrow", "obstore", "cryptography"}),
        ("latewood.archive.opening", {"pyarrow", "obstore", "cryptography"}),
        ("latewood.archive.object_store", {"pyarrow", "cryptography"}),
        ("latewood.archive.chunk_reader", {"obstore"}),
    ],
)
def test_nothing_heavy_comes_along(module: str, unwanted: set[str]) -> None:
    script = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not set(result.stdout.split()) & unwanted
