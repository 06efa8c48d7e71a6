"""Which directory a store is in: one that is moved or replaced is missed before anything more is acknowledged."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from latewood.archive.directory import DirectoryTier
from latewood.archive.source import BytesSource, digest_of
from latewood.catalog import Catalog
from latewood.catalog.env import LMDBEnv
from latewood.errors import CorruptError, DirectoryReplaced, JobFailed, LatewoodError, Locked, NotFoundError
from latewood.format.segment import HEADER_SIZE
from latewood.fs import PosixFS
from latewood.fs import root as root_module
from latewood.log import Log, Owner
from latewood.log.layout import Layout
from latewood.log.rebuild import begin_life, rebuild
from latewood.queue import open_queue
from latewood.runtime import Database, Store
from latewood.runtime.remake import remake_catalog
from tests.forking import fork
from tests.runtime.disk import quick_disk

NAME: Final = "clicks"
SHARDS: Final = 2


def payloads(db: Database) -> list[bytes]:
    return sorted(record.payload for record in db.scan())


def made(root: Path | str, payload: bytes = b"kept", **options: Any) -> Store:
    store = Store.open(root, **options)
    db = store.create_database(NAME, shards=SHARDS)
    for _ in range(4):
        db.append(payload, durable=True)
    return store


class Lake:
    """A store that is open, and what happens to its directory meanwhile."""

    def __init__(self, home: Path) -> None:
        self.home, self.root, self.elsewhere = home, home / "lake", home / "elsewhere"
        self.store = made(self.root)
        self.db = self.store.database(NAME)

    def move(self) -> None:
        self.root.rename(self.elsewhere)

    def replace_by_another(self) -> None:
        self.move()
        made(self.root, b"another store").close()

    def restore_a_copy(self) -> None:
        shutil.copytree(self.root, self.home / "copy")
        self.move()
        (self.home / "copy").rename(self.root)

    def delete_and_restore(self) -> None:
        shutil.copytree(self.root, self.home / "copy")
        shutil.rmtree(self.root)
        shutil.copytree(self.home / "copy", self.root)

    def state(self) -> dict[str, bytes]:
        files = (path for path in sorted(self.root.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}


EVENTS: Final = [Lake.move, Lake.replace_by_another, Lake.restore_a_copy, Lake.delete_and_restore]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quick_disk(tmp_path) as home:
        lake = Lake(home)
        yield lake
        with suppress(DirectoryReplaced):
            lake.store.close()


def append(lake: Lake) -> None:
    for _ in range(SHARDS):
        lake.db.append(b"late", durable=True)


def flush(lake: Lake) -> None:
    lake.db.append_many([b"late"] * 10)
    lake.db.flush()


def roll(lake: Lake) -> None:
    lake.db.shards[0].log.roll()


def create(lake: Lake) -> None:
    lake.store.create_database("more")


def commit_reader(lake: Lake) -> None:
    lake.db.reader("billing", "earliest")


def run_job(lake: Lake) -> None:
    lake.store.run_job("flush", NAME, seal=True)


@pytest.mark.parametrize("act", [append, flush, roll, create, commit_reader, run_job], ids=lambda act: act.__name__)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_a_store_stops_before_it_acknowledges_more_and_leaves_the_new_directory_alone(
    lake: Lake, event: Callable[[Lake], None], act: Callable[[Lake], None]
) -> None:
    event(lake)
    before = lake.state()
    with pytest.raises(DirectoryReplaced, match=str(lake.root)):
        act(lake)
    for _ in range(2):
        with pytest.raises(LatewoodError):
            append(lake)
    assert lake.state() == before


def test_a_store_where_nothing_is_opened_by_descriptor_stops_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_module, "OPENS_BY_DESCRIPTOR", False)
    lake = Lake(tmp_path)
    lake.replace_by_another()
    before = lake.state()
    for act in (append, create, commit_reader):
        with pytest.raises(DirectoryReplaced):
            act(lake)
    with pytest.raises(DirectoryReplaced):
        lake.store.close()
    assert lake.state() == before


@pytest.mark.parametrize("act", [append, run_job])
def test_a_store_that_was_deleted_before_its_shards_were_opened_calls_none_of_them_behind(
    lake: Lake, act: Callable[[Lake], None]
) -> None:
    lake.store.close()
    lake.store = Store.open(lake.root)
    lake.db = lake.store.database(NAME)
    lake.delete_and_restore()
    with pytest.raises((DirectoryReplaced, JobFailed), match="lake is not what was opened"):
        act(lake)


@pytest.mark.parametrize("event", ["move", "delete", "unlock"])
def test_a_store_whose_directory_is_gone_says_so_once(lake: Lake, event: str, caplog: pytest.LogCaptureFixture) -> None:
    if event == "unlock":
        (lake.root / "catalog.mdb.writer").unlink()
    else:
        lake.move() if event == "move" else shutil.rmtree(lake.root)
    with pytest.raises(DirectoryReplaced) as caught, lake.store:
        append(lake)
    assert getattr(caught.value, "__notes__", []) == []
    assert caplog.messages == []


def test_a_moved_store_opens_where_it_is_with_all_that_was_acknowledged(lake: Lake) -> None:
    lake.move()
    for act in (append, lambda lake: lake.store.close()):
        with pytest.raises(DirectoryReplaced):
            act(lake)
    with Store.open(lake.elsewhere) as store:
        assert payloads(store.database(NAME))[:4] == [b"kept"] * 4
        store.database(NAME).append(b"more", durable=True)


def test_one_shard_that_is_replaced_stops_alone(tmp_path: Path) -> None:
    """An older copy of it comes back, maybe under the same inode."""
    with made(tmp_path / "lake") as store:
        db = store.database(NAME)
        path = db.shards[0].log.path
        shutil.copytree(path, tmp_path / "copy")
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "copy", path)
        outcomes = []
        for _ in range(2 * SHARDS):
            try:
                outcomes.append(db.append(b"late", durable=True)[0])
            except DirectoryReplaced as error:
                assert error.path == path  # noqa: PT017 - every other append is to succeed
        assert outcomes == [1, 1]


def test_a_scan_of_a_shard_whose_place_an_older_copy_took_ends(tmp_path: Path) -> None:
    store = made(tmp_path / "lake")
    db = store.database(NAME)
    path = db.shards[0].log.path
    shutil.copytree(path, tmp_path / "copy")
    for _ in range(2 * SHARDS):
        db.append(b"more", durable=True)
    path.rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "copy", path)
    for scan in (db.scan, db.to_arrow):
        with pytest.raises(DirectoryReplaced, match="shards/00000"):
            list(scan())
    with pytest.raises(DirectoryReplaced):
        store.close()


def test_a_scan_in_a_log_that_went_back_beneath_it_ends(tmp_path: Path) -> None:
    with made(tmp_path / "lake") as store:
        db = store.create_database("more")
        db.append_many([b"written", b"and not durable"])
        (segment,) = db.shards[0].log.path.glob("segments/*/*/*/000000000.q")
        with segment.open("r+b") as file:
            file.seek(HEADER_SIZE)
            file.write(bytes(100))
        with pytest.raises(CorruptError, match="records 0 to 1 were there, and are not any more"):
            list(db.scan())


@pytest.mark.parametrize("mode", ["w", "r"])
def test_a_shard_that_is_replaced_by_another_log_gives_no_record_of_that(tmp_path: Path, mode: Any) -> None:
    """The shard's files are found through the directory of the store, which is still the same."""
    for name, payload in (("lake", b"kept"), ("other", b"another log")):
        made(tmp_path / name, payload).close()
    with Store.open(tmp_path / "lake", mode=mode) as store:
        db = store.database(NAME)
        assert payloads(db) == [b"kept"] * 4
        path = db.shards[0].log.path
        path.rename(tmp_path / "shard")
        shutil.copytree(tmp_path / "other" / path.relative_to(tmp_path / "lake"), path)
        for read in (
            lambda: list(db.scan()),
            lambda: list(db.shards[0].log.scan()),
            lambda: db.reader("billing", "earliest").poll(),
            lambda: db.shards[0].log.find_timestamp(0),
        ):
            with pytest.raises(DirectoryReplaced, match="shards/00000"):
                read()


