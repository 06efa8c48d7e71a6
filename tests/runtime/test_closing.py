"""Closing a store closes everything, whatever fails meanwhile, and tells all of it."""

from pathlib import Path
from typing import Any

import pytest

from latewood.catalog.catalog import Catalog
from latewood.catalog.writer import Writer as CatalogWriter
from latewood.errors import ClosedError, DiskFull, LatewoodError, Poisoned, StorageError
from latewood.fs.file import PosixFile
from latewood.fs.locks import PosixLock
from latewood.jobs import WorkerPool
from latewood.log.writer import Writer
from latewood.runtime import Store
from latewood.runtime.reader import DatabaseReader
from latewood.runtime.shard import Shard

SHARDS = 3


def filled(root: Path) -> Store:
    """A store with a database whose shards all have something to store when they are closed, and a reader."""
    store = Store.open(root)
    database = store.create_database("clicks", shards=SHARDS)
    for number in range(2 * SHARDS):
        database.append(b"%d" % number)
    reader = database.reader("billing")
    reader.poll()
    return store


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no room for a manifest."""
    pwrite = PosixFile.pwrite

    def refusing(file: PosixFile, data: Any, offset: int) -> None:
        if file.path.name.startswith("manifest."):
            raise DiskFull(f"{file.path}: No space left on device; free some space and try again")
        pwrite(file, data, offset)

    monkeypatch.setattr(PosixFile, "pwrite", refusing)


def test_on_a_full_disk_every_shard_is_closed_and_every_failure_told(root: Path) -> None:
    store = filled(root)
    with pytest.MonkeyPatch.context() as monkeypatch:
        full(monkeypatch)
        with pytest.raises(DiskFull) as caught:
            store.close()
    told = [str(caught.value), *caught.value.__notes__]
    assert sorted({part for text in told for part in text.split("/") if part.startswith("0000")}) == [
        "00000",
        "00000001-clicks",
        "00001",
        "00002",
    ]
    with Store.open(root) as again:  # Nothing is locked by this process.
        assert len(list(again.database("clicks").scan())) == 2 * SHARDS
        again.database("clicks").append(b"more")
        again.database("clicks").reader("billing").close()


def test_a_log_whose_last_records_are_in_doubt_comes_before_a_full_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(root)
    full(monkeypatch)
    store.database("clicks").shards[2].log._writer.durability.poison(OSError("the disk is gone"))
    with pytest.raises(Poisoned, match="the disk is gone") as caught:
        store.close()
    assert len([note for note in caught.value.__notes__ if "DiskFull" in note]) == 2


PARTS: list[tuple[type, str]] = [
    (Writer, "close"),
    (PosixLock, "close"),
    (DatabaseReader, "close"),
    (Shard, "close"),
    (CatalogWriter, "stop"),
    (Catalog, "close"),
    (WorkerPool, "stop"),
]


@pytest.mark.parametrize(("kind", "name"), PARTS, ids=[f"{kind.__name__}.{name}" for kind, name in PARTS])
@pytest.mark.parametrize("error", [DiskFull, Poisoned, KeyboardInterrupt])
def test_a_failure_at_any_part_keeps_nothing_open(
    root: Path, kind: type, name: str, error: type[BaseException]
) -> None:
    """Each part is closed as usual and fails then, as often as there are of them."""
    store = filled(root)
    store.start_workers(1)
    done, failed = getattr(kind, name), list[object]()

    def failing(part: Any, *arguments: Any) -> None:
        done(part, *arguments)
        if part not in failed:
            failed.append(part)
            raise error(f"closing {len(failed)}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, failing)
        with pytest.raises(error, match="closing 1") as caught:
            store.close()
        told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
        assert all(any(f"closing {number}" in text for text in told) for number in range(1, len(failed) + 1))
        store.close()
    with Store.open(root) as again:
        assert len(list(again.database("clicks").scan())) == 2 * SHARDS
        again.database("clicks").reader("billing").close()


def test_a_shard_is_not_opened_once_its_store_is_closed(root: Path) -> None:
    store = filled(root)
    shard = store.database("clicks").shards[0]
    store.close()
    fresh = Store.open(root)
    idle = fresh.database("clicks").shards[0]
    fresh.close()
    for one in (shard, idle):
        with pytest.raises(ClosedError):
            _ = one.log.next_sequence
    Store.open(root).close()


def test_what_is_raised_is_an_error_of_ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(root)
    full(monkeypatch)
    with pytest.raises(LatewoodError):
        store.close()


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, ClosedError])
def test_what_a_block_raised_is_not_hidden_by_a_full_disk(root: Path, raised: type[BaseException]) -> None:
    filled(root).close()

    def block(monkeypatch: pytest.MonkeyPatch) -> None:
        with Store.open(root) as store:
            for number in range(SHARDS):
                store.database("clicks").append(b"%d" % number)
            full(monkeypatch)
            raise raised("of the block")

    with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(raised, match="of the block") as caught:
        block(monkeypatch)
    assert sum("DiskFull" in note for note in caught.value.__notes__) == SHARDS
    with Store.open(root) as again:
        assert len(list(again.database("clicks").scan())) == 3 * SHARDS


def test_an_input_output_error_of_one_shard_of_eight_is_told_and_keeps_nothing_open(root: Path) -> None:
    store = Store.open(root)
    database = store.create_database("clicks", shards=8, segment_bytes_max=4096)
    for number in range(8):
        database.append(b"%d" % number)
    sync = PosixFile.sync_and_note

    def failing(file: PosixFile, *arguments: Any, **named: Any) -> None:
        if "/00005/segments/" in str(file.path):
            raise StorageError(f"{file.path}: Input/output error")
        sync(file, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PosixFile, "sync_and_note", failing)
        with pytest.raises(Poisoned, match="Input/output error") as caught:
            store.close()
    assert "/00005" in str(caught.value)
    assert not hasattr(caught.value, "__notes__")
    with Store.open(root) as again:
        assert len(list(again.database("clicks").scan())) == 8
        again.database("clicks").append_many([b"more"] * 8)
