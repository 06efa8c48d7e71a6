"""An ext_id is an unsigned 64-bit number, and the same number wherever it is read, in whichever tier."""

from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latewood.errors import UsageError
from latewood.runtime import Store
from tests.cli.shell import ok, rows
from tests.runtime.pond import Pond, pond

EDGES: Final = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
"""From none to the largest; the middle ones differ in what a signed number makes of them."""


def fill(lake: Pond) -> None:
    for number, ext_id in enumerate(EDGES):
        lake.append(b"record %d" % number, key=b"same", ext_id=ext_id)


def seen(lake: Pond) -> list[int]:
    return [record.ext_id for record in lake.db.scan()]


def test_every_tier_shows_the_same_number(home: Path) -> None:
    with pond(home, shards=1) as lake:
        fill(lake)
        for kind in (None, "flush", "checkpoint", "archive", "evict", "hydrate", "compact", "verify"):
            if kind is not None:
                lake.run(kind)
            assert seen(lake) == EDGES
            column = lake.db.to_arrow(columns=["ext_id"])["ext_id"]
            assert (column.type, column.to_pylist()) == (pa.uint64(), EDGES)
        (record,) = lake.live()
        assert (record.ext_id_min, record.ext_id_max) == (EDGES[0], EDGES[-1])


def test_others_read_the_same_number_from_a_chunk(home: Path) -> None:
    with pond(home, shards=1) as lake:
        fill(lake)
        lake.run("flush")
        (path,) = lake.files()
        table = pq.read_table(path, columns=["ext_id"])
        assert (table.schema.field("ext_id").type, table["ext_id"].to_pylist()) == (pa.uint64(), EDGES)
        found = duckdb.execute(
            "SELECT ext_id, typeof(ext_id) FROM read_parquet(?) ORDER BY sequence", [str(path)]
        ).fetchall()
        assert found == [(ext_id, "UBIGINT") for ext_id in EDGES]
        statistics = pq.ParquetFile(path).metadata.row_group(0).column(3).statistics
        assert (statistics.min, statistics.max) == (EDGES[0], EDGES[-1])


def test_the_command_line_takes_and_prints_the_same_number(tmp_path: Path) -> None:
    ok("db", "create", tmp_path / "lake", "clicks")
    for ext_id in EDGES:
        ok("append", tmp_path / "lake/clicks", "--ext-id", str(ext_id), "--quiet", stdin="line\n")
    printed = ok("cat", tmp_path / "lake/clicks", "--format", "jsonl")
    ok("db", "create", tmp_path / "lake", "copy")
    ok("append", tmp_path / "lake/copy", "--json", "--quiet", stdin=printed)
    for name in ("clicks", "copy"):
        assert [one["ext_id"] for one in rows("cat", tmp_path / "lake" / name)] == EDGES


@pytest.mark.parametrize("ext_id", [-1, 1 << 64])
def test_what_is_no_such_number_is_refused(tmp_path: Path, ext_id: int) -> None:
    with Store.open(tmp_path / "lake") as store:
        db = store.create_database("clicks")
        with pytest.raises(UsageError, match="ext_id"):
            db.append(b"payload", ext_id=ext_id)
        assert list(db.scan()) == []
