"""Cohorts of a shard's segments: chunks have them, and so does the catalog, also one that was made again."""

from pathlib import Path

from latewood.catalog import Catalog
from latewood.format.store_layout import StoreLayout
from latewood.runtime import Store
from latewood.runtime.remake import remake_catalog


def cohorts_of(root: Path) -> list[tuple[tuple[int, int], ...]]:
    with Catalog.open(StoreLayout(root).catalog, mode="r") as catalog:
        return [record.cohorts for _, record in catalog.scan_chunks(1) if record.is_live]


def test_cohorts_of_segments_are_those_of_chunks_and_rows_through_every_tier(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Store.open(lake) as store:
        clicks = store.create_database("clicks", keyed=False)
        for cohort in (5, 7):
            clicks.shards[0].log.set_ext_id(cohort)
            clicks.append_many([b"x"] * 3, durable=True)
            store.run_job("flush", "clicks", seal=True)
        store.run_job("checkpoint", "clicks")
    assert cohorts_of(lake) == [((0, 5),), ((3, 7),)]
    with Store.open(lake) as store:
        store.run_job("compact", "clicks", eager=True)
    assert cohorts_of(lake) == [((0, 5), (3, 7))]
    remake_catalog(lake)
    assert cohorts_of(lake) == [((0, 5), (3, 7))]
