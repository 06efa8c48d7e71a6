"""`check_file` finds what is wrong, whatever that does to the process that reads it."""

import random
from pathlib import Path
from typing import Any

import lmdb
import pytest

from latewood.catalog import Catalog, check_file
from latewood.catalog.ops import PutGate, UpsertPendingIndex
from latewood.catalog.tables import DB, JOB, ChunkKey, GateKey, GateRecord, PendingJobKey
from latewood.errors import CatalogCorrupted, LatewoodError
from tests.catalog.desk import Desk, acquire, chunk, enqueue, job, put_chunks, put_database


def filled(desk: Desk, chunks: int = 50) -> Catalog:
    catalog = desk.open()
    put_database(catalog)
    put_chunks(catalog, chunks)
    acquire(catalog, enqueue(catalog))
    return catalog


def put_raw(path: Path, table: str, key: bytes, value: bytes) -> None:
    env = lmdb.open(str(path), subdir=False, max_dbs=32, map_size=1 << 22, lib_version=0)
    with env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table.encode(), txn=txn))
    env.close()


def test_a_sound_catalog_is_sound_also_beside_its_writer(desk: Desk) -> None:
    filled(desk)
    report = check_file(desk.path)
    assert report.is_sound
    assert report.rows["chunk_catalog"] == 50
    assert report.summary.startswith("all ")


def test_every_row_that_cannot_be_read_is_reported_with_table_and_key(desk: Desk) -> None:
    filled(desk).close()
    put_raw(desk.path, "db", DB.pack_key(5), b"rubbish")
    put_raw(desk.path, "job_queue", b"short", JOB.encode(b"short", job(1)))
    report = check_file(desk.path)
    assert [(problem.table, problem.key) for problem in report.problems] == [
        ("db", "0000000000000005"),
        ("job_queue", b"short".hex()),
    ]
    assert not report.is_sound
    assert report.summary == "2 problems were found"


def test_reading_a_bad_row_names_table_and_key(desk: Desk) -> None:
    filled(desk).close()
    put_raw(desk.path, "db", DB.pack_key(5), DB.encode(DB.pack_key(4), desk_db()))
    catalog = desk.open()
    with pytest.raises(CatalogCorrupted, match="table 'db', key 0000000000000005"):
        catalog.read(lambda view: view.db(5))
    with pytest.raises(CatalogCorrupted):
        list(catalog.scan(DB))


def desk_db() -> Any:
    from tests.catalog.desk import db  # noqa: PLC0415 - named like an argument elsewhere

    return db()


def test_rows_that_do_not_agree_are_reported(desk: Desk) -> None:
    catalog = filled(desk)
    catalog.apply(UpsertPendingIndex(PendingJobKey(1, 3), 77), PutGate(GateKey(1, 3), GateRecord(active_job_id=77)))
    catalog.apply(PutGate(GateKey(1, 1), GateRecord()))
    reasons = {(problem.table, problem.reason) for problem in check_file(desk.path).problems}
    assert ("job_pending_index", "job 77 does not wait here") in reasons
    assert ("job_gate", "closed by job 77, which is not under way") in reasons
    assert ("job_queue", "is under way, but its gate does not know it") in reasons
    assert ("wal_state", "shows another flush gate than job_gate") in reasons


def test_a_file_that_is_not_there_or_no_catalog_is_reported(desk: Desk) -> None:
    assert not check_file(desk.path).is_sound
    desk.path.write_bytes(b"x" * 9000)
    assert "no LMDB file" in check_file(desk.path).problems[0].reason


def test_a_death_of_the_reading_process_is_reported(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(desk).close()
    killer = desk.path.parent / "killer"
    killer.write_text("#!/bin/sh\nkill -BUS $$\n")
    killer.chmod(0o700)
    monkeypatch.setattr("latewood.catalog.check.sys.executable", str(killer))
    report = check_file(desk.path)
    assert report.death == "SIGBUS"
    assert "died of SIGBUS" in report.summary


def test_no_flipped_bit_of_a_page_gives_a_wrong_value(desk: Desk) -> None:
    """Values are what was written, or an error; in this process only flips that LMDB itself survives: in leaf pages."""
    catalog = filled(desk, chunks=200)
    catalog.close()
    raw = desk.path.read_bytes()
    wanted = {ChunkKey(1, n): chunk(n) for n in range(1, 201)}
    values = [at for n in range(1, 201) if (at := raw.find(f"{n:09}.parquet".encode())) > 0]
    random_source = random.Random(7)
    found_bad = 0
    for _ in range(60):
        at = random_source.choice(values) + random_source.randrange(-6, 30)
        flipped = bytearray(raw)
        flipped[at] ^= 1 << random_source.randrange(8)
        desk.path.write_bytes(flipped)
        try:
            reader = desk.open("r")
            for key, record in reader.scan_chunks(1):
                assert record == wanted[key]
        except LatewoodError:
            found_bad += 1
        finally:
            reader.close()
    assert found_bad > 20
