"""Readers, and what they hold back, while records move from tier to tier."""

from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.runtime.pond import Pond, pond

MOVES = (
    ("flush", "checkpoint"),
    ("flush", "checkpoint", "compact", "retain"),
    ("flush", "archive", "checkpoint", "evict"),
    ("flush", "archive", "checkpoint", "evict", "compact", "archive", "retain", "evict"),
)


def everything(lake: Pond) -> set[tuple[int, int]]:
    return {(shard, sequence) for shard, kept in lake.model.items() for sequence in range(len(kept))}


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("merged", [False, True])
def test_an_open_reader_goes_on_from_wherever_the_records_are(
    home: Path, moves: tuple[str, ...], *, merged: bool
) -> None:
    with pond(home) as lake:
        lake.fill(60)
        with lake.db.reader("billing", merged=merged) as reader:
            found = reader.poll(7)
            for kind in moves:
                lake.run(kind)
                found += reader.poll(7)
            lake.fill(9)
            found += list(reader)
            lake.fill(9)
            found += list(reader)
        places = [record[:2] for record in found]
        assert len(places) == len(set(places))
        assert set(places) == everything(lake)
        assert all(record[2:] == lake.model[record.shard][record.sequence] for record in found)
        for shard in lake.model:
            assert [one for at, one in places if at == shard] == list(range(len(lake.model[shard])))


@pytest.mark.parametrize("moves", MOVES)
def test_a_committed_position_outlives_its_place_in_the_log(home: Path, moves: tuple[str, ...]) -> None:
    with pond(home) as lake:
        lake.fill(60)
        with lake.db.reader("billing") as reader:
            found = reader.poll(25)
            reader.commit()
            reader.poll(10)
            reader.seek("earliest")
        for kind in moves:
            lake.run(kind)
        lake.fill(9)
        lake.reopen()
        with lake.db.reader("billing") as reader:
            assert reader.lag() == len(everything(lake)) - 25
            found += list(reader)
            reader.commit()
            assert reader.lag() == 0
        assert sorted(record[:2] for record in found) == sorted(everything(lake))


def test_what_a_reader_wants_is_not_retained_away(home: Path) -> None:
    with pond(home, shards=1, retention_max_age_ms=10_000) as lake:
        for _ in range(3):
            lake.fill(30)
            lake.run("flush")
        lake.run("checkpoint")
        lake.run("archive")
        lake.clock.advance(seconds=100)
        with lake.db.reader("billing") as reader:
            reader.poll(35)
            reader.commit()
        lake.run("retain")
        lake.learn_floors()
        assert lake.floors == {0: 30}, "only what it has passed goes, in whole chunks"
        lake.check()
        with lake.db.reader("billing") as reader:
            assert [record.sequence for record in reader] == list(range(35, 90))
            reader.commit()
        lake.run("retain")
        lake.learn_floors()
        assert lake.floors == {0: 90}
        lake.check()
        lake.check_no_orphans()


def test_a_damaged_position_stops_retention(home: Path) -> None:
    with pond(home, shards=1, retention_max_age_ms=10_000) as lake:
        lake.fill(30)
        lake.run("flush")
        lake.run("checkpoint")
        with lake.db.reader("billing") as reader:
            reader.poll()
            reader.commit()
        path = lake.store.layout.located(lake.db.record.options.wal_dir).cursor("billing", 0)
        raw = bytearray(path.read_bytes())
        path.write_bytes(bytes(byte ^ 0xFF for byte in raw))
        lake.clock.advance(seconds=100)
        job_id = lake.enqueue("retain")
        lake.settle()
        assert type(lake.store.jobs.get(job_id).state).__name__ == "FailedPermanent"
        lake.check()


def test_too_many_bytes_go_from_the_oldest_on(home: Path) -> None:
    with pond(home, retention_max_bytes=10_000) as lake:
        for _ in range(4):
            lake.fill(30)
            lake.run("flush")
            lake.run("checkpoint")
            lake.run("retain")
            lake.learn_floors()
            lake.check()
            assert sum(record.size_bytes for record in lake.live()) <= 10_000
        assert any(lake.floors.values())
        lake.check_no_orphans()


def test_others_read_the_chunks_of_a_store(home: Path) -> None:
    """Without Latewood: all chunks of a store are one table, and each record is in it once."""
    with pond(home) as lake:
        for _ in range(3):
            lake.fill(30)
            lake.run("flush")
        lake.run("compact")
        lake.run("retain")
        lake.fill(30)
        lake.run("flush")
        lake.run("archive")
        wanted = sorted(one.payload for kept in lake.model.values() for one in kept)
        local = lake.db_dir / "chunks"
        for directory in (local, lake.home / "remote"):
            pattern = f"{directory}/**/*.parquet"
            rows = duckdb.execute("select payload, key from read_parquet(?)", [pattern]).fetchall()
            assert sorted(row[0] for row in rows) == wanted
            table = ds.dataset(directory, format="parquet").to_table()
            assert sorted(table["payload"].to_pylist()) == wanted
        once = "count(distinct (filename[-90:], sequence))"
        query = f"select count(*), {once}, count(key) from read_parquet(?, filename=true)"  # noqa: S608 - ours
        keyed = sum(one.key is not None for kept in lake.model.values() for one in kept)
        assert duckdb.execute(query, [f"{local}/*.parquet"]).fetchall() == [(len(wanted), len(wanted), keyed)]
        for path in local.iterdir():
            found = pq.read_table(path)["sequence"].to_pylist()
            assert found == list(range(found[0], found[0] + len(found)))


def test_a_reader_holds_retention_back_from_its_first_moment(home: Path) -> None:
    with pond(home, shards=1, retention_max_age_ms=10_000) as lake:
        lake.fill(30)
        with lake.db.reader("billing") as reader:
            for kind in ("flush", "checkpoint"):
                lake.run(kind)
            lake.clock.advance(seconds=100)
            lake.run("retain")
            assert len(list(reader)) == 30
        assert lake.db.readers().floor(0) == 0
