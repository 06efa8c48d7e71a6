"""Chunks are plain Parquet: those who have never heard of Latewood read them, and lose nothing."""

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from latewood.archive.chunk_writer import Chunk
from latewood.fs import PosixFS
from tests.archive.records import START_NS, Yard, payload_of


@pytest.fixture
def chunk(tmp_path: Path) -> Chunk:
    return Yard(PosixFS(), tmp_path).one(0, 1000, keyed=True)


def test_pyarrow_reads_every_value(chunk: Chunk) -> None:
    table = pq.read_table(chunk.path)
    assert table.schema.names == ["sequence", "timestamp", "timestamp_rest_ns", "ext_id", "key", "payload"]
    assert table["sequence"].to_pylist() == list(range(1000))
    assert table["payload"].to_pylist() == [payload_of(number) for number in range(1000)]
    assert table["ext_id"][7].as_py() == (1 << 64) - 8
    assert table["key"].null_count == 200
    microseconds = table["timestamp"].cast("int64").to_pylist()
    rest = table["timestamp_rest_ns"].to_pylist()
    found = [1000 * micro + nano for micro, nano in zip(microseconds, rest, strict=True)]
    assert found == [START_NS + 1001 * number for number in range(1000)]


def test_duckdb_reads_every_value(chunk: Chunk) -> None:
    query = """
        select sequence, epoch_us(timestamp)::hugeint * 1000 + timestamp_rest_ns, ext_id, key, payload
        from read_parquet(?) order by sequence
    """
    rows = duckdb.execute(query, [str(chunk.path)]).fetchall()
    assert rows[7] == (7, START_NS + 7007, (1 << 64) - 8, b"user-0", payload_of(7))
    assert [row[4] for row in rows] == [payload_of(number) for number in range(1000)]
    assert [row[1] for row in rows] == [START_NS + 1001 * number for number in range(1000)]


def test_duckdb_sees_the_description_and_the_statistics(chunk: Chunk) -> None:
    pairs = duckdb.execute("select key, value from parquet_kv_metadata(?)", [str(chunk.path)]).fetchall()
    assert (b"latewood.version", b"1") in pairs
    query = "select stats_min, stats_max from parquet_metadata(?) where path_in_schema = 'sequence'"
    ranges = duckdb.execute(query, [str(chunk.path)]).fetchall()
    assert ranges == [("0", "299"), ("300", "599"), ("600", "899"), ("900", "999")]


def test_no_payload_stands_in_the_statistics(chunk: Chunk) -> None:
    layout = pq.ParquetFile(chunk.path).metadata
    for number in range(layout.num_columns):
        column = layout.row_group(0).column(number)
        assert column.is_stats_set == (column.path_in_schema in {"sequence", "timestamp", "ext_id"})
        assert column.compression == "ZSTD"
    assert layout.row_group(0).sorting_columns[0].column_index == 0
