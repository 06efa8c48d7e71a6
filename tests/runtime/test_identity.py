"""A store knows which log each of its shards is, and takes no other one for it."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from latewood.catalog import Catalog
from latewood.catalog.description import load_description
from latewood.catalog.tables import DbRecord
from latewood.cli.errors import ExitCode
from latewood.clock import SystemClock
from latewood.errors import AnotherLog, JobFailed, LogBehind
from latewood.format.identity import Owner
from latewood.format.store_layout import DatabaseLayout, StoreLayout
from latewood.fs import PosixFS
from latewood.log.layout import Layout
from latewood.log.rebuild import rebuild
from latewood.queue import open_queue
from latewood.runtime import Store
from latewood.runtime.remake import remake_catalog
from latewood.tasks.engine import LocalEngine, Tools
from tests.cli.shell import row, run

if TYPE_CHECKING:
    from collections.abc import Callable

NAME: Final = "clicks"
COUNT: Final = 10
V1: Final = Path(__file__).parents[1] / "golden" / "v1" / "store"


def fill(root: Path, word: str, count: int = COUNT, shards: int = 2) -> None:
    """Make a store whose records are in its logs alone."""
    with Store.open(root) as store:
        clicks = store.create_database(NAME, shards=shards, keyed=False)
        for _ in range(shards):
            clicks.append_many([b"%s %d" % (word.encode(), number) for number in range(count)], durable=True)


def shard_of(root: Path, number: int, database: int = 1) -> Path:
    return root / "databases" / f"{database:08}-{NAME}" / "shards" / f"{number:05}"


def made_anew(root: Path, _: Path) -> None:
    """The log of a shard was deleted, and made anew by somebody who says that it is a store's."""
    shutil.rmtree(shard_of(root, 0))
    with open_queue(shard_of(root, 0), owner=Owner.STORE) as log:
        log.append_many([b"new"] * 2 * COUNT)


def of_another_store(root: Path, tmp_path: Path) -> None:
    """The log of a shard was replaced by that of a store with a database of the same name."""
    fill(tmp_path / "other", "theirs", 2 * COUNT)
    shutil.rmtree(shard_of(root, 0))
    shutil.copytree(shard_of(tmp_path / "other", 0), shard_of(root, 0))


def exchanged(root: Path, tmp_path: Path) -> None:
    """The logs of two shards changed places."""
    one, two = shard_of(root, 0), shard_of(root, 1)
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)


SWAPS: Final = [made_anew, of_another_store, exchanged]


