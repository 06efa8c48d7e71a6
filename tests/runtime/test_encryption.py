"""Chunks at rest: encrypted, with keys that change, and nothing of them in the open."""

from pathlib import Path

import msgspec
import pytest

from latewood.archive.keys import KeyRing
from latewood.catalog.tables import EncryptionOptions
from latewood.errors import NotFoundError
from latewood.runtime import Store
from tests.runtime.pond import LAKE, NAME, Pond, pond

OLD, NEW = bytes(range(32)), bytes(range(100, 132))
BOTH = KeyRing({"new": NEW, "old": OLD}, "new")
MARK = b"a payload that nobody may read"


def rotate(lake: Pond, key_id: str | None) -> None:
    """Have new chunks encrypted with another key."""
    record = lake.store.catalog.read(lambda view: view.db(lake.db.db_id))
    assert record is not None
    encryption = None if key_id is None else EncryptionOptions(key_id=key_id)
    options = msgspec.structs.replace(record.options, encryption=encryption)
    txn = lake.store.catalog.begin_write()
    txn.put_db(lake.db.db_id, msgspec.structs.replace(record, options=options))
    txn.commit()
    lake.reopen()


def hidden(lake: Pond) -> bool:
    files = [*lake.files(), *(lake.home / "remote").rglob("*.parquet*")]
    assert files
    return not any(MARK in path.read_bytes() or path.read_bytes().startswith(b"PAR1") for path in files)


def test_payloads_are_hidden_in_every_tier(home: Path) -> None:
    with pond(home, keys=BOTH, key_id="old") as lake:
        for _ in range(2):
            lake.append_many([MARK] * 30)
            lake.fill(12)
            lake.run("flush")
        for kind in ("archive", "checkpoint", "compact", "archive", "evict", "hydrate", "verify", "retain"):
            lake.run(kind)
            lake.check()
            assert hidden(lake)
        assert {record.key_id for record in lake.live()} == {"old"}
        for path in (lake.home / LAKE).rglob("*"):
            assert not path.is_file() or OLD not in path.read_bytes()


def test_keys_rotate_and_a_compaction_leaves_the_old_one_behind(home: Path) -> None:
    with pond(home, keys=BOTH, key_id="old") as lake:
        lake.fill(30)
        lake.run("flush")
        rotate(lake, "new")
        lake.fill(30)
        lake.run("flush")
        assert {record.key_id for record in lake.live()} == {"old", "new"}
        lake.check()
        lake.run("checkpoint")
        lake.run("compact")
        lake.run("retain")
        assert {record.key_id for record in lake.live()} == {"new"}
        lake.keys = KeyRing({"new": NEW}, "new")
        lake.reopen()
        lake.check()
        lake.check_no_orphans()


def test_encryption_may_begin_and_end(home: Path) -> None:
    with pond(home, keys=BOTH) as lake:
        for key_id in ("old", None, "new"):
            lake.fill(12)
            lake.run("flush")
            rotate(lake, key_id)
        lake.fill(12)
        lake.run("flush")
        assert {record.key_id for record in lake.live()} == {None, "old", "new"}
        lake.run("checkpoint")
        lake.check()
        lake.run("verify")


def test_without_the_key_nothing_is_read_and_nothing_is_lost(home: Path) -> None:
    with pond(home, keys=BOTH, key_id="old") as lake:
        lake.fill(30)
        lake.run("flush")
        lake.run("checkpoint")
        lake.fill(6)
        lake.keys = KeyRing({"new": NEW}, "new")
        lake.store.close()
        with (
            Store.open(lake.home / LAKE, mode="r", keys=lake.keys, clock=lake.clock) as store,
            pytest.raises(NotFoundError),
        ):
            list(store.database(NAME).scan())
        lake.keys = BOTH
        lake.store = lake._open()
        lake.check()