def test_a_reader_of_a_store_that_is_replaced_is_told(tmp_path: Path) -> None:
    made(tmp_path / "lake").close()
    with Store.open(tmp_path / "lake", mode="r") as store:
        db = store.database(NAME)
        assert payloads(db) == [b"kept"] * 4
        (tmp_path / "lake").rename(tmp_path / "elsewhere")
        made(tmp_path / "lake", b"another store").close()
        with pytest.raises(DirectoryReplaced):
            payloads(db)


def test_two_tenants_that_change_the_directory_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = {}
    for tenant in ("a", "b"):
        (tmp_path / tenant).mkdir()
        monkeypatch.chdir(tmp_path / tenant)
        (tmp_path / tenant / "latewood.toml").touch()
        stores[tenant] = made("lake", tenant.encode())
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for tenant, store in stores.items():
        db = store.database(NAME)
        with db.reader("billing") as reader:
            reader.poll()
            reader.commit()
        store.run_job("flush", NAME, seal=True)
        store.run_job("checkpoint", NAME)
        db.append(tenant.encode(), durable=True)
        store.create_database("more").append(b"x", durable=True)
    for store in stores.values():
        store.close()
    assert list((tmp_path / "other").iterdir()) == []
    for tenant in stores:
        with Store.open(tmp_path / tenant / "lake", mode="r") as store:
            assert payloads(store.database(NAME)) == [tenant.encode()] * 5
            assert payloads(store.database("more")) == [b"x"]


