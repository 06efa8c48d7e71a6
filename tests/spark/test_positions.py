"""Where a streaming query stands, as a named reader of a database.  Without Spark."""

from pathlib import Path

import pytest

import latewood
from latewood.errors import DirectoryReplaced
from latewood.spark.offsets import ShardId, StoredOffsets
from latewood.spark.positions import DatabasePositions

SHARD = ShardId("clicks", 0)


def test_no_position_is_stored_in_a_database_that_took_the_place_of_another(tmp_path: Path) -> None:
    with latewood.Store.open(tmp_path / "lake") as store:
        store.create_database("clicks")
    (root,) = (tmp_path / "lake" / "databases").iterdir()
    positions = DatabasePositions(root / "readers", "etl", [SHARD])
    try:
        positions.move(StoredOffsets({SHARD: 0}, {}))
        root.rename(tmp_path / "elsewhere")
        root.mkdir()
        with pytest.raises(DirectoryReplaced):
            positions.move(StoredOffsets({SHARD: 5}, {}))
    finally:
        positions.close()
    assert [*root.iterdir()] == []
