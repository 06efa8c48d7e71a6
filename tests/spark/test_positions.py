"""The named reader of a streaming query, without Spark."""

import shutil
from pathlib import Path

import pytest

import latewood
from latewood.spark.offsets import ShardId
from latewood.spark.positions import LogPosition

SHARD = ShardId("", 0)


def test_a_query_does_not_begin_where_its_reader_stood_in_another_log(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with latewood.open(tmp_path / name) as log:
            log.append_many([b"x"] * 10)
    old, new = LogPosition(str(tmp_path / "old"), "etl"), LogPosition(str(tmp_path / "new"), "etl")
    old.move({SHARD: 7})
    assert old.stored() == {SHARD: 7}
    assert new.stored() == {}
    shutil.copytree(tmp_path / "old" / "readers", tmp_path / "new" / "readers")
    with pytest.raises(latewood.AnotherLog, match="the position is of the log"):
        new.stored()
    old.close()
    new.close()
