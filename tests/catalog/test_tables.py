"""Keys and values of every table: whole, torn, flipped, older, newer."""

import importlib
import pickle
import pkgutil
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.catalog import tables
from latewood.catalog.tables import (
    CHANGE_LOG,
    CHUNK,
    DB,
    JOB,
    JOB_LIVE,
    METRIC,
    TABLES,
    WAL_STATE,
    ChangePosition,
    ChunkKey,
    JobLiveKey,
    MetricKey,
    Table,
    WalStateKey,
)
from latewood.catalog.tables.record import HEADER_SIZE
from latewood.errors import CatalogCorrupted, UnsupportedVersion, UsageError
from latewood.kernel import crc32c
from tests.catalog.desk import chunk, db, job
from tests.catalog.samples import NAMES, SAMPLES
from tests.meta import format_tables

PATH: Final = Path("catalog.mdb")
every_sample: Final = pytest.mark.parametrize(("table", "key", "record"), SAMPLES, ids=NAMES)
MODULES: Final = [module.name for module in pkgutil.iter_modules(tables.__path__)]
u64: Final = st.integers(0, (1 << 64) - 1)


def signed(table: Table[Any, Any], key: bytes, version: int, body: bytes) -> bytes:
    """Return a value of any version, with the checksum that it needs."""
    head = version.to_bytes(2, "little")
    return head + crc32c(table.name.encode() + b"\0" + key + head + body).to_bytes(4, "little") + body


# -- whole ------------------------------------------------------------------------------------------------


@every_sample
def test_a_row_survives_the_round_trip(table: Table[Any, Any], key: Any, record: Any) -> None:
    raw = table.pack_key(key)
    assert table.unpack_key(raw, PATH) == key
    assert table.decode(raw, table.encode(raw, record), PATH) == record


def test_every_table_has_a_sample_and_a_number_of_its_own() -> None:
    assert {table.name for table, _, _ in SAMPLES} == {table.name for table in TABLES}
    assert len({table.number for table in TABLES}) == len(TABLES) == 13


def test_the_bytes_of_a_value_are_these() -> None:
    raw = JOB.pack_key(1)
    assert JOB.encode(raw, job(1)).hex(" ") == (
        "01 00 dc fa 7e 9d dc 00 12 01 01 01 01 91 00 80 c0 c3 64 00 00 05 00 c0 c2 c0 c0 00"
    )


@given(st.lists(st.tuples(u64, u64), min_size=2))
def test_keys_sort_as_their_numbers_do(pairs: list[tuple[int, int]]) -> None:
    keys = [ChunkKey(*pair) for pair in pairs]
    assert sorted(keys) == sorted(keys, key=CHUNK.pack_key)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 65_535), u64, u64), min_size=2))
def test_live_jobs_sort_by_phase_then_priority_then_time(fields: list[tuple[int, int, int, int]]) -> None:
    keys = [JobLiveKey(*four) for four in fields]
    assert sorted(keys) == sorted(keys, key=JOB_LIVE.pack_key)


@pytest.mark.parametrize(
    ("table", "key", "packed"),
    [
        (DB, 258, "0000000000000102"),
        (WAL_STATE, WalStateKey(1, 2), "000000000000000100020000"),
        (METRIC, MetricKey(1, 2), "0000000100000002"),
        (JOB_LIVE, JobLiveKey(1, 2, 3, 4), "0100000200000000000000030000000000000004"),
        (CHANGE_LOG, ChangePosition(1, 2), "000000000000000100000002"),
    ],
)
def test_keys_are_big_endian_and_their_pads_written_out(table: Table[Any, Any], key: Any, packed: str) -> None:
    assert table.pack_key(key).hex() == packed


@pytest.mark.parametrize("name", MODULES)
def test_the_byte_tables_of_a_module_add_up(name: str) -> None:
    module = importlib.import_module(f"latewood.catalog.tables.{name}")
    constants = format_tables.own_constants(module)
    constants.pop("CONFIG_HASH_SIZE", None)  # the length of a field, not of a table
    assert not format_tables.problems(module.__doc__ or "", constants)


# -- damaged ----------------------------------------------------------------------------------------------


