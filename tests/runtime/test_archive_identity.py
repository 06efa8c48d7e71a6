"""A store works in its own archive alone, and in no directory that is there because a disk is not mounted."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from latewood.archive.identity import read_identity
from latewood.archive.names import IDENTITY_KEY
from latewood.archive.opening import open_tier
from latewood.catalog import Catalog
from latewood.catalog.ops import PutRuntimeState
from latewood.catalog.tables import ARCHIVES, RuntimeRecord
from latewood.errors import AnotherArchive, CorruptError, JobFailed
from latewood.fs import PosixFS
from latewood.jobs.handlers.report import load_report
from latewood.runtime import Store
from latewood.runtime.archive_identity import note_archives
from latewood.runtime.remake import remake_catalog
from tests.archive.servers import moto_server
from tests.runtime.pond import NAME, Pond
from tests.runtime.pond import pond as pond_with

if TYPE_CHECKING:
    from latewood.archive.tier import Tier
    from tests.archive.servers import Server

NUMBERS: Final = count()
REMOTE_JOBS: Final = ("archive", "evict", "hydrate", "verify", "mend")


@pytest.fixture(scope="module")
def moto() -> Iterator["Server"]:
    with moto_server() as server:
        yield server


class Attic:
    """A store in `lake` whose archive is the directory `attic`; each store that is opened opens its archive anew."""

    def __init__(self, home: Path, name: str = "lake") -> None:
        self.home, self.root, self.attic = home, home / name, home / "attic"
        with Store.open(self.root) as store:
            store.create_database(NAME, shards=1, keyed=False)
        self.attic.mkdir(exist_ok=True)
        (self.root / "latewood.toml").write_text(f'[archive]\nurl = "{self.attic}"\n')

    def append(self, *payloads: bytes) -> None:
        with Store.open(self.root) as store:
            store.database(NAME).append_many(list(payloads), durable=True)
            store.run_job("flush", NAME, seal=True)

    def run(self, *kinds: str) -> None:
        with Store.open(self.root) as store:
            for kind in kinds:
                store.run_job(kind, NAME, **({"now": True} if kind == "evict" else {}))

    def payloads(self) -> list[bytes]:
        with Store.open(self.root, mode="r") as store:
            return [record.payload for record in store.database(NAME).scan()]

    def noted(self) -> dict[str, bytes]:
        with Store.open(self.root, mode="r") as store:
            return store.catalog.read(lambda view: view.archives())

    def forget(self) -> None:
        """Have a store as an older program left it: nothing is noted, and the archive has no identity."""
        with Store.open(self.root) as store:
            store.catalog.apply(PutRuntimeState(ARCHIVES, RuntimeRecord()))
        (self.attic / IDENTITY_KEY).unlink()

    def findings(self) -> list[tuple[str, str]]:
        with Store.open(self.root) as store:
            site = store.site_of(store.database(NAME).db_id)
            report = load_report(PosixFS(), site.report_dir)
            assert report is not None
            return [(finding.severity, finding.problem) for finding in report.findings]


@pytest.fixture
def attic(tmp_path: Path) -> Attic:
    made = Attic(tmp_path)
    made.append(b"one", b"two")
    made.run("archive", "evict", "checkpoint")  # What is evicted is in no log any more.
    made.append(b"three")
    return made


def identity_at(path: Path) -> bytes | None:
    return read_identity(open_tier(str(path), PosixFS()))


def test_the_first_archive_job_makes_an_identity_and_notes_it(attic: Attic) -> None:
    identity = identity_at(attic.attic)
    assert identity is not None
    assert attic.noted() == {attic.attic.as_uri(): identity}


def test_a_job_that_has_nothing_to_send_makes_no_archive(tmp_path: Path) -> None:
    made = Attic(tmp_path)
    made.attic.rmdir()
    made.run("archive", "evict", "hydrate", "verify")
    assert not made.attic.exists()
    assert made.noted() == {}


@pytest.mark.parametrize("kind", REMOTE_JOBS)
@pytest.mark.parametrize("is_empty_directory", ["missing", "empty"])
def test_a_disk_that_is_not_mounted_is_no_archive(attic: Attic, kind: str, is_empty_directory: str) -> None:
    files = sorted((attic.root / "databases").rglob("*.parquet"))
    attic.attic.rename(attic.home / "aside")
    if is_empty_directory == "empty":
        attic.attic.mkdir()
    with pytest.raises(JobFailed, match=r"is not the archive of this store.*Is its disk mounted"):
        attic.run(kind)
    assert sorted((attic.root / "databases").rglob("*.parquet")) == files
    assert not attic.attic.exists() or not list(attic.attic.iterdir())
    shutil.rmtree(attic.attic, ignore_errors=True)
    (attic.home / "aside").rename(attic.attic)
    attic.run("archive", "evict")
    assert attic.payloads() == [b"one", b"two", b"three"]
    attic.run("verify")
    assert attic.findings() == []


def test_another_archive_in_the_place_is_refused(attic: Attic) -> None:
    attic.attic.rename(attic.home / "aside")
    other = Attic(attic.home, "other")
    other.append(b"theirs")
    other.run("archive")
    with pytest.raises(JobFailed, match=r"it is archive [0-9a-f]{32}, and the catalog notes [0-9a-f]{32}"):
        attic.run("archive")


def test_reading_says_that_the_directory_is_not_there(attic: Attic) -> None:
    attic.attic.rename(attic.home / "aside")
    with pytest.raises(AnotherArchive, match=f"the archive's directory {attic.attic} is not there"):
        attic.payloads()


def test_reading_says_that_another_archive_is_there(attic: Attic) -> None:
    attic.attic.rename(attic.home / "aside")
    attic.attic.mkdir()
    with pytest.raises(AnotherArchive, match=r"it has no _latewood-archive\.json"):
        attic.payloads()


def test_an_object_that_is_missing_in_the_right_archive_is_damage(attic: Attic) -> None:
    shutil.rmtree(attic.attic / NAME)
    with pytest.raises(CorruptError, match="cannot be found"):
        attic.payloads()


def test_reading_asks_for_no_identity(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.runtime.archive_identity.read_identity", None)
    monkeypatch.setattr("latewood.archive.identity.read_identity", None)
    assert attic.payloads() == [b"one", b"two", b"three"]


def test_purging_in_another_archive_is_refused(attic: Attic) -> None:
    attic.attic.rename(attic.home / "aside")
    with Store.open(attic.root) as store:
        store.drop(NAME)
        with pytest.raises(AnotherArchive):
            store.purge()


def test_a_store_of_an_older_program_adopts_the_archive_that_has_its_objects(attic: Attic) -> None:
    attic.forget()
    attic.run("archive", "evict")
    assert attic.noted() == {attic.attic.as_uri(): identity_at(attic.attic)}
    assert attic.payloads() == [b"one", b"two", b"three"]


@pytest.mark.parametrize("kind", ["archive", "evict", "verify"])
def test_a_store_of_an_older_program_adopts_no_other_archive(attic: Attic, kind: str) -> None:
    attic.forget()
    attic.attic.rename(attic.home / "aside")
    attic.attic.mkdir()
    with pytest.raises(JobFailed, match="it has none of the objects"):
        attic.run(kind)
    assert attic.noted() == {}
    assert not list(attic.attic.iterdir())


def test_a_copy_of_a_store_shares_its_archive(attic: Attic) -> None:
    copy = attic.home / "copy"
    shutil.copytree(attic.root, copy, ignore=shutil.ignore_patterns("*.mdb-lock"))
    attic.run("archive")
    with Store.open(copy) as store:
        store.run_job("archive", NAME)
        assert store.catalog.read(lambda view: view.archives()) == {attic.attic.as_uri(): identity_at(attic.attic)}


# -- the catalog is made again --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_lost", ["lost", "there"])
def test_a_catalog_that_is_made_again_notes_the_archive(attic: Attic, is_lost: str) -> None:
    noted = attic.noted()
    if is_lost == "lost":
        (attic.root / "catalog.mdb").unlink()
    assert remake_catalog(attic.root).is_whole
    assert attic.noted() == noted
    assert attic.payloads() == [b"one", b"two", b"three"]


@pytest.mark.parametrize("is_lost", ["lost", "there"])
def test_no_catalog_is_made_again_without_its_archive(attic: Attic, is_lost: str) -> None:
    if is_lost == "lost":
        (attic.root / "catalog.mdb").unlink()
    attic.attic.rename(attic.home / "aside")
    with pytest.raises(AnotherArchive, match="is not there"):
        remake_catalog(attic.root)
    (attic.home / "aside").rename(attic.attic)
    assert remake_catalog(attic.root).is_whole


def test_a_dry_run_makes_no_identity(attic: Attic) -> None:
    attic.forget()
    remake_catalog(attic.root, dry_run=True)
    assert not (attic.attic / IDENTITY_KEY).exists()


def test_a_catalog_keeps_what_was_noted_first(tmp_path: Path) -> None:
    with Catalog.open(tmp_path / "catalog.mdb") as catalog:
        note_archives(catalog, {"s3://one": b"1" * 16})
        note_archives(catalog, {"s3://two": b"2" * 16})
        with pytest.raises(AnotherArchive):
            note_archives(catalog, {"s3://one": b"3" * 16})
        assert catalog.read(lambda view: view.archives()) == {"s3://one": b"1" * 16, "s3://two": b"2" * 16}


# -- two stores, one archive ----------------------------------------------------------------------------------


def test_objects_of_another_store_are_told_from_those_of_a_newer_copy(tmp_path: Path) -> None:
    one, two = Attic(tmp_path, "one"), Attic(tmp_path, "two")
    one.append(b"one", b"two", b"three")
    one.append(b"four")
    two.append(b"mine")
    one.run("archive")
    two.run("archive")
    two.run("verify")
    ((severity, problem),) = two.findings()
    assert severity == "warning"
    assert "2 objects of another store (log identity " in problem
    assert "archive.url` of its own" in problem
    (report,) = remake_catalog(two.root).databases
    assert len(report.problems) == 1
    assert "2 objects of another store (log identity " in report.problems[0]
    assert (report.chunks, report.gaps) == (1, [])
    assert two.payloads() == [b"mine"]


# -- an object store ------------------------------------------------------------------------------------------


def test_another_prefix_of_an_object_store_is_another_archive(tmp_path: Path, moto: "Server") -> None:
    prefix, aside = f"attic-{next(NUMBERS)}", f"aside-{next(NUMBERS)}"
    right, wrong = moto.tier(prefix), moto.tier(aside)
    wrong.name = right.name  # The address leads elsewhere by now.
    with Pond(tmp_path, tier=right) as pond:
        pond.create()
        pond.fill(30)
        pond.run("flush")
        pond.run("archive")
        pond.fill(30)
        pond.run("flush")
        pond.tier = wrong
        pond.reopen()
        for kind in ("archive", "evict", "verify"):
            with pytest.raises(JobFailed, match=r"it has no _latewood-archive\.json"):
                pond.store.run_job(kind, NAME, **({"now": True} if kind == "evict" else {}))
        assert not list(wrong.list())
        pond.tier = right
        pond.reopen()
        pond.run("archive")
        pond.run("evict")
        pond.run("checkpoint")
        pond.check()
        pond.tier = wrong
        pond.reopen()
        with pytest.raises(AnotherArchive):
            list(pond.db.scan())


# -- what is left in an archive -------------------------------------------------------------------------------


def test_a_retention_keeps_the_identity(tmp_path: Path) -> None:
    with pond_with(tmp_path, retention_max_age_ms=50_000) as pond:
        pond.fill(60)
        for kind in ("flush", "archive", "compact", "archive", "evict", "checkpoint"):
            pond.run(kind)
        tier: Tier = pond.tier
        identity = read_identity(tier)
        pond.clock.advance(seconds=100)
        pond.run("retain")
        pond.run("retain")
        assert identity is not None
        assert read_identity(tier) == identity


def test_what_a_killed_making_of_an_identity_left_is_removed(attic: Attic) -> None:
    left = attic.attic / f"{'0' * 32}.tmp"
    left.write_bytes(b"half")
    (attic.attic / f"{'0' * 32}.lock").touch()
    attic.run("archive")
    assert sorted(path.name for path in attic.attic.iterdir()) == [IDENTITY_KEY, NAME]
