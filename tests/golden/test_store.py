"""Stores of versions 1 and 2: today's code reads them, and goes on with them."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from latewood.catalog.tables import JobKind
from latewood.runtime.record import DatabaseRecord
from latewood.testing import FakeClock
from tests.golden.make import EXPECTED, SHOWN_AT_NS, Shown
from tests.golden.store import COHORT, DATABASES, MODES, STORES, Scribe, freeze, opened, show, shown_record
from tests.golden.test_golden import run

VERSION_1: Final = Path(__file__).parent / "v1" / "store"
VERSION_2: Final = Path(__file__).parent / "v2" / "store"
BIRTH: Final = json.loads((VERSION_1 / EXPECTED).read_text())
BIRTH_2: Final = json.loads((VERSION_2 / EXPECTED).read_text())


def records_of(database: str) -> list[Shown]:
    found: list[Shown] = BIRTH["databases"][database]["records"]
    return found


def shown(records: Iterable[DatabaseRecord]) -> list[Shown]:
    return [shown_record(record) for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [pytest.param("native", marks=pytest.mark.needs("native")), "pure"])
def test_a_store_of_version_1_shows_all_that_went_into_it(kernel: str, tmp_path: Path) -> None:
    shutil.copytree(VERSION_1, tmp_path, dirs_exist_ok=True)
    found = json.loads(run("tests.golden.store", kernel, "show", tmp_path))
    for store in STORES:
        for mode in MODES:
            assert found[store][mode] == BIRTH, (store, mode)


@pytest.mark.slow
def test_a_store_of_version_2_shows_all_that_went_into_it(tmp_path: Path) -> None:
    shutil.copytree(VERSION_2, tmp_path, dirs_exist_ok=True)
    assert show(tmp_path / "closed", "r") == show(tmp_path / "killed", "w") == BIRTH_2
    for name in DATABASES:
        assert BIRTH_2["databases"][name]["records"] == records_of(name)


@pytest.mark.parametrize("store", STORES)
def test_a_store_of_version_2_names_its_databases_their_logs_and_the_cohorts_of_chunks(
    store: str, tmp_path: Path
) -> None:
    home = shutil.copytree(VERSION_2 / store, tmp_path / store)
    with opened(home, "r", FakeClock(SHOWN_AT_NS)) as lake:
        for name in DATABASES:
            database = lake.database(name)
            assert database.record.identity is not None
            logs = [shard.log.mark.identity for shard in database.shards if shard.log.mark]
            assert logs == [database.record.log_identity(shard.number) for shard in database.shards]
        rows = [row for _, row in lake.catalog.scan_chunks(lake.database("clicks").db_id)]
        cohorts = {0: (), 1: (COHORT,)}
        assert len(rows) > len(cohorts)
        assert all(tuple(cohort for _, cohort in row.cohorts) == cohorts[row.shard] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_store_of_version_1_goes_on_where_it_ended(store: str, tmp_path: Path) -> None:
    """Appends, runs every job that moves records between tiers, and finds each record once, in its place."""
    home = shutil.copytree(VERSION_1 / store, tmp_path / store)
    added: dict[str, dict[int, list[bytes]]] = {}
    with opened(home, "w", FakeClock(SHOWN_AT_NS)) as lake:
        for name in DATABASES:
            added[name] = _appended(lake.database(name))
            for kind, payload in {
                "verify": {},
                "flush": {"seal": True},
                "checkpoint": {},
                "compact": {"eager": True},
                "archive": {},
                "evict": {"now": True},
            }.items():
                lake.run_job(kind, name, **payload)
        assert JobKind.MEND not in {job.kind for job in lake.jobs.jobs()}, "verify found a damaged chunk"
    with opened(home, "r", FakeClock(SHOWN_AT_NS)) as lake:
        for name in DATABASES:
            for shard, payloads in added[name].items():
                before = [record for record in records_of(name) if record["shard"] == shard]
                found = list(lake.database(name).scan(shard=shard))
                assert shown(found)[: len(before)] == before
                assert [record.payload for record in found[len(before) :]] == payloads
                assert [record.sequence for record in found] == list(range(len(found)))


def _appended(database: Any) -> dict[int, list[bytes]]:
    added: dict[int, list[bytes]] = {shard.number: [] for shard in database.shards}
    for number in range(10):
        payload = b"of today %d" % number
        key = b"user-%d" % number if database.keyed else None
        shard, sequence = database.append(payload, key)
        before = sum(record["shard"] == shard for record in records_of(database.name))
        assert sequence == before + len(added[shard])
        added[shard].append(payload)
    return added


@pytest.mark.parametrize("store", STORES)
def test_a_reader_of_a_store_of_version_1_goes_on_where_it_stopped(store: str, tmp_path: Path) -> None:
    home = shutil.copytree(VERSION_1 / store, tmp_path / store)
    with opened(home, "w", FakeClock(SHOWN_AT_NS)) as lake:
        for name in DATABASES:
            expected = BIRTH["databases"][name]
            with lake.database(name).reader("billing") as reader:
                rest = list(reader)
                reader.commit()
            wanted = [
                record
                for record in expected["records"]
                if record["sequence"] >= expected["resume_at"]["billing"][str(record["shard"])]
            ]
            assert sorted(shown(rest), key=lambda one: (one["shard"], one["sequence"])) == wanted
    with opened(home, "r", FakeClock(SHOWN_AT_NS)) as lake:
        for name in DATABASES:
            assert list(lake.database(name).reader("billing")) == []


@pytest.mark.slow
def test_what_is_expected_of_a_store_is_what_was_appended(tmp_path: Path) -> None:
    scribe = Scribe(tmp_path / "closed")
    scribe.write(tmp_path / "killed")
    for name, records in scribe.records.items():
        assert sorted(records, key=lambda one: (one["shard"], one["sequence"])) == records_of(name)


def test_records_of_the_frozen_stores_are_in_the_archive_in_chunks_and_in_logs() -> None:
    for name in DATABASES:
        database = BIRTH["databases"][name]
        assert {chunk["residency"] for chunk in database["chunks"]} >= {"RemoteArchived"}
        for shard in database["shards"]:
            assert 0 == shard["first_sequence"] < shard["log_first_sequence"] < shard["next_sequence"]
        unflushed = [one for one in database["records"] if one["payload"].startswith("after the last flush")]
        assert {one["shard"] for one in unflushed} == {shard["shard"] for shard in database["shards"]}
    chunks = [chunk["residency"] for name in DATABASES for chunk in BIRTH["databases"][name]["chunks"]]
    assert set(chunks) == {"Local", "LocalAndRemote", "RemoteArchived"}
    assert {job["state"] for job in BIRTH["jobs"]} == {"Completed", "Cancelled", "Pending"}


def test_a_record_that_did_not_go_in_at_the_time_is_told_from_those_that_did(tmp_path: Path) -> None:
    home = shutil.copytree(VERSION_1 / "closed", tmp_path / "closed")
    with opened(home, "w", FakeClock(SHOWN_AT_NS)) as lake:
        lake.database("plain").append(b"of today")
    assert show(home, "r") != BIRTH


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2], ids=["v1", "v2"])
def test_stores_that_are_frozen_cannot_be_frozen_again(version: Path) -> None:
    with pytest.raises(FileExistsError):
        freeze(version)