@every_sample
def test_a_value_cut_at_any_length_is_corruption(table: Table[Any, Any], key: Any, record: Any) -> None:
    raw = table.pack_key(key)
    value = table.encode(raw, record)
    for length in range(len(value)):
        with pytest.raises(CatalogCorrupted, match=table.name):
            table.decode(raw, value[:length], PATH)


@every_sample
def test_every_flipped_bit_of_key_and_value_is_found(table: Table[Any, Any], key: Any, record: Any) -> None:
    raw = table.pack_key(key)
    value = table.encode(raw, record)
    for bit in range(8 * len(value)):
        with pytest.raises(CatalogCorrupted):
            table.decode(raw, flipped(value, bit), PATH)
    for bit in range(8 * len(raw)):
        with pytest.raises(CatalogCorrupted):
            table.decode(flipped(raw, bit), value, PATH)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_row_of_another_table_is_corruption() -> None:
    raw = DB.pack_key(1)
    value = DB.encode(raw, db())
    with pytest.raises(CatalogCorrupted, match="checksum"):
        JOB.decode(raw, value, PATH)


def test_a_sound_value_that_is_no_record_is_corruption() -> None:
    raw = DB.pack_key(1)
    with pytest.raises(CatalogCorrupted, match="cannot be read"):
        DB.decode(raw, signed(DB, raw, 1, msgspec.msgpack.encode(["no", "db"])), PATH)


def test_a_key_of_the_wrong_length_is_corruption() -> None:
    with pytest.raises(CatalogCorrupted, match="key"):
        DB.unpack_key(b"\0" * 7, PATH)


def test_corruption_says_where_and_what_to_do_and_can_be_pickled() -> None:
    error = CatalogCorrupted("bad", PATH, "db", b"\1\2")
    assert str(error) == "catalog.mdb, table 'db', key 0102: bad; keep the file and run `latewood catalog check`"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own


# -- other versions ---------------------------------------------------------------------------------------


def test_a_later_version_is_not_corruption() -> None:
    raw = DB.pack_key(1)
    with pytest.raises(UnsupportedVersion, match=f"version {DB.version + 1}"):
        DB.decode(raw, signed(DB, raw, DB.version + 1, b"anything"), PATH)


def test_fields_that_are_missing_at_the_end_get_their_defaults() -> None:
    raw = JOB.pack_key(1)
    body = msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(job(1, priority=7)))[:9])
    assert JOB.decode(raw, signed(JOB, raw, 1, body), PATH) == job(1, priority=7)


def test_fields_that_a_later_program_added_at_the_end_are_skipped() -> None:
    raw = CHUNK.pack_key(ChunkKey(1, 1))
    body = msgspec.msgpack.encode([*msgspec.msgpack.decode(msgspec.msgpack.encode(chunk())), "new", {"field": 1}])
    assert CHUNK.decode(raw, signed(CHUNK, raw, 1, body), PATH) == chunk()


# -- what cannot be stored --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "key", "record"),
    [
        (CHUNK, ChunkKey(1, 1), chunk(file_name="x" * 121)),
        (CHUNK, ChunkKey(1, 1), chunk(file_name="")),
        (CHUNK, ChunkKey(1, 1), chunk(size_bytes="many")),
        (CHUNK, ChunkKey(1, 1), chunk(size_bytes=1 << 64)),
        (CHUNK, ChunkKey(1, 1), chunk(shard=65_536)),
        (DB, 1, db(config_hash=b"short")),
        (DB, 1, db(wal_shards=0)),
        (JOB, 1, job(1, payload={"call": print})),
        (JOB, 1, job(1, kind=0x8000)),
    ],
)
def test_what_could_not_be_read_is_not_written(table: Table[Any, Any], key: Any, record: Any) -> None:
    with pytest.raises(UsageError, match="cannot be stored"):
        table.encode(table.pack_key(key), record)


@pytest.mark.parametrize("key", [-1, 1 << 64, "1", None])
def test_a_key_that_does_not_fit_is_refused(key: Any) -> None:
    with pytest.raises(UsageError, match="cannot be a key"):
        DB.pack_key(key)


def test_the_header_has_six_bytes() -> None:
    assert HEADER_SIZE == 6
