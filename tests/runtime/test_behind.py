"""A shard's log that ends before the store's chunks do: restored from an older copy, or gone."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from latewood.archive.log_check import ChunkFiles, log_behind
from latewood.archive.names import parse_file_name
from latewood.archive.tier import Tier
from latewood.errors import (
    CatalogBehind,
    CorruptError,
    DataLost,
    Locked,
    LogBehind,
    StorageError,
    TierUnavailable,
    UsageError,
)
from latewood.format.identity import Owner
from latewood.fs import PosixFS
from latewood.jobs.handlers.report import load_report
from latewood.log.identity import stranger_reason
from latewood.queue import open_queue
from latewood.runtime import Store
from latewood.runtime.continuation import Continuation
from latewood.runtime.remake import remake_catalog
from tests.runtime.pond import LAKE, NAME, Pond, pond

OLD, NEW = 100, 100


class Scene(NamedTuple):
    """A store of two shards, whose chunks have `OLD + NEW` records of each, and its shards as they were at `OLD`."""

    lake: Pond
    past: Path

    @property
    def shards(self) -> Path:
        return self.lake.home / LAKE / "databases" / f"00000001-{NAME}" / "shards"


@pytest.fixture
def scene(home: Path) -> Iterator[Scene]:
    with pond(home) as lake:
        for _ in range(2):
            lake.append_many([b"old-%d" % number for number in range(OLD)])
        lake.store.close()
        scene = Scene(lake, home / "past")
        shutil.copytree(scene.shards, scene.past)
        lake.store = lake._open()
        for _ in range(2):
            lake.append_many([b"new-%d" % number for number in range(NEW)])
        lake.run("flush")
        lake.run("checkpoint")
        yield scene


def restored(scene: Scene) -> None:
    """The shards as they were before the last flush."""
    shutil.rmtree(scene.shards)
    shutil.copytree(scene.past, scene.shards)


def deleted(scene: Scene) -> None:
    """The directory of every shard is gone."""
    for number in range(2):
        shutil.rmtree(scene.shards / f"{number:05}")


def emptied(scene: Scene) -> None:
    """The directory of every shard is there, and empty."""
    deleted(scene)
    for number in range(2):
        (scene.shards / f"{number:05}").mkdir()


def made_anew(scene: Scene) -> None:
    """A log that was made anew stands in the place of each."""
    deleted(scene)
    for number in range(2):
        open_queue(scene.shards / f"{number:05}", owner=Owner.STORE).close()


def grown(scene: Scene) -> None:
    """An older copy was restored, and appended to by somebody else than the store."""
    restored(scene)
    for number in range(2):
        with open_queue(scene.shards / f"{number:05}", segment_bytes_max=1 << 20, owner=Owner.STORE) as log:
            log.append_many([b"stray"] * (OLD + NEW))


LOSSES = [restored, deleted, emptied, made_anew]
Loss = Callable[[Scene], None]


def befallen(scene: Scene, loss: Loss) -> Pond:
    """Close the store, let it happen, and open it again."""
    scene.lake.store.close()
    loss(scene)
    scene.lake.store = scene.lake._open()
    return scene.lake


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("loss", [*LOSSES, grown])
def test_a_log_behind_its_chunks_is_not_appended_to_and_not_written(scene: Scene, loss: Loss) -> None:
    lake = befallen(scene, loss)
    before = files_of(scene.shards)
    with pytest.raises(LogBehind, match=r"restore the newer copy of .*latewood rebuild --accept-loss .*lake/clicks"):
        lake.db.append(b"x")
    with pytest.raises(LogBehind):
        lake.db.append_many([b"x"])
    assert files_of(scene.shards) == before


@pytest.mark.parametrize("mode", ["w", "r"])
@pytest.mark.parametrize("loss", [*LOSSES, grown])
def test_chunks_of_a_shard_whose_log_is_behind_are_read_and_then_the_loss_is_told(
    scene: Scene, loss: Loss, mode: Any
) -> None:
    lake = befallen(scene, loss)
    lake.store.close()
    with Store.open(lake.home / LAKE, tier=lake.tier, clock=lake.clock, mode=mode) as store:
        database = store.database(NAME)
        found: list[int] = []
        with pytest.raises(LogBehind):
            found.extend(record.sequence for record in database.scan(shard=1))
        assert found == list(range(OLD + NEW))
        lake.check_records(1, list(database.scan(stop=OLD + NEW, shard=1)))
        with pytest.raises(LogBehind):
            list(database.scan(stop=OLD + NEW + 1))
        lake.check_records(0, list(database.scan(as_of=store.generation, shard=0)))
        assert [stats.next_sequence for stats in database.stats()] == [OLD + NEW] * 2
        assert database.to_arrow(stop=OLD + NEW).num_rows == 2 * (OLD + NEW)
        with pytest.raises(LogBehind):
            database.to_arrow()


def test_a_query_that_a_time_or_nothing_bounds_in_a_shard_is_told_of_the_loss(scene: Scene) -> None:
    newest_ns = max(record.timestamp_ns for record in scene.lake.db.scan())
    lake = befallen(scene, restored)
    later = datetime.fromtimestamp(newest_ns // 10**9 + 3600, UTC)
    for stop in (later, {0: OLD}):
        with pytest.raises(LogBehind):
            list(lake.db.scan(stop=stop))
    assert len(list(lake.db.scan(stop={0: OLD, 1: OLD + NEW}))) == OLD + OLD + NEW
    assert list(lake.db.scan(stop=datetime(1971, 1, 1, tzinfo=UTC))) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_reader_gets_what_is_in_chunks_and_then_the_loss_is_told(scene: Scene, loss: Loss) -> None:
    lake = befallen(scene, loss)
    with lake.db.reader("billing") as reader:
        found = reader.poll(10 * (OLD + NEW))
        assert len(found) == 2 * (OLD + NEW)
        reader.commit()
        with pytest.raises(LogBehind):
            reader.poll()
    with lake.db.reader("billing") as reader:
        assert reader.positions == {0: OLD + NEW, 1: OLD + NEW}


def test_a_shard_of_which_no_chunk_was_made_is_not_made_anew(home: Path) -> None:
    with pond(home, shards=1) as lake:
        lake.append(b"only in the log")
        directory = lake.db_dir / "shards" / "00000"
        lake.store.close()
        shutil.rmtree(directory)
        lake.store = lake._open()
        with pytest.raises(LogBehind, match="is not there, and no chunk was made of it yet"):
            lake.db.append(b"x")
        with pytest.raises(LogBehind):
            list(lake.db.scan())
        assert not directory.exists()


@pytest.mark.parametrize("loss", [*LOSSES, grown])
def test_a_scrub_calls_a_log_behind_its_chunks_damaged(scene: Scene, loss: Loss) -> None:
    lake = befallen(scene, loss)
    lake.run("verify")
    report = load_report(PosixFS(), lake.site.report_dir)
    assert [(found.severity, found.shard) for found in report.findings] == [("damage", 0), ("damage", 1)]
    assert all("restore the newer copy" in found.problem for found in report.findings)
    assert report.files == len(lake.live()), "chunks are checked all the same"


@pytest.mark.parametrize("kind", ["flush", "checkpoint", "retain"])
def test_a_job_that_needs_the_log_fails_and_says_why(scene: Scene, kind: str) -> None:
    lake = befallen(scene, restored)
    job_id = lake.enqueue(kind)
    lake.settle()
    job = lake.store.jobs.get(job_id)
    assert job.last_error is not None
    assert job.last_error.kind == "LogBehind"
    assert job.attempts == 1, "another attempt would meet the same"


def test_a_log_that_was_restored_rightly_goes_on(scene: Scene) -> None:
    lake = scene.lake
    lake.store.close()
    copy = scene.past.with_name("present")
    shutil.copytree(scene.shards, copy)
    lake.store = befallen(scene, deleted).store
    with pytest.raises(LogBehind):
        lake.db.append(b"x")
    shutil.rmtree(scene.shards)
    shutil.copytree(copy, scene.shards)
    lake.append_many([b"next"])
    lake.check()


# -- what the catalog does not know -----------------------------------------------------------------------


@pytest.fixture
def older(home: Path) -> Iterator[Pond]:
    """A store of one shard whose logs and catalog are of before its second flush; its chunks are not."""
    with pond(home, shards=1) as lake:
        lake.append_many([b"old-%d" % number for number in range(OLD)])
        lake.run("flush")
        lake.run("checkpoint")
        lake.store.close()
        root, past = home / LAKE, home / "past"
        shutil.copytree(root, past)
        lake.store = lake._open()
        lake.append_many([b"new-%d" % number for number in range(NEW)])
        lake.run("flush")
        lake.run("checkpoint")
        lake.store.close()
        chunks = Path("databases", f"00000001-{NAME}", "chunks")
        shutil.rmtree(past / chunks)
        shutil.copytree(root / chunks, past / chunks)
        shutil.rmtree(root)
        past.rename(root)
        lake.store = lake._open()
        yield lake


def test_an_older_log_is_not_appended_to_if_a_chunk_that_no_row_names_goes_beyond_it(older: Pond) -> None:
    before = files_of(older.home / LAKE / "databases")
    with pytest.raises(LogBehind, match=r"no row of the catalog names it.*`latewood rebuild --catalog`"):
        older.db.append(b"x")
    found: list[int] = []
    with pytest.raises(LogBehind):
        found.extend(record.sequence for record in older.db.scan())
    assert found == list(range(OLD))
    assert files_of(older.home / LAKE / "databases") == before


def test_an_older_log_is_not_appended_to_though_the_chunks_could_not_be_listed_at_first(
    older: Pond, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_fs: PosixFS, path: Path) -> list[str]:
        raise StorageError(f"{path}: an input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(PosixFS, "list", failing)
        with pytest.raises(StorageError):
            older.db.append(b"x")
    with pytest.raises(LogBehind):
        older.db.append(b"x")


def test_a_chunk_that_no_row_names_and_no_log_has_is_never_an_orphan(older: Pond) -> None:
    names = older.files()
    for kind in ("flush", "compact", "archive"):
        older.enqueue(kind)
        older.settle()
    assert set(names) <= set(older.files())
    older.run("verify")
    report = load_report(PosixFS(), older.site.report_dir)
    assert [found.severity for found in report.findings if found.shard == 0] == ["damage"]


def test_a_catalog_that_is_made_again_counts_what_an_older_one_did_not_know(older: Pond) -> None:
    older.store.close()
    (report,) = remake_catalog(older.home / LAKE).databases
    (problem,) = report.problems
    assert f"ends at {OLD}, and the store had its records up to {OLD + NEW - 1} in chunks" in problem
    older.store = older._open()
    (done,) = continued(older)
    assert done.first_sequence == OLD + NEW
    older.check()
    older.fill(30)
    older.run("flush")
    older.check()


def test_a_loss_can_be_accepted_before_the_chunk_is_counted_and_it_is_counted_later(older: Pond) -> None:
    (done,) = continued(older)
    assert (done.covered, done.first_sequence) == (OLD, OLD + NEW)
    older.run("flush")
    older.store.close()
    remake_catalog(older.home / LAKE)
    older.store = older._open()
    older.check()


def test_a_chunk_of_another_store_that_goes_beyond_the_log_keeps_nothing_back(scene: Scene) -> None:
    (name,) = [parse_file_name(path.name) for path in scene.lake.files() if path.name.startswith("00000-")]
    assert name is not None
    with pond(scene.lake.home / "other", shards=1) as other:
        other.append_many([b"theirs"] * 10)
        other.run("flush")
        (theirs,) = other.files()
        beyond = name._replace(sequence_min=1000, sequence_max=1009, token="0" * 32)
        shutil.copyfile(theirs, scene.lake.db_dir / "chunks" / beyond.file_name)
    scene.lake.reopen()
    scene.lake.append(b"next")


def test_objects_of_a_newer_store_are_damage_to_an_older_one(home: Path) -> None:
    with pond(home, shards=1) as lake:
        lake.append_many([b"old"] * OLD)
        lake.store.close()
        shutil.copytree(home / LAKE, home / "past")
        lake.store = lake._open()
        for kind in ("flush", "archive"):
            lake.run(kind)
        lake.append_many([b"new"] * NEW)
        for kind in ("flush", "archive"):
            lake.run(kind)
        lake.store.close()
        shutil.rmtree(home / LAKE)
        (home / "past").rename(home / LAKE)
        lake.store = lake._open()
        lake.run("verify")
        report = load_report(PosixFS(), lake.site.report_dir)
        assert [(found.severity, found.problem.partition(":")[0]) for found in report.findings] == [
            ("warning", "no row names this object; it may be an only copy"),
            ("damage", "no row names this object, and the log ends before its records"),
        ]


# -- a catalog that is older than the logs and the chunks ---------------------------------------------------


def outdated(lake: Pond, *, archived: bool = False) -> Pond:
    """A store whose catalog is of before its second flush; its logs and chunks are not."""
    catalog = lake.home / LAKE / "catalog.mdb"
    kinds = ("flush", "archive", "evict", "checkpoint") if archived else ("flush", "checkpoint")
    lake.append_many([b"old-%d" % number for number in range(OLD)])
    for kind in kinds:
        lake.run(kind)
    lake.store.close()
    shutil.copyfile(catalog, lake.home / "older.mdb")
    lake.store = lake._open()
    lake.append_many([b"new-%d" % number for number in range(NEW)])
    for kind in kinds:
        lake.run(kind)
    lake.append_many([b"last-%d" % number for number in range(10)])
    lake.store.close()
    shutil.copyfile(lake.home / "older.mdb", catalog)
    lake.store = lake._open()
    return lake


@pytest.fixture
def stale(home: Path) -> Iterator[Pond]:
    with pond(home, shards=1) as lake:
        yield outdated(lake)


def test_an_older_catalog_is_refused_and_what_helps_is_named(stale: Pond) -> None:
    before = files_of(stale.home / LAKE / "databases")
    with pytest.raises(
        CatalogBehind, match=rf"older than its chunks.*`latewood rebuild --catalog {stale.home / LAKE}`"
    ):
        stale.db.append(b"x")
    with pytest.raises(CatalogBehind):
        stale.db.append_many([b"x"])
    assert files_of(stale.home / LAKE / "databases") == before


@pytest.mark.parametrize("mode", ["w", "r"])
def test_what_an_older_catalog_knows_is_read_and_then_the_rest_is_told(stale: Pond, mode: Any) -> None:
    stale.store.close()
    with Store.open(stale.home / LAKE, tier=stale.tier, clock=stale.clock, mode=mode) as store:
        found: list[int] = []
        with pytest.raises(CatalogBehind):
            found.extend(record.sequence for record in store.database(NAME).scan())
        assert found == list(range(OLD))
        assert len(list(store.database(NAME).scan(stop=OLD))) == OLD
        with store.database(NAME).reader("billing") as reader:
            assert [record.sequence for record in reader.poll(10 * OLD)] == list(range(OLD))
            with pytest.raises(CatalogBehind):
                reader.poll()


def test_a_scrub_calls_an_older_catalog_damage_and_names_what_helps(stale: Pond) -> None:
    stale.run("verify")
    report = load_report(PosixFS(), stale.site.report_dir)
    assert [found.severity for found in report.findings] == ["damage", "warning"]
    assert all(f"`latewood rebuild --catalog {stale.home / LAKE}`" in found.problem for found in report.findings)


def test_no_log_is_given_up_for_an_older_catalog(stale: Pond) -> None:
    with pytest.raises(CatalogBehind):
        stale.store.logs_behind(NAME)


def test_a_catalog_that_is_made_again_has_what_an_older_one_lacked(stale: Pond) -> None:
    names = stale.files()
    for kind in ("flush", "compact", "archive"):
        stale.enqueue(kind)
        stale.settle()
    assert set(names) <= set(stale.files()), "nothing is an orphan"
    stale.store.close()
    assert remake_catalog(stale.home / LAKE).is_whole
    stale.store = stale._open()
    stale.check()
    stale.fill(30)
    for kind in ("flush", "checkpoint", "compact", "archive", "evict"):
        stale.run(kind)
        stale.check()


def test_chunks_that_only_the_archive_has_are_damage_to_an_older_catalog(home: Path) -> None:
    with pond(home, shards=1) as lake:
        outdated(lake, archived=True)
        lake.run("verify")
        report = load_report(PosixFS(), lake.site.report_dir)
        told = [found.problem for found in report.findings if found.severity == "damage"]
        assert len(told) == 2
        assert all(f"`latewood rebuild --catalog {home / LAKE}`" in problem for problem in told)


def test_a_reader_gets_what_lies_before_a_gap_and_then_the_gap_is_told(home: Path) -> None:
    with pond(home, shards=1) as lake:
        outdated(lake, archived=True)
        with lake.db.reader("billing") as reader:
            assert [record.sequence for record in reader.poll(10 * OLD)] == list(range(OLD))
            with pytest.raises(DataLost, match=f"records {OLD} to {OLD + NEW - 1}") as told:
                reader.poll()
            assert f"`latewood rebuild --catalog {home / LAKE}`" in told.value.__notes__[0]
        with lake.db.reader("audit") as reader:
            found: list[int] = []
            with pytest.raises(DataLost):
                found.extend(record.sequence for record in reader)
            assert found == list(range(OLD))
        found = []
        with pytest.raises(DataLost):
            found.extend(record.sequence for record in lake.db.scan())
        assert found == list(range(OLD))


def test_a_reader_gets_what_lies_before_a_damaged_chunk_and_then_the_damage_is_told(home: Path) -> None:
    with pond(home, shards=1) as lake:
        for _ in range(2):
            lake.append_many([b"record"] * OLD)
            lake.run("flush")
            lake.run("checkpoint")
        damaged = max(lake.files())
        damaged.write_bytes(bytes(damaged.stat().st_size))
        with lake.db.reader("billing") as reader:
            assert [record.sequence for record in reader.poll(10 * OLD)] == list(range(OLD))
            with pytest.raises(CorruptError, match=damaged.name):
                reader.poll()


def test_a_store_that_is_read_beside_its_writer_never_calls_the_catalog_older(home: Path) -> None:
    with pond(home, shards=1) as lake:
        lake.append_many([b"old"] * OLD)
        lake.run("flush")
        lake.run("checkpoint")
        path = lake.db_dir / "shards" / "00000"
        seen = lake.db.shards[0]._inventory.covered(0)
        lake.append_many([b"new"] * NEW)
        lake.run("flush")
        lake.run("checkpoint")
        files = ChunkFiles(PosixFS(), lake.db_dir / "chunks")
        now = lake.db.shards[0]._inventory.covered(0)
        assert seen < now
        assert log_behind(PosixFS(), path, seen, None, files, 0, lambda: now) is None
        assert log_behind(PosixFS(), path, seen, None, files, 0, lambda: None) is None
        assert isinstance(log_behind(PosixFS(), path, seen, None, files, 0, lambda: seen), CatalogBehind)


# -- going on without what is lost ------------------------------------------------------------------------


def continued(lake: Pond) -> list[Continuation]:
    return [lake.store.continue_log(NAME, one) for one in lake.store.logs_behind(NAME)]


@pytest.mark.parametrize("loss", LOSSES)
def test_with_its_loss_accepted_a_log_goes_on_behind_the_chunks(scene: Scene, loss: Loss) -> None:
    lake = befallen(scene, loss)
    before = files_of(scene.shards)
    done = continued(lake)
    assert [(one.shard, one.covered, one.first_sequence) for one in done] == [(0, 200, 200), (1, 200, 200)]
    lake.check()
    lake.fill(30)
    for kind in ("flush", "checkpoint", "compact", "archive", "evict", "retain"):
        lake.run(kind)
        lake.reopen()
        lake.check()
    lake.run("verify")
    assert load_report(PosixFS(), lake.site.report_dir).findings == ()
    kept: dict[str, bytes] = {}
    for one in done:
        if one.kept is not None:
            kept |= {f"{one.shard:05}/{name}": data for name, data in files_of(one.kept).items()}
    assert {name: kept[name] for name in before} == before, "what was there is kept"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_log_that_goes_on_is_the_same_log_in_a_new_life(scene: Scene, loss: Loss) -> None:
    before = scene.lake.db.shards[0].log.mark
    assert before is not None
    lake = befallen(scene, loss)
    continued(lake)
    identity = lake.db.shards[0].log.identity
    assert identity is not None
    assert identity.identity == before.identity
    assert identity.life != before.life
    assert stranger_reason(identity, before, 200) is None
    assert stranger_reason(identity, before, 201) is not None, "what the lost log had behind its chunks is not here"


def test_records_of_an_older_copy_that_was_appended_to_are_kept_and_their_numbers_not_given_out(scene: Scene) -> None:
    lake = befallen(scene, grown)
    done = continued(lake)
    assert [one.first_sequence for one in done] == [OLD + OLD + NEW] * 2
    assert done[0].kept is not None
    with open_queue(done[0].kept, mode="r") as log:
        assert [record.payload for record in log.scan(OLD)] == [b"stray"] * (OLD + NEW)
    assert lake.db.append(b"next") == (0, OLD + OLD + NEW)
    lake.check_records(0, list(lake.db.scan(stop=OLD + NEW, shard=0)))
    with pytest.raises(DataLost, match="records 200 to 299 are gone"):
        list(lake.db.scan(start=OLD + NEW, shard=0))
    lake.run("flush")
    lake.run("checkpoint")
    assert [record.payload for record in lake.db.scan(start=300)] == [b"next"]
    assert lake.db.stats()[0].log_first_sequence == 301
    lake.run("verify")
    report = load_report(PosixFS(), lake.site.report_dir)
    assert [(one.severity, one.problem.partition(":")[0]) for one in report.findings] == [
        ("warning", "records 200 to 299 are lost")
    ] * 2


def test_numbers_that_a_reader_has_seen_are_not_given_out_again(scene: Scene) -> None:
    lake = scene.lake
    lake.db.append_many([b"only in the log"] * 50)
    with lake.db.reader("billing") as reader:
        list(reader)
        reader.commit()
    lake = befallen(scene, restored)
    (first, second) = continued(lake)
    assert (first.first_sequence, second.first_sequence) == (250, 200)
    lake.db.append(b"next")
    with lake.db.reader("billing") as reader:
        assert [record.payload for record in reader] == [b"next"]


def test_a_chunk_file_that_no_row_names_keeps_its_numbers_and_its_records(scene: Scene) -> None:
    lake = befallen(scene, restored)
    (name,) = [parse_file_name(path.name) for path in lake.files() if path.name.startswith("00001-")]
    assert name is not None
    stray = name._replace(sequence_min=200, sequence_max=219, token="0" * 32)
    path = lake.db_dir / "chunks" / stray.file_name
    path.write_bytes(b"may be an only copy")
    assert [one.first_sequence for one in continued(lake)] == [200, 220]
    lake.run("flush")
    assert path.exists()


def test_a_log_that_is_open_elsewhere_is_not_replaced(scene: Scene) -> None:
    lake = befallen(scene, restored)
    with open_queue(scene.shards / "00000", owner=Owner.STORE):
        planned = lake.store.logs_behind(NAME)[0]
        with pytest.raises(Locked):
            lake.store.continue_log(NAME, planned)
    assert sorted(path.name for path in scene.shards.iterdir()) == ["00000", "00001"]


def test_a_log_that_is_not_behind_any_more_is_not_replaced(scene: Scene) -> None:
    lake = befallen(scene, restored)
    planned = lake.store.logs_behind(NAME)
    for one in planned:
        lake.store.continue_log(NAME, one)
    lake.append_many([b"behind the chunks"] * 10)
    lake.reopen()
    with pytest.raises(UsageError, match="the log of shard 0 of 'clicks' goes as far as its chunks"):
        lake.store.continue_log(NAME, planned[0])
    lake.check()


class Unreachable:
    """A tier that does not answer until it is told to."""

    def __init__(self, tier: Tier) -> None:
        self._tier, self.name, self.answers = tier, tier.name, False

    def __getattr__(self, name: str) -> Any:
        if not self.answers:
            raise TierUnavailable("it does not answer")
        return getattr(self._tier, name)


def unknown(lake: Pond) -> None:
    """Have the catalog not know which log the shard has, as in a store of an older program."""
    db_id, record = lake.store.databases()[0]
    txn = lake.store.catalog.begin_write()
    txn.put_db(db_id, replace(record, identity=b"\1" * 16, logs=b""))
    txn.commit()


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_log_goes_on_as_the_one_that_its_chunks_name_though_they_cannot_be_read(
    home: Path,
    is_noted: bool,  # noqa: FBT001 - a case
) -> None:
    with pond(home, shards=1) as lake:
        lake.append_many([b"a"] * OLD)
        for kind in ("flush", "checkpoint", "archive", "evict"):
            lake.run(kind)
        if not is_noted:
            unknown(lake)
        lake.store.close()
        shutil.rmtree(home / LAKE / "databases" / f"00000001-{NAME}" / "shards" / "00000")
        lake.tier = Unreachable(lake.tier)
        lake.store = lake._open()
        with pytest.raises(LogBehind):
            lake.db.append(b"x")
        if not is_noted:
            with pytest.raises(TierUnavailable):
                continued(lake)
            lake.tier.answers = True
        assert [one.first_sequence for one in continued(lake)] == [OLD]
        lake.tier.answers = True
        lake.check()
        lake.append(b"next")
        lake.check()


def test_nothing_goes_on_in_a_store_that_is_sound(scene: Scene) -> None:
    assert scene.lake.store.logs_behind(NAME) == []


def test_a_continuation_that_was_cut_is_done_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut before each change of a name: the first run may already have noted that more is covered."""
    lake = befallen(scene, grown)
    for step in range(2):
        with monkeypatch.context() as patch:
            _die_at(patch, step)
            with pytest.raises(KeyboardInterrupt):
                continued(lake)
        lake.reopen()
        with pytest.raises(LogBehind):
            lake.db.append(b"x")
        planned = lake.store.logs_behind(NAME)[0]
        assert planned.first_sequence == OLD + OLD + NEW
    continued(lake)
    assert [stats.next_sequence for stats in lake.db.stats()] == [OLD + OLD + NEW] * 2
    assert sum(path.name.endswith(".old") for path in scene.shards.iterdir()) == 2
    assert not list(scene.shards.glob("*.new"))


def _die_at(patch: pytest.MonkeyPatch, step: int) -> None:
    rename, left = PosixFS.rename, [step]

    def dying(fs: PosixFS, source: Path, target: Path) -> None:
        if target.parent.name == "shards":
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        rename(fs, source, target)

    patch.setattr(PosixFS, "rename", dying)
