"""Catalogs of version 0, as they were stored, open today."""

import json
import struct
from pathlib import Path
from typing import Any, Final, Literal

import lmdb
import msgspec
import pytest

from latewood.catalog.migrate import VERSIONS
from latewood.catalog.tables import (
    CHUNK,
    DB,
    JOB,
    RUNTIME_STATE,
    TABLES,
    ChunkKey,
    ChunkRecord,
    Completed,
    CompressionCodec,
    DbActive,
    DbDraining,
    DbTombstoned,
    FailedPermanent,
    InFlight,
    JobKind,
    JobPhase,
    Local,
    Pending,
    RemoteArchived,
    RemoteObject,
    RuntimeRecord,
    WalStateKey,
)
from latewood.catalog.tables.record import Table
from latewood.errors import CatalogCorrupted, UnsupportedVersion
from latewood.kernel import crc32c
from tests.catalog.desk import Desk, job_of, put_database

VERSION_0: Final = Path(__file__).parents[1] / "golden" / "catalog-v0" / "records.jsonl"


def stored_rows() -> list[dict[str, str]]:
    return [json.loads(line) for line in VERSION_0.read_text().splitlines()]


def put_raw(path: Path, rows: list[dict[str, str]]) -> None:
    """Write rows as they are, and the tables that version 0 had."""
    env = lmdb.open(str(path), subdir=False, max_dbs=32, map_size=1 << 22, mode=0o600, lib_version=0)
    with env.begin(write=True) as txn:
        for row in rows:
            handle = env.open_db(row["table"].encode(), txn=txn)
            txn.put(bytes.fromhex(row["key"]), bytes.fromhex(row["value"]), db=handle)
    env.close()


@pytest.fixture
def old(desk: Desk) -> Desk:
    put_raw(desk.path, stored_rows())
    return desk


def test_databases_of_version_0_keep_what_they_said(old: Desk) -> None:
    catalog = old.open()
    records = dict(catalog.scan(DB))
    assert [record.name for record in records.values()] == ["clicks", "orders", "gone"]
    assert [record.status for record in records.values()] == [
        DbActive(),
        DbDraining(),
        DbTombstoned(tombstoned_at_ms=1_700_000_009_999),
    ]
    assert records[1].config_hash == bytes(range(32))
    assert records[1].options.wal_dir == "lake/clicks/wal"
    assert records[3].options.compression.codec == CompressionCodec.SNAPPY


def test_shards_of_version_0_keep_what_they_said(old: Desk) -> None:
    states = old.open().read(lambda view: [*view.wal_states(1), *view.wal_states(2)])
    assert [(key, record.last_sealed_segment, record.last_applied_sequence) for key, record in states] == [
        (WalStateKey(1, 0), 41, 9000),
        (WalStateKey(1, 1), None, 0),
        (WalStateKey(2, 0), 5, (1 << 63) + 1),
    ]
    assert states[0][1].restart_epoch == 3


def test_chunks_of_version_0_keep_what_they_said(old: Desk) -> None:
    chunks = dict(old.open().scan_chunks(1))
    assert [record.residency for record in chunks.values()] == [
        Local(),
        RemoteArchived(object=RemoteObject(tier="archive", key="bucket/c2"), verified=True),
        RemoteArchived(object=RemoteObject(tier="archive", key="bucket/c3"), verified=False),
    ]
    second = chunks[ChunkKey(1, 2)]
    assert (second.wal_range, second.row_count, second.shard) == ((200, 299), 100, 0)
    assert second.uploaded_at_ms == 1_700_000_005_000


def test_jobs_of_version_0_keep_their_states(old: Desk) -> None:
    catalog = old.open()
    assert job_of(catalog, 1).state == Completed(finished_at_ms=1_700_000_001_001)
    assert isinstance(job_of(catalog, 2).state, InFlight)
    assert job_of(catalog, 3).payload == {"upto": 9000}
    assert job_of(catalog, 4).state == FailedPermanent(finished_at_ms=1_700_000_001_004)
    error = job_of(catalog, 4).last_error
    assert error is not None
    assert error.message == "no space left on device"
    assert job_of(catalog, 300).state == Pending()


