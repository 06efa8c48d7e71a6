"""Chunks at rest: encrypted, with keys that change, and nothing of them in the open."""

from pathlib import Path

import pytest

from latewood.archive.keys import KeyRing
from latewood.errors import KeyNotFound, NotFoundError, ReadOnlyError
from latewood.runtime import Store
from tests.runtime.pond import LAKE, NAME, Pond, pond
from tests.runtime.test_rebuild import rebuild

OLD, NEW = bytes(range(32)), bytes(range(100, 132))
BOTH = KeyRing({"new": NEW, "old": OLD}, "new")
MARK = b"a payload that nobody may read"


def rotate(lake: Pond, key_id: str | None) -> None:
    """Have new chunks encrypted with another key."""
    lake.store.set_key(NAME, key_id)
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


def test_a_rekey_leaves_the_old_key_behind_in_every_tier(home: Path) -> None:
    with pond(home, keys=BOTH, key_id="old") as lake:
        for kind in ("archive", "evict"):
            lake.fill(30)
            lake.run("flush")
            lake.run("archive")
            lake.run("checkpoint")
            lake.run(kind)
        lake.fill(30)
        lake.run("flush")
        generation, before = lake.store.generation, [list(lake.db.scan(as_of=at)) for at in range(9)]
        lake.store.set_key(NAME, "new")
        for kind in ("rekey", "archive", "retain", "evict", "verify"):
            lake.run(kind)
            lake.check()
            assert {record.key_id for record in lake.live()} == {"new"}
        assert {row.record.key_id for row in lake.rows()} == {"new"}
        assert [list(lake.db.scan(as_of=at)) for at in range(9)] == before, "what was when is as it was"
        assert lake.store.generation > generation
        lake.keys = KeyRing({"new": NEW}, "new")
        lake.reopen()
        lake.check()
        lake.check_no_orphans()


def test_a_lost_catalog_takes_the_new_chunks_and_knows_the_key(home: Path) -> None:
    with pond(home, keys=BOTH, key_id="old", grace_ms=60_000) as lake:
        lake.fill(30)
        lake.run("flush")
        lake.run("checkpoint")
        lake.store.set_key(NAME, "new")
        lake.run("rekey")
        assert {row.record.key_id for row in lake.rows()} == {"old", "new"}
        rebuild(lake)
        assert {record.key_id for record in lake.live()} == {"new"}
        lake.fill(6)
        lake.run("flush")
        assert {record.key_id for record in lake.live()} == {"new"}
        lake.check()


def test_encryption_that_ended_leaves_nothing_hidden(home: Path) -> None:
    with pond(home, keys=BOTH, key_id="old") as lake:
        lake.fill(30)
        lake.run("flush")
        lake.store.set_key(NAME, None)
        lake.run("verify")
        lake.run("rekey")
        lake.run("retain")
        assert {record.encrypted for record in lake.live()} == {False}
        lake.keys = None
        lake.reopen()
        lake.check()
        lake.check_no_orphans()


def test_a_key_that_is_not_there_cannot_be_set(home: Path) -> None:
    with pond(home, keys=BOTH, key_id="old") as lake:
        with pytest.raises(KeyNotFound, match="'none' is not among those given: new, old"):
            lake.store.set_key(NAME, "none")
        with pytest.raises(NotFoundError, match="there is no database 'nope'"):
            lake.store.set_key("nope", "new")
        lake.keys = None
        lake.reopen()
        with pytest.raises(KeyNotFound, match="there are no keys"):
            lake.store.set_key(NAME, "new")
        lake.store.close()
        with Store.open(lake.home / LAKE, mode="r", keys=BOTH) as store, pytest.raises(ReadOnlyError):
            store.set_key(NAME, "new")


@pytest.mark.parametrize("keys", [None, BOTH])
def test_a_database_is_not_made_with_a_key_that_is_not_there(home: Path, keys: KeyRing | None) -> None:
    with Pond(home, keys=keys) as lake:
        with pytest.raises(KeyNotFound, match="'lost'"):
            lake.create(key_id="lost")
        assert lake.store.databases() == []
