"""Databases: shards, keys, and reading all of it as one."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import latewood
from latewood.errors import (
    AnotherLog,
    BadName,
    ClosedError,
    CorruptError,
    JobFailed,
    Locked,
    NotFoundError,
    ReadOnlyError,
    UsageError,
)
from latewood.limits import KEY_BYTES_MAX
from latewood.runtime import Store
from latewood.runtime.sharding import shard_of


def test_a_record_comes_back_with_its_key(store: Store) -> None:
    db = store.create_database("clicks", shards=3)
    shard, sequence = db.append(b"payload", key=b"user-7", ext_id=9, timestamp_ns=5)
    assert shard == shard_of(b"user-7", 3)
    (record,) = db.scan()
    assert record == (shard, sequence, 5, 9, b"user-7", b"payload")


def test_records_of_a_key_stay_in_order(store: Store) -> None:
    db = store.create_database("clicks", shards=4)
    keys = [b"user-%d" % (number % 9) for number in range(90)]
    db.append_many([b"%d" % number for number in range(90)], keys=keys)
    for number in range(90, 120):
        db.append(b"%d" % number, key=b"user-%d" % (number % 9))
    seen: dict[bytes | None, list[int]] = {}
    for record in db.scan():
        seen.setdefault(record.key, []).append(int(record.payload))
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(120))
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_every_record_of_a_batch_may_have_an_ext_id(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    db.append_many([b"0", b"1", b"2", b"3"], keys=[b"a", b"b", b"c", b"d"], ext_ids=[10, 11, 12, 13])
    assert {(record.payload, record.ext_id) for record in db.scan()} == {(b"%d" % n, 10 + n) for n in range(4)}


def test_a_batch_brings_back_what_single_records_would(store: Store) -> None:
    keys = [None if number % 5 == 0 else b"user-%d" % (number % 9) for number in range(200)]
    payloads = [b"%d" % number for number in range(200)]
    db = store.create_database("clicks", shards=4)
    ranges = db.append_many(payloads, keys=keys, ext_ids=range(200), timestamps_ns=range(1000, 1200))
    found = sorted(db.scan(), key=lambda record: record.ext_id)
    assert [(record.key, record.payload, record.timestamp_ns - 1000) for record in found] == [
        (key, payload, number) for number, (key, payload) in enumerate(zip(keys, payloads, strict=True))
    ]
    assert all(record.shard == shard_of(record.key, 4) for record in found if record.key is not None)
    assert {record.shard for record in found if record.key is None} == {0, 1, 2, 3}
    assert {(record.shard, record.sequence) for record in found} == {
        (shard, sequence) for shard, sequences in ranges.items() for sequence in sequences
    }


@pytest.mark.parametrize("keyed", [True, False])
def test_a_batch_without_keys_goes_to_one_shard(store: Store, *, keyed: bool) -> None:
    db = store.create_database("clicks", shards=3, keyed=keyed)
    assert db.append_many([b"x", b"y"], ext_ids=[1, 2]) == {0: range(2)}
    assert db.append_many([]) == {1: range(0)}
    assert db.append_many([b"z"], timestamps_ns=7) == {2: range(1)}
    assert sorted((record.payload, record.ext_id) for record in db.scan()) == [(b"x", 1), (b"y", 2), (b"z", 0)]


def test_a_database_without_keys_deals_a_batch_of_none_round(store: Store) -> None:
    db = store.create_database("ticks", shards=3, keyed=False)
    found = db.append_many([b"%d" % number for number in range(7)], keys=[None] * 7, ext_ids=range(7))
    assert found == {0: range(3), 1: range(2), 2: range(2)}
    assert all(record.ext_id == int(record.payload) and record.shard == record.ext_id % 3 for record in db.scan())


def test_a_batch_with_a_bad_key_or_too_few_numbers_is_not_written(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"keys": [b"k", "text"]}, "a key must be bytes, not str"),
        ({"keys": [b"k", bytes(KEY_BYTES_MAX + 1)]}, "longer than"),
        ({"keys": [b"k"]}, "1 keys for 2 payloads"),
        ({"keys": [b"k", b"l"], "ext_ids": [1]}, "1 ext_ids for 2 payloads"),
        ({"keys": [b"k", b"l"], "timestamps_ns": [1, 2, 3]}, "3 timestamps_ns for 2 payloads"),
    ]
    for arguments, told in bad:
        with pytest.raises(UsageError, match=told):
            db.append_many([b"x", b"y"], **arguments)
    with pytest.raises(TypeError):
        db.append_many([b"x", "text"], keys=[b"k", b"l"])  # type: ignore[list-item]
    assert list(db.scan()) == []


def test_records_without_a_key_go_round(store: Store) -> None:
    db = store.create_database("clicks", shards=3)
    assert [db.append(b"x")[0] for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [list(db.append_many([b"x", b"y"])) for _ in range(3)] == [[0], [1], [2]]
    assert {record.key for record in db.scan()} == {None}


def test_an_empty_key_is_a_key(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    db.append(b"x", key=b"")
    assert [record.key for record in db.scan()] == [b""]


def test_a_database_without_keys_pays_nothing_and_refuses_them(store: Store) -> None:
    db = store.create_database("plain", keyed=False)
    db.append(b"payload")
    db.append_many([b"more"])
    assert [record.payload for record in db.shards[0].log.scan()] == [b"payload", b"more"]
    assert [(record.key, record.payload) for record in db.scan()] == [(None, b"payload"), (None, b"more")]
    assert "key" not in db.to_arrow().schema.names
    with pytest.raises(UsageError, match="without keys"):
        db.append(b"x", key=b"k")


def test_a_table_has_the_shard_and_the_columns_that_were_asked_for(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    db.append_many([b"a", b"b", b"c"], keys=[b"1", b"2", b"3"])
    assert db.to_arrow().schema.names == ["shard", "sequence", "timestamp", "ext_id", "key", "payload"]
    table = db.to_arrow(columns=["payload", "shard"])
    assert sorted(table.to_pylist(), key=lambda row: row["payload"]) == [
        {"payload": payload, "shard": shard_of(key, 2)} for payload, key in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    ]
    assert db.to_arrow(columns=["shard"]).num_rows == 3
    with pytest.raises(UsageError, match="colour"):
        db.to_arrow(columns=["colour"])


def test_an_empty_database_is_an_empty_table(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    assert db.to_arrow().num_rows == 0
    assert list(db.scan()) == []


def test_a_scan_begins_and_ends_where_it_is_told(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    for number in range(10):
        db.append(b"%d" % number, timestamp_ns=1_000_000_000 * number)
    payloads = [record.payload for record in db.scan(2, 4)]
    assert payloads == [b"4", b"6", b"5", b"7"]
    assert [record.payload for record in db.scan({0: 4, 1: 5})] == [b"8"]
    assert [record.payload for record in db.scan(1, 3, shard=1)] == [b"3", b"5"]
    late = datetime.fromtimestamp(7, UTC)
    assert [record.payload for record in db.scan(late, merged=True)] == [b"7", b"8", b"9"]
    assert [int(record.payload) for record in db.scan(merged=True)] == list(range(10))
    with pytest.raises(UsageError, match="no shard 2"):
        list(db.scan(shard=2))


def test_a_reader_goes_on_where_it_committed(root: Path) -> None:
    with Store.open(root) as store:
        db = store.create_database("clicks", shards=3)
        db.append_many([b"%d" % number for number in range(20)], keys=[b"%d" % number for number in range(20)])
        with db.reader("billing") as reader:
            first = reader.poll(7)
            reader.commit()
            reader.poll(5)
            assert reader.lag() == 13
    with Store.open(root) as store, store.database("clicks").reader("billing") as reader:
        rest = list(reader)
        assert sorted(int(record.payload) for record in first + rest) == list(range(20))
        assert reader.poll() == []


def test_a_reader_of_another_database_of_that_name_is_refused_and_begins_anew_as_it_is_told(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with Store.open(tmp_path / name) as store:
            db = store.create_database("clicks", shards=2, keyed=False)
            for number in range(20):
                db.append(b"%s %d" % (name.encode(), number))
            if name == "old":
                with db.reader("billing") as reader:
                    reader.poll(7)
                    reader.commit()
    readers = Path("databases") / "00000001-clicks" / "readers"
    shutil.copytree(tmp_path / "old" / readers, tmp_path / "new" / readers, dirs_exist_ok=True)
    with Store.open(tmp_path / "new") as store:
        db = store.database("clicks")
        with pytest.raises(AnotherLog, match=r"latewood readers seek .*/clicks billing --earliest"):
            db.reader("billing")
        with db.reader("billing", "earliest") as reader:
            assert len(list(reader)) == 20
        with db.reader("billing") as reader:
            assert len(list(reader)) == 20


def test_a_merged_reader_orders_what_it_returns(store: Store) -> None:
    db = store.create_database("clicks", shards=3)
    for number in range(30):
        db.append(b"%d" % number, timestamp_ns=number)
    with db.reader("billing", merged=True) as reader:
        assert [int(record.payload) for record in reader.poll(100)] == list(range(30))


def test_a_reader_starts_where_it_is_told(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    for number in range(10):
        db.append(b"%d" % number, timestamp_ns=1_000_000_000 * number)
    with db.reader("a", "latest") as reader:
        assert reader.poll() == []
        db.append(b"new")
        assert [record.payload for record in reader.poll(timeout=5)] == [b"new"]
        reader.seek("earliest")
        assert len(list(reader)) == 11
        reader.seek({0: 4, 1: 4})
        assert [record.payload for record in reader] == [b"8", b"new", b"9"]
    with db.reader("b", datetime.fromtimestamp(8, UTC)) as reader:
        assert {record.payload for record in reader} == {b"8", b"9", b"new"}
    with pytest.raises(UsageError, match="start"):
        db.reader("c", "sometimes")  # type: ignore[arg-type]


def test_one_reader_has_a_name_at_a_time(store: Store) -> None:
    db = store.create_database("clicks")
    with db.reader("billing"):
        with pytest.raises(Locked):
            db.reader("billing")
        with pytest.raises(Locked):
            db.readers().remove("billing")
    with db.reader("billing") as reader:
        db.append(b"x")
        reader.poll()
        reader.commit()
    assert [(one.name, one.sequence) for one in db.readers().positions()] == [("billing", 1)]
    assert db.readers().floor(0) == 1
    db.readers().remove("billing")
    assert db.readers().positions() == []
    with pytest.raises(BadName):
        db.reader("../x")
    with pytest.raises(BadName, match="the system's own"):
        db.reader("latewood-flush")


def test_where_readers_stand_in_a_shard_is_read_from_its_own_positions_alone(store: Store) -> None:
    db = store.create_database("clicks", shards=3)
    for name in ("billing", "audit"):
        db.reader(name).close()
    db_layout = store.layout.located(db.record.options.wal_dir)
    damaged = db_layout.cursor("billing", 1)
    damaged.write_bytes(b"\xff" * len(damaged.read_bytes()))
    assert [db.readers().floor(shard) for shard in (0, 2)] == [0, 0]
    with pytest.raises(CorruptError):
        db.readers().floor(1)


def test_databases_live_drain_and_go(root: Path) -> None:
    with Store.open(root) as store:
        db = store.create_database("clicks")
        db.append(b"x")
        with pytest.raises(UsageError, match="already"):
            store.create_database("clicks")
        store.drain("clicks")
        with pytest.raises(ClosedError, match="drained"):
            db.append(b"y")
        assert len(list(db.scan())) == 1
        store.activate("clicks")
        db.append(b"y")
        store.drop("clicks")
        assert store.databases() == []
        with pytest.raises(NotFoundError):
            store.database("clicks")
        assert list(store.create_database("clicks").scan()) == []
    with Store.open(root) as store:
        assert [record.name for _, record in store.databases()] == ["clicks"]


def test_a_store_may_be_read_beside_its_writer(root: Path) -> None:
    with Store.open(root) as store:
        db = store.create_database("clicks", shards=2)
        db.append(b"x", key=b"k")
        with pytest.raises(Locked):
            Store.open(root)
    with Store.open(root, mode="r") as store:
        db = store.database("clicks")
        assert [record.payload for record in db.scan()] == [b"x"]
        for forbidden in (lambda: store.create_database("y"), lambda: store.drain("clicks"), store.run_jobs):
            with pytest.raises(ReadOnlyError):
                forbidden()
        with db.reader("billing") as reader:
            assert len(reader.poll()) == 1
            reader.commit()
        assert db.readers().floor(db.readers().positions()[0].shard) is not None


def test_a_configuration_that_was_changed_is_refused(root: Path) -> None:
    with Store.open(root) as store:
        db_id = store.create_database("clicks", shards=2).db_id
        record = store.catalog.read(lambda view: view.db(db_id))
        assert record is not None
        txn = store.catalog.begin_write()
        txn.put_db(db_id, msgspec.structs.replace(record, wal_shards=3))
        txn.commit()
    with Store.open(root) as store, pytest.raises(CorruptError, match="configuration"):
        store.database("clicks")


def test_a_directory_with_other_things_does_not_become_a_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("text")
    with pytest.raises(UsageError, match=r"thesis\.txt"):
        Store.open(tmp_path)
    with pytest.raises(UsageError):
        Store.open("")
    with pytest.raises(NotFoundError):
        Store.open(tmp_path / "nowhere", mode="r")


@pytest.mark.parametrize(
    "options", [{"shards": 0}, {"shards": 1 << 20}, {"colour": 1}, {"chunk_bytes": 0}, {"grace_ms": "1 h"}]
)
def test_options_are_checked(store: Store, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        store.create_database("clicks", **options)  # type: ignore[arg-type]
    assert store.databases() == []


def test_the_package_knows_the_store(root: Path) -> None:
    with latewood.Store.open(root) as store:
        assert isinstance(store.create_database("x"), latewood.Database)


def test_a_dropped_database_can_be_purged(root: Path) -> None:
    with Store.open(root) as store:
        db = store.create_database("clicks", shards=2)
        db.append(b"x")
        directory = store.layout.located(db.record.options.wal_dir).root
        store.drop("clicks")
        assert directory.exists()
        assert store.purge() == ["clicks"]
        assert not directory.exists()
        assert store.purge() == []
        assert store.catalog.read(lambda view: list(view.dbs())) == []
        assert list(store.create_database("clicks").scan()) == []
    with Store.open(root) as store:
        assert [record.name for _, record in store.databases()] == ["clicks"]


def test_a_job_is_done_by_its_name(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    db.append_many([b"%d" % number for number in range(10)], keys=[b"%d" % number for number in range(10)])
    assert store.run_job("flush", "clicks", seal=True).progress_done == 10
    store.run_job("checkpoint", "clicks")
    assert {one.log_first_sequence for one in db.stats()} == {one.next_sequence for one in db.stats()}
    assert sorted(int(record.payload) for record in db.scan()) == list(range(10))
    with pytest.raises(JobFailed, match="archive"):
        store.run_job("archive", "clicks")
    with pytest.raises(UsageError, match="dance"):
        store.run_job("dance", "clicks")


def test_workers_in_the_background_do_jobs_too(store: Store) -> None:
    db = store.create_database("clicks")
    db.append(b"x")
    store.start_workers()
    store.run_job("flush", "clicks", seal=True)
    assert store.generation == 1
    with pytest.raises(UsageError, match="already"):
        store.start_workers()


def test_any_start_but_resume_takes_the_place_of_a_damaged_position(store: Store) -> None:
    db = store.create_database("clicks", shards=2)
    db.append_many([b"x"] * 3)
    db.reader("billing").close()
    damaged = store.layout.located(db.record.options.wal_dir).cursor("billing", 1)
    damaged.write_bytes(b"\xff" * len(damaged.read_bytes()))
    for start in ("resume", {0: 0}):
        with pytest.raises(CorruptError):
            db.reader("billing", start)
    db.reader("billing", {0: 2, 1: 0}).close()
    assert [one.sequence for one in db.readers().positions()] == [2, 0]