def test_indices_that_version_0_did_not_have_are_built(old: Desk) -> None:
    view = old.open().read
    assert view(lambda v: v.db_by_name("clicks")[0]) == 1  # type: ignore[index]
    assert view(lambda v: v.db_by_name("gone")) is None
    assert view(lambda v: v.pending_job(1, JobKind.FLUSH)) == 3
    assert view(lambda v: v.gate(1, JobKind.FLUSH).active_job_id) == 2
    assert view(lambda v: [key.job_id for key, _ in v.live_jobs(JobPhase.PENDING)]) == [3, 300]


def test_migrated_rows_are_stored_in_the_new_version_and_noted(old: Desk) -> None:
    old.open().close()
    catalog = old.open()

    def older() -> list[str]:
        return catalog._env.read(
            lambda rows: [t.name for t in TABLES for _, value in rows.scan_raw(t) if t.version_of(value) != t.version]
        )

    assert older() == []
    noted = catalog.read(lambda view: view.runtime_state("environment"))
    assert noted is not None
    assert noted.table_versions == VERSIONS


def test_version_0_can_be_read_without_being_changed(old: Desk) -> None:
    old.open().close()
    put_raw(old.path, [row for row in stored_rows() if row["table"] == "job_queue"])  # as an older program would
    reader = old.open("r")
    assert job_of(reader, 3).payload == {"upto": 9000}


def test_a_migration_that_was_cut_off_is_finished(old: Desk) -> None:
    half = [row for row in stored_rows() if row["key"] in {"0000000000000003", "0000000000000001"}]
    old.open().close()
    env = lmdb.open(str(old.path), subdir=False, max_dbs=32, map_size=1 << 22, lib_version=0)
    with env.begin(write=True) as txn:
        txn.delete(b"environment", db=env.open_db(b"runtime_state", txn=txn))
        for row in half:
            key, value = bytes.fromhex(row["key"]), bytes.fromhex(row["value"])
            txn.put(key, value, db=env.open_db(row["table"].encode(), txn=txn))
    env.close()
    catalog = old.open()
    assert len(dict(catalog.scan(DB))) == 3
    assert len(dict(catalog.scan(JOB))) == 5


def test_a_damaged_row_stops_the_migration(desk: Desk) -> None:
    rows = stored_rows()
    rows[0]["value"] = rows[0]["value"][:-2] + "ff"
    put_raw(desk.path, rows)
    with pytest.raises(CatalogCorrupted, match="'db', key 0000000000000001"):
        desk.open()


def test_a_catalog_of_a_later_program_is_refused(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    catalog.close()
    key = RUNTIME_STATE.pack_key("environment")
    for record in (RuntimeRecord(format=DB.version + 1), RuntimeRecord(table_versions={"db": DB.version + 1})):
        value = RUNTIME_STATE.encode(key, record)
        put_raw(desk.path, [{"table": "runtime_state", "key": key.hex(), "value": value.hex()}])
        with pytest.raises(UnsupportedVersion, match=f"version {DB.version + 1}"):
            desk.open()
        with pytest.raises(UnsupportedVersion, match=f"version {DB.version + 1}"):
            desk.open("r")


def version_1(table: Table[Any, Any], key: Any, record: Any, lacks: int) -> dict[str, str]:
    """Return a row as version 1 of a table had it: without the last elements."""
    raw = table.pack_key(key)
    body = msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(record))[:-lacks])
    head = struct.pack("<H", 1)
    checksum = crc32c(table.name.encode() + b"\0" + raw + head + body)
    return {"table": table.name, "key": raw.hex(), "value": (head + struct.pack("<I", checksum) + body).hex()}


def test_rows_of_version_1_keep_what_they_said_and_have_no_identities_and_cohorts(desk: Desk) -> None:
    catalog = desk.open()
    put_database(catalog)
    record = dict(catalog.scan(DB))[1]
    catalog.close()
    chunk = ChunkRecord(
        file_name="a",
        generation=1,
        size_bytes=2,
        compression=CompressionCodec.ZSTD,
        shard=0,
        sequence_min=0,
        sequence_max=1,
        row_count=2,
    )
    put_raw(desk.path, [version_1(DB, 1, record, 2), version_1(CHUNK, ChunkKey(1, 1), chunk, 1)])
    modes: list[Literal["r", "w"]] = ["r", "w"]
    for mode in modes:
        catalog = desk.open(mode)
        assert dict(catalog.scan(DB))[1] == record
        assert record.identity is None
        assert [row for _, row in catalog.scan_chunks(1)] == [chunk]
        catalog.close()