def test_an_archive_by_a_relative_path_is_where_it_was_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tier = DirectoryTier(PosixFS(), Path("remote"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with made(tmp_path / "lake", tier=tier) as store:
        store.run_job("flush", NAME, seal=True)
        store.run_job("archive", NAME)
    assert list((tmp_path / "other").iterdir()) == []
    assert list((tmp_path / "remote").rglob("*.parquet"))


# -- the archive --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_descriptor", [True, False])
def test_an_archive_that_is_replaced_takes_nothing_and_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_descriptor: bool
) -> None:
    monkeypatch.setattr(root_module, "OPENS_BY_DESCRIPTOR", by_descriptor)
    tier = DirectoryTier(PosixFS(), tmp_path / "remote")
    source = BytesSource(b"bytes", Path("memory"))
    tier.put("a/one", source, digest_of(source))
    (tmp_path / "remote").rename(tmp_path / "elsewhere")
    for _ in range(2):
        for attempt in (
            lambda: tier.put("a/two", source, digest_of(source)),
            lambda: tier.get("a/one", 0, 5),
            lambda: tier.head("a/one"),
            lambda: tier.delete("a/one"),
            lambda: list(tier.list()),
            lambda: tier.sweep("a/"),
        ):
            with pytest.raises(DirectoryReplaced, match="remote"):
                attempt()
        (tmp_path / "remote").mkdir(exist_ok=True)
    if by_descriptor:
        assert list((tmp_path / "remote").iterdir()) == []


def test_chunks_stay_on_the_disk_when_the_archive_is_another(tmp_path: Path) -> None:
    tier = DirectoryTier(PosixFS(), tmp_path / "remote")
    with made(tmp_path / "lake", tier=tier) as store:
        store.run_job("flush", NAME, seal=True)
        store.run_job("checkpoint", NAME)
        store.run_job("archive", NAME)
        (tmp_path / "remote").rename(tmp_path / "elsewhere")
        (tmp_path / "remote").mkdir()
        with pytest.raises(JobFailed, match="remote is not what was opened"):
            store.run_job("evict", NAME, now=True)
        assert payloads(store.database(NAME)) == [b"kept"] * 4


def test_a_tier_that_is_not_there_yet_is_found_once_it_is(tmp_path: Path) -> None:
    tier = DirectoryTier(PosixFS(), tmp_path / "remote")
    with pytest.raises(NotFoundError):
        tier.head("a/one")
    source = BytesSource(b"bytes", Path("memory"))
    DirectoryTier(PosixFS(), tmp_path / "remote").put("a/one", source, digest_of(source))
    assert tier.get("a/one", 0, 5) == b"bytes"


def test_a_forked_child_finds_the_archive_anew(tmp_path: Path) -> None:
    tier = DirectoryTier(PosixFS(), tmp_path / "remote")
    source = BytesSource(b"bytes", Path("memory"))
    tier.put("a/one", source, digest_of(source))
    child = fork()
    if child == 0:  # pragma: no cover - another process
        os._exit(0 if tier.get("a/one", 0, 5) == b"bytes" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert tier.get("a/one", 0, 5) == b"bytes"


# -- locks --------------------------------------------------------------------------------------------


def test_the_removal_of_the_lock_file_lets_no_second_store_in(lake: Lake) -> None:
    (lake.root / "catalog.mdb.writer").unlink()
    for attempt in (lambda: Store.open(lake.root), lambda: remake_catalog(lake.root)):
        with pytest.raises(Locked):
            attempt()
    lake.db.append(b"goes on", durable=True)
    with pytest.raises(DirectoryReplaced, match=r"catalog\.mdb\.writer"):
        lake.store.create_database("more")


def remove_catalog(lake: Lake) -> None:
    (lake.root / "catalog.mdb").rename(lake.home / "away.mdb")


def replace_catalog(lake: Lake) -> None:
    shutil.copyfile(lake.root / "catalog.mdb", lake.home / "older.mdb")
    (lake.home / "older.mdb").rename(lake.root / "catalog.mdb")


@pytest.mark.parametrize("act", [append, flush, create, commit_reader, run_job], ids=lambda act: act.__name__)
@pytest.mark.parametrize("event", [remove_catalog, replace_catalog], ids=lambda event: event.__name__)
def test_a_store_whose_catalog_was_removed_or_replaced_acknowledges_nothing_more(
    lake: Lake, event: Callable[[Lake], None], act: Callable[[Lake], None]
) -> None:
    event(lake)
    advice = rf"catalog\.mdb .*`latewood rebuild --catalog {lake.root}`"
    with pytest.raises((DirectoryReplaced, JobFailed), match=advice):
        act(lake)
    with pytest.raises(DirectoryReplaced, match=advice):
        lake.db.append(b"late", durable=True)
    with pytest.raises(DirectoryReplaced, match=advice):
        lake.store.close()
    remake_catalog(lake.root)
    with Store.open(lake.root) as store:
        assert payloads(store.database(NAME)).count(b"kept") == 4


def test_a_shard_whose_lock_file_was_removed_stops(tmp_path: Path) -> None:
    with made(tmp_path / "lake") as store:
        log = store.database(NAME).shards[0].log
        (log.path / "writer.lock").unlink()
        with pytest.raises(DirectoryReplaced, match=r"writer\.lock"):
            log.append(b"late", durable=True)


def second_writer(path: Path) -> None:
    open_queue(path, owner=Owner.STORE).append(b"another writer", durable=True)


def rebuilt(path: Path) -> None:
    rebuild(PosixFS(), Layout(path))


def new_life(path: Path) -> None:
    begin_life(PosixFS(), Layout(path))


@pytest.mark.parametrize("attempt", [second_writer, rebuilt, new_life])
def test_the_removal_of_a_shards_lock_file_lets_nobody_in(tmp_path: Path, attempt: Callable[[Path], None]) -> None:
    """Its directory is not locked.  Of two writers, the first would write over what the second has acknowledged."""
    store = made(tmp_path / "lake")
    with suppress(DirectoryReplaced), store:
        log = store.database(NAME).shards[0].log
        for _ in range(2):
            (log.path / "writer.lock").unlink()
            with pytest.raises(Locked, match="shards/00000 is being written by"):
                attempt(log.path)
        end = log.next_sequence
    with Store.open(tmp_path / "lake") as store:
        assert store.database(NAME).shards[0].end() == end


def test_a_catalog_by_itself_stops_with_its_directory_and_shares_it(tmp_path: Path) -> None:
    with Catalog.open(tmp_path / "home" / "one.mdb"), Catalog.open(tmp_path / "home" / "two.mdb") as catalog:
        catalog.reserve_job_id()
    catalog = Catalog.open(tmp_path / "home" / "one.mdb")
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    for attempt in (catalog.reserve_job_id, catalog.close):
        with pytest.raises(DirectoryReplaced):
            attempt()


def test_a_directory_that_is_replaced_while_lmdb_opens_the_catalog_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "lake").close()
    made(tmp_path / "other", b"another store").close()

    def swapped(*arguments: Any, **options: Any) -> Any:
        (tmp_path / "lake").rename(tmp_path / "elsewhere")
        (tmp_path / "other").rename(tmp_path / "lake")
        return env(*arguments, **options)

    env = LMDBEnv
    with monkeypatch.context() as patched:
        patched.setattr("latewood.catalog.opening.LMDBEnv", swapped)
        with pytest.raises(DirectoryReplaced):
            Store.open(tmp_path / "lake", mode="r")
    with Store.open(tmp_path / "lake", mode="r") as store:
        assert payloads(store.database(NAME)) == [b"another store"] * 4


# -- descriptors --------------------------------------------------------------------------------------


@pytest.mark.needs("proc")
def test_shards_share_the_descriptor_of_the_store(tmp_path: Path) -> None:
    def directories() -> list[str]:
        found = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the names are numbers
            try:
                path = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - not a path of ours
            except FileNotFoundError:
                continue
            found += [path] if Path(path).is_dir() and path.startswith(str(tmp_path)) else []
        return found

    with Store.open(tmp_path / "lake") as store:
        db = store.create_database(NAME, shards=5)
        db.append_many([b"x"] * 20, durable=True)
        assert all(isinstance(shard.log, Log) for shard in db.shards)
        assert directories() == [str(tmp_path / "lake")]
    assert directories() == []