@pytest.fixture(params=SWAPS, ids=[swap.__name__ for swap in SWAPS])
def swapped(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of whose shard 0 the log is another one; no record of it was ever in a chunk."""
    fill(tmp_path / "lake", "ours")
    swap: Callable[[Path, Path], None] = request.param
    swap(tmp_path / "lake", tmp_path)
    return tmp_path / "lake"


def test_a_shard_whose_log_is_another_one_is_not_appended_to_and_not_written(swapped: Path) -> None:
    before = {path: path.read_bytes() for path in shard_of(swapped, 0).rglob("*") if path.is_file()}
    with Store.open(swapped) as store, pytest.raises(LogBehind, match=r"the log that is there is [0-9a-f]{32}"):
        store.database(NAME).append_many([b"x"] * 2)
    assert {path: path.read_bytes() for path in shard_of(swapped, 0).rglob("*") if path.is_file()} == before


def test_records_of_another_log_are_not_read_as_those_of_a_shard(swapped: Path) -> None:
    with Store.open(swapped, mode="r") as store:
        found: list[bytes] = []
        with pytest.raises(LogBehind):
            found.extend(record.payload for record in store.database(NAME).scan(shard=0, stop=COUNT))
        assert found == []


def test_what_the_error_of_another_log_advises_works_as_printed(swapped: Path) -> None:
    with Store.open(swapped) as store, pytest.raises(LogBehind) as caught:
        store.database(NAME).shards[0].log  # noqa: B018 - opened
    assert f"latewood rebuild --accept-loss {swapped / NAME}" in str(caught.value)
    with Store.open(swapped) as store:
        for planned in store.logs_behind(NAME):
            kept = store.continue_log(NAME, planned).kept
            assert kept is not None
            assert kept.is_dir()
    with Store.open(swapped) as store:
        clicks = store.database(NAME)
        clicks.append_many([b"later"] * 4, durable=True)
        assert clicks.shards[0].log.mark is not None
        assert clicks.shards[0].log.mark.identity == clicks.record.log_identity(0)


def row_of(root: Path) -> DbRecord:
    with Catalog.open(StoreLayout(root).catalog, mode="r") as catalog:
        record = catalog.read(lambda view: view.db(1))
    assert record is not None
    return record


def identities_of(root: Path, shards: int) -> list[bytes]:
    found = []
    for number in range(shards):
        with open_queue(shard_of(root, number), mode="r") as log:
            assert log.mark is not None
            found.append(log.mark.identity)
    return found


def test_the_catalog_names_the_log_of_each_shard_and_the_description_does_too(tmp_path: Path) -> None:
    fill(tmp_path / "lake", "ours")
    row = row_of(tmp_path / "lake")
    assert row.identity is not None
    assert [row.log_identity(shard) for shard in range(2)] == identities_of(tmp_path / "lake", 2)
    description = load_description(PosixFS(), DatabaseLayout(shard_of(tmp_path / "lake", 0).parents[1]).description)
    assert (description.record.identity, description.record.logs) == (row.identity, row.logs)


def test_a_database_that_is_dropped_and_made_anew_and_a_fork_are_others(tmp_path: Path) -> None:
    fill(tmp_path / "lake", "ours")
    with Store.open(tmp_path / "lake") as store:
        first = store.database(NAME).record
        fork = store.fork(NAME, "copy").record
        store.drop(NAME)
        second = store.create_database(NAME, shards=2).record
    known = [first, fork, second]
    assert len({record.identity for record in known}) == len(known)
    assert len({record.log_identity(shard) for record in known for shard in range(2)}) == 2 * len(known)


def test_a_catalog_that_is_made_again_names_the_same_logs(tmp_path: Path) -> None:
    fill(tmp_path / "lake", "ours")
    before = row_of(tmp_path / "lake")
    remake_catalog(tmp_path / "lake")
    after = row_of(tmp_path / "lake")
    assert (after.identity, after.logs) == (before.identity, before.logs)


def test_a_catalog_that_is_made_again_calls_another_log_damage(swapped: Path) -> None:
    (report,) = remake_catalog(swapped, dry_run=True).databases
    assert any("the log that is there is" in problem for problem in report.problems)


def test_what_another_log_has_is_of_no_account_when_the_catalog_is_made_again(tmp_path: Path) -> None:
    fill(tmp_path / "lake", "ours", shards=1)
    shutil.rmtree(shard_of(tmp_path / "lake", 0))
    open_queue(shard_of(tmp_path / "lake", 0), owner=Owner.STORE, first_sequence=1000).close()
    (report,) = remake_catalog(tmp_path / "lake").databases
    assert report.gaps == []
    with Catalog.open(StoreLayout(tmp_path / "lake").catalog, mode="r") as catalog:
        state = catalog.read(lambda view: view.wal_state(1, 0))
    assert state is not None
    assert state.last_applied_sequence == 0


def archived(root: Path, archive: Path, word: str) -> None:
    """Make a store whose records are in an archive, too."""
    root.mkdir()
    (root / "latewood.toml").write_text(f'[archive]\nurl = "{archive}"\n')
    fill(root, word, shards=1)
    with Store.open(root) as store:
        for kind in ("flush", "checkpoint", "archive"):
            store.run_job(kind, NAME, **({"seal": True} if kind == "flush" else {}))


def test_objects_of_a_store_that_was_deleted_are_not_those_of_one_that_is_made_anew(tmp_path: Path) -> None:
    """Both have the same archive, and a database of one name and number; the new one has no chunk yet."""
    lake = tmp_path / "lake"
    archived(lake, tmp_path / "archive", "old")
    shutil.rmtree(lake)
    lake.mkdir()
    (lake / "latewood.toml").write_text(f'[archive]\nurl = "{tmp_path / "archive"}"\n')
    fill(lake, "new", 2, shards=1)
    (report,) = remake_catalog(lake).databases
    assert report.chunks == 0
    assert ["of another store (log identity " in problem for problem in report.problems] == [True]
    with Store.open(lake) as store:
        assert [record.payload for record in store.database(NAME).scan()] == [b"new 0", b"new 1"]


def by_command(path: Path, _: pytest.MonkeyPatch) -> None:
    done = run("rebuild", path, "--yes")
    assert (done.exit_code, "no identity was found" in done.stderr) == (0, False)


def by_spark(path: Path, patch: pytest.MonkeyPatch) -> None:
    """The driver's part; what executors do is done here."""
    from latewood.runtime import spark_jobs  # noqa: PLC0415 - pyspark takes its time to load

    tools = Tools(fs=PosixFS(), clock=SystemClock(), random_bytes=bytes, tier=lambda: pytest.fail("no archive"))
    patch.setattr(spark_jobs, "engine_of", lambda *_, **__: LocalEngine(tools))
    spark: Any = None
    assert spark_jobs.rebuild_manifest(spark, path).identity is not None


@pytest.mark.parametrize("rebuilt", [by_command, by_spark])
def test_a_rebuild_gives_a_shard_that_lost_its_identity_the_one_that_its_database_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuilt: "Callable[[Path, pytest.MonkeyPatch], None]"
) -> None:
    fill(tmp_path / "lake", "ours")
    for lost in ("identity", "manifest.1", "manifest.2", "manifest.current"):
        (shard_of(tmp_path / "lake", 0) / lost).unlink(missing_ok=True)
    rebuilt(shard_of(tmp_path / "lake", 0), monkeypatch)
    with Store.open(tmp_path / "lake") as store:
        clicks = store.database(NAME)
        assert len(list(clicks.scan(shard=0))) == COUNT
        clicks.append_many([b"x"] * 2)


