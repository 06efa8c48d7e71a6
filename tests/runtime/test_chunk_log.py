"""A chunk of another log is refused, whatever it is called."""

import shutil
from pathlib import Path

import pytest

from latewood.errors import AnotherLog
from latewood.runtime import Store
from latewood.runtime.remake import remake_catalog

COUNT = 20


def fill(root: Path, word: str, count: int = COUNT) -> Path:
    """Make a store whose records are in one chunk alone; return the chunk."""
    with Store.open(root) as store:
        clicks = store.create_database("clicks", keyed=False)
        clicks.append_many([f"{word} {number}".encode() for number in range(count)], durable=True)
        store.run_job("flush", "clicks", seal=True)
        store.run_job("checkpoint", "clicks")
    (chunk,) = root.glob("databases/*/chunks/*.parquet")
    return chunk


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A store with a chunk that came from another one, under the name of its own."""
    own, other = fill(tmp_path / "lake", "ours"), fill(tmp_path / "other", "theirs")
    shutil.copyfile(other, own)
    return tmp_path / "lake"


def test_a_chunk_that_was_copied_from_another_store_is_refused_by_a_scan(mixed: Path) -> None:
    with Store.open(mixed) as store, pytest.raises(AnotherLog, match="copied from another database"):
        list(store.database("clicks").scan())


def test_a_chunk_that_was_copied_from_another_store_is_refused_by_a_search_for_a_time(mixed: Path) -> None:
    with Store.open(mixed) as store, pytest.raises(AnotherLog):
        store.database("clicks").shards[0].find_timestamp(1)


def test_a_chunk_that_was_copied_from_another_store_does_not_count_when_the_catalog_is_made_again(
    tmp_path: Path,
) -> None:
    """Under its own name, beside those of the shard, and longer than they are: it counted in their place."""
    own, other = fill(tmp_path / "lake", "ours"), fill(tmp_path / "other", "theirs", 2 * COUNT)
    shutil.copyfile(other, own.with_name(other.name))
    with Store.open(tmp_path / "lake") as store:
        store.database("clicks").append(b"ours, later", durable=True)
    remade = remake_catalog(tmp_path / "lake")
    (report,) = remade.databases
    assert report.problems == [f"{other.name} is of another log, and does not count"]
    with Store.open(tmp_path / "lake") as store:
        records = [record.payload for record in store.database("clicks").scan()]
    assert records == [b"ours %d" % number for number in range(COUNT)] + [b"ours, later"]


def test_a_fork_reads_the_chunks_that_it_shares(tmp_path: Path) -> None:
    fill(tmp_path / "lake", "ours")
    with Store.open(tmp_path / "lake") as store:
        fork = store.fork("clicks", "copy")
        fork.append_many([b"of the fork"] * 3, durable=True)
        for kind, payload in (("flush", {"seal": True}), ("checkpoint", {}), ("compact", {"eager": True})):
            store.run_job(kind, "copy", **payload)
        records = [record.payload for record in fork.scan()]
    assert records == [b"ours %d" % number for number in range(COUNT)] + [b"of the fork"] * 3
