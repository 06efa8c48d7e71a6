"""Chunks of every version stay readable.  The files are never edited; `chunk_page.example_chunk` made them.

Those in `v1` name no log, those in `v1-log` do.
"""

from pathlib import Path
from typing import Final

import pytest

from latewood.archive.chunk_reader import ChunkReader
from latewood.archive.source import BytesSource
from tests.archive.chunk_page import example_keys

GOLDEN: Final = Path(__file__).with_name("golden")


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("v*/*.parquet*")), ids=lambda path: f"{path.parent.name}-{path.suffix}"
)
def test_a_chunk_of_an_older_version_is_read(path: Path) -> None:
    with ChunkReader(BytesSource(path.read_bytes(), path), example_keys()) as reader:
        meta = reader.verify()
        assert (meta.mark is not None) == (path.parent.name == "v1-log")
        rows = [tuple(row.values()) for batch in reader.batches(columns=["sequence", "ext_id", "payload"])
                for row in batch.to_pylist()]  # fmt: skip
    assert rows == [(0, 7, b"oak"), (1, 0, b""), (2, 9, b"birch")]


def test_there_are_golden_chunks() -> None:
    for version in ("v1", "v1-log"):
        assert {path.suffix for path in GOLDEN.glob(f"{version}/*")} == {".parquet", ".enc"}