# -- readers ----------------------------------------------------------------------------------------------


@pytest.fixture
def read_elsewhere(tmp_path: Path) -> Path:
    """A store whose database was dropped and made anew, and has the file of a reader of the one that is gone."""
    lake = tmp_path / "lake"
    with Store.open(lake) as store:
        old = store.create_database(NAME, keyed=False)
        old.append_many([b"old"] * COUNT)
        old.reader("billing", "latest").close()
        kept = store.layout.located(old.record.options.wal_dir)
        store.drop(NAME)
        new = store.create_database(NAME, keyed=False, retention_max_bytes=1)
        new.append_many([b"new"] * COUNT, durable=True)
        layout = store.layout.located(new.record.options.wal_dir)
        shutil.copytree(kept.readers, layout.readers, dirs_exist_ok=True)
    return lake


def test_nothing_of_a_database_is_let_go_while_a_reader_has_read_another_one(read_elsewhere: Path) -> None:
    with Store.open(read_elsewhere) as store:
        for kind in ("flush", "checkpoint"):
            store.run_job(kind, NAME, **({"seal": True} if kind == "flush" else {}))
        with pytest.raises(JobFailed, match="the position is of the log"):
            store.run_job("retain", NAME)
        assert len(list(store.database(NAME).scan())) == COUNT


def test_a_reader_of_another_database_is_listed_and_found(read_elsewhere: Path) -> None:
    place = str(read_elsewhere / NAME)
    for command in ("ls", "lag"):
        listed = run("readers", command, place, "--format", "jsonl")
        assert listed.exit_code == ExitCode.CORRUPT
        assert json.loads(listed.stdout)["lag"] is None
        assert f"latewood readers seek {place} billing --earliest" in listed.stderr
    scrubbed = run("verify", read_elsewhere)
    assert (scrubbed.exit_code, "the position is of the log" in scrubbed.stdout) == (ExitCode.CORRUPT, True)


