"""What a later program wrote in a store is refused by everything, called damage by nothing, and never touched."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from latewood.archive import chunk as chunk_format
from latewood.catalog import check_file
from latewood.catalog.description import load_description
from latewood.catalog.tables import RUNTIME_STATE, WAL_STATE, RuntimeRecord, WalStateKey
from latewood.errors import UnsupportedVersion
from latewood.fs import PosixFS
from latewood.kernel import crc32c
from latewood.runtime import Store
from latewood.runtime.remake import remake_catalog
from tests.catalog.test_migrate import put_raw
from tests.cli.shell import complaint
from tests.runtime.pond import LAKE, NAME, Pond, pond

TEXT = "version 99 is not known to this Latewood; upgrade this program"


def files_of(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (home / LAKE).rglob("*") if path.is_file() and is_kept(path)}


def is_kept(path: Path) -> bool:
    return path.suffix not in (".lock", ".writer") and path.name not in ("wake", "catalog.mdb-lock")


@pytest.fixture
def of_later_chunks(home: Path, monkeypatch: pytest.MonkeyPatch) -> Pond:
    """A store of whose chunks the last ones were made by a later program."""
    with pond(home) as lake:
        lake.fill(30)
        lake.run("flush")
        lake.fill(30)
        with monkeypatch.context() as patch:
            patch.setattr(chunk_format, "VERSION", 99)
            lake.run("flush")
        return lake


@pytest.mark.parametrize("kind", ["verify", "compact", "mend", "checkpoint"])
def test_a_newer_chunk_is_refused_by_jobs_and_left_as_it_is(of_later_chunks: Pond, kind: str) -> None:
    lake = of_later_chunks
    lake.reopen()
    rows, files = lake.rows(), {path: path.read_bytes() for path in lake.files()}
    job_id = lake.enqueue(kind)
    lake.settle()
    job = lake.store.jobs.get(job_id)
    assert job.last_error is not None
    assert job.last_error.kind == "UnsupportedVersion"
    assert TEXT in job.last_error.message
    assert lake.rows() == rows
    assert {path: path.read_bytes() for path in lake.files()} == files
    lake.store.close()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_newer_chunk_is_refused_by_a_rebuild_of_the_catalog(of_later_chunks: Pond, *, dry_run: bool) -> None:
    lake = of_later_chunks
    before = files_of(lake.home)
    with pytest.raises(UnsupportedVersion, match=TEXT):
        remake_catalog(lake.home / LAKE, dry_run=dry_run)
    assert files_of(lake.home) == before


def newer_format(path: Path) -> None:
    key = RUNTIME_STATE.pack_key("environment")
    value = RUNTIME_STATE.encode(key, RuntimeRecord(format=99))
    put_raw(path, [{"table": "runtime_state", "key": key.hex(), "value": value.hex()}])


def newer_table(path: Path) -> None:
    key = RUNTIME_STATE.pack_key("environment")
    value = RUNTIME_STATE.encode(key, RuntimeRecord(table_versions={"wal_state": 99}))
    put_raw(path, [{"table": "runtime_state", "key": key.hex(), "value": value.hex()}])


def newer_row(path: Path) -> None:
    key = WAL_STATE.pack_key(WalStateKey(1, 0))
    body, head = b"\x90", (99).to_bytes(2, "little")
    summed = crc32c(body, crc32c(b"wal_state\0" + key + head)).to_bytes(4, "little")
    put_raw(path, [{"table": "wal_state", "key": key.hex(), "value": (head + summed + body).hex()}])


@pytest.mark.parametrize("change", [newer_format, newer_table, newer_row])
def test_a_newer_catalog_is_not_checked_and_not_made_again(home: Path, change: Callable[[Path], None]) -> None:
    with pond(home) as lake:
        lake.fill(9)
    root = home / LAKE
    change(root / "catalog.mdb")
    before = files_of(home)
    with pytest.raises(UnsupportedVersion, match=TEXT):
        check_file(root / "catalog.mdb")
    assert TEXT in complaint("catalog", "check", root, code=1)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedVersion, match=TEXT):
            remake_catalog(root, dry_run=dry_run)
    assert TEXT in complaint("rebuild", "--catalog", root, "--yes", code=1)
    assert files_of(home) == before


def test_a_newer_description_of_a_database_is_refused_and_left_as_it_is(home: Path) -> None:
    with pond(home) as lake:
        lake.fill(9)
        path = lake.db_dir / "database.json"
        stored = json.loads(path.read_text())
        path.write_text(json.dumps({**stored, "version": 99}))
        before = path.read_bytes()
        with pytest.raises(UnsupportedVersion):
            load_description(PosixFS(), path)
        with pytest.raises(UnsupportedVersion, match=TEXT):
            lake.store.drain(NAME)
        assert lake.db.append(b"x"), "nothing was changed, in the catalog neither"
    with pytest.raises(UnsupportedVersion, match=TEXT):
        remake_catalog(home / LAKE)
    assert path.read_bytes() == before
    with Store.open(home / LAKE, mode="r") as store:
        assert type(store.database(NAME).record.status).__name__ == "DbActive"