def test_a_scrub_finds_a_reader_whose_file_is_damaged_once(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    fill(lake, "ours")
    with Store.open(lake) as store:
        store.database(NAME).reader("billing").close()
    file = shard_of(lake, 0).parents[1] / "readers" / "billing" / "00001.meta"
    file.write_bytes(b"?" * file.stat().st_size)
    scrubbed = run("verify", lake)
    assert scrubbed.exit_code == ExitCode.CORRUPT
    assert [finding["where"] for finding in json.loads(scrubbed.stdout)["findings"]] == [str(file)]


def test_what_the_error_of_a_reader_advises_works_as_printed(read_elsewhere: Path) -> None:
    with Store.open(read_elsewhere) as store, pytest.raises(AnotherLog) as caught:
        store.database(NAME).reader("billing")
    command = str(caught.value).partition("`latewood ")[2].partition("`")[0]
    assert row(*command.split())["lag"] == COUNT
    with Store.open(read_elsewhere) as store:
        assert len(list(store.database(NAME).reader("billing"))) == COUNT
    assert run("readers", "ls", str(read_elsewhere / NAME)).exit_code == ExitCode.OK
    assert run("verify", read_elsewhere).exit_code == ExitCode.OK


# -- what an older program made ---------------------------------------------------------------------------


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A store as version 1 of everything left it."""
    return Path(shutil.copytree(V1 / "closed", tmp_path / "v1")) / "lake"


def rows_of(root: Path, mode: Any = "r") -> list[DbRecord]:
    with Catalog.open(StoreLayout(root).catalog, mode=mode) as catalog:
        return catalog.read(lambda view: [record for _, record in view.dbs()])


def test_a_database_of_an_older_program_gets_identities_when_its_store_is_opened_to_write(older: Path) -> None:
    assert [record.identity for record in rows_of(older)] == [None] * len(rows_of(older))
    with Store.open(older) as store:
        names = [record.name for _, record in store.databases()]
        for name in names:
            clicks = store.database(name)
            logs = [shard.log.mark.identity for shard in clicks.shards if shard.log.mark]
            assert logs == [clicks.record.log_identity(shard) for shard in range(clicks.record.wal_shards)]
    described = [load_description(PosixFS(), path).record for path in sorted(older.glob("databases/*/database.json"))]
    rows = [record for record in rows_of(older) if record.identity]
    assert [record.name for record in rows] == names
    assert [record.logs for record in described if record.identity] == [record.logs for record in rows]


def test_reading_a_store_of_an_older_program_notes_no_identity(older: Path) -> None:
    before = {path: path.read_bytes() for path in older.rglob("*") if path.is_file()}
    with Store.open(older, mode="r") as store:
        for _, record in store.databases():
            list(store.database(record.name).scan())
    after = {path: path.read_bytes() for path in before}
    assert after == before


def test_a_log_that_was_rebuilt_before_its_store_was_opened_keeps_the_identity_that_it_got_then(older: Path) -> None:
    (first, *_) = sorted(older.glob("databases/*/shards/*"))
    rebuild(PosixFS(), Layout(first))
    with open_queue(first, mode="r") as log:
        assert log.mark is not None
        given = log.mark.identity
    with Store.open(older) as store:
        name = first.parents[1].name.partition("-")[2]
        assert store.database(name).record.log_identity(0) == given
        store.database(name).append_many([b"x"] * 4)


def test_identities_that_a_cut_left_in_the_description_alone_are_those_of_the_catalog(older: Path) -> None:
    with Store.open(older) as store:
        known = {record.name: store.database(record.name).record.logs for _, record in store.databases()}
    shutil.copyfile(V1 / "closed" / "lake" / "catalog.mdb", older / "catalog.mdb")  # Before the row was committed.
    with Store.open(older) as store:
        assert {record.name: store.database(record.name).record.logs for _, record in store.databases()} == known
