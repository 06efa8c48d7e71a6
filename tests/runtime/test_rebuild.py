"""A lost catalog is made again from what is on the disk and in the archive."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latewood.archive.keys import KeyRing
from latewood.catalog import Catalog
from latewood.catalog.tables import ChunkRecord, JobKind
from latewood.errors import (
    CatalogCorrupted,
    CorruptError,
    DataLost,
    KeyNotFound,
    LogBehind,
    TierUnavailable,
    UsageError,
)
from latewood.format.store_layout import StoreLayout
from latewood.fs import PosixFS
from latewood.runtime import Store
from latewood.runtime.rebuild import DatabaseReport, rebuild_catalog
from latewood.runtime.remake import remake_catalog
from tests.jobs.kit import OPTIONS
from tests.runtime.pond import LAKE, NAME, Pond, pond
from tests.runtime.test_fork import payloads, run


def rebuild(lake: Pond, *, has_tier: bool = True) -> list[DatabaseReport]:
    """Lose the catalog, make it again, and open the store with it."""
    lake.store.close()
    layout = StoreLayout(lake.home / LAKE)
    for path in layout.root.glob("catalog.mdb*"):
        path.unlink()
    with Catalog.open(layout.catalog, OPTIONS, clock=lake.clock) as catalog:
        reports = rebuild_catalog(PosixFS(), layout, catalog, lake.tier if has_tier else None, lake.keys)
    lake.store = lake._open()
    return reports


def told(record: ChunkRecord) -> tuple[Any, ...]:
    """What must be the same: all but generations, times of the catalog, and who it came from."""
    where = type(record.residency).__name__
    return (
        record.file_name,
        record.size_bytes,
        record.checksum,
        record.shard,
        record.wal_range,
        (record.segment_min, record.segment_max, record.row_count),
        (record.ext_id_min, record.ext_id_max, record.timestamp_min_ns, record.timestamp_max_ns),
        (record.encrypted, record.key_id, record.created_at_ms),
        where,
    )


def flushed(lake: Pond) -> None:
    for _ in range(2):
        lake.fill(30)
        lake.run("flush")
    lake.fill(9)


def checkpointed(lake: Pond) -> None:
    flushed(lake)
    lake.run("checkpoint")


def compacted(lake: Pond) -> None:
    checkpointed(lake)
    lake.run("compact")


def purged(lake: Pond) -> None:
    compacted(lake)
    lake.run("retain")


def archived(lake: Pond) -> None:
    checkpointed(lake)
    lake.run("archive")


def evicted(lake: Pond) -> None:
    archived(lake)
    lake.run("evict")


def compacted_in_the_archive(lake: Pond) -> None:
    evicted(lake)
    lake.run("compact")
    lake.run("archive")
    lake.run("evict")


def hydrated(lake: Pond) -> None:
    evicted(lake)
    lake.run("hydrate", shard=0)


PASTS = [flushed, checkpointed, compacted, purged, archived, evicted, compacted_in_the_archive, hydrated]


@pytest.mark.parametrize("past", PASTS)
def test_a_lost_catalog_is_made_again(home: Path, past: Callable[[Pond], None]) -> None:
    with pond(home) as lake:
        past(lake)
        before, states = [told(record) for record in lake.live()], list(lake.db.stats())
        (report,) = rebuild(lake)
        assert (report.gaps, report.problems) == ([], [])
        assert (report.name, report.shards, report.chunks) == (NAME, 2, len(before))
        assert [told(record) for record in lake.live()] == before
        assert list(lake.db.stats()) == states
        lake.check()
        lake.fill(30)
        for kind in ("flush", "checkpoint", "archive", "compact", "archive", "evict", "retain", "verify"):
            lake.run(kind)
            lake.check()


def test_new_ids_are_beyond_all_old_ones(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        lake.store.create_database("second")
        last = lake.store.create_database("third").db_id
        ids = [row.chunk_id for row in lake.rows()]
        lake.store.drop("third")
        rebuild(lake)
        assert sorted(record.name for _, record in lake.store.databases()) == [NAME, "second"]
        again = lake.store.create_database("third")
        assert again.db_id > last, "files of the one that is gone are under its number"
        assert list(again.scan()) == []
        lake.run("flush")
        assert max(row.chunk_id for row in lake.rows()) > len(ids)
        lake.check()


def test_a_damaged_description_is_told_and_others_are_found(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        other = lake.store.create_database("other")
        other.append(b"x")
        path = lake.store.layout.located(other.record.options.wal_dir).description
        path.write_bytes(path.read_bytes().replace(b"other", b"0ther"))
        found, damaged = rebuild(lake)
        assert (found.name, found.problems) == (NAME, [])
        assert "does not match its checksum" in damaged.problems[0]
        lake.check()
        assert lake.store.create_database("other").db_id > other.db_id


def test_a_gap_is_told_and_the_rest_is_read(home: Path) -> None:
    with pond(home, shards=1) as lake:
        for _ in range(3):
            lake.fill(30)
            lake.run("flush")
        lake.run("checkpoint")
        lake.fill(9)
        first, middle, last = lake.live()
        (lake.db_dir / "chunks" / middle.file_name).unlink()
        (report,) = rebuild(lake)
        assert report.gaps == [(0, middle.sequence_min, middle.sequence_max + 1)]
        assert [record.sequence for record in lake.db.scan(stop=middle.sequence_min)] == list(
            range(first.sequence_max + 1)
        )
        assert [record.sequence for record in lake.db.scan(last.sequence_min)] == list(
            range(last.sequence_min, len(lake.model[0]))
        )
        with pytest.raises(DataLost):
            list(lake.db.scan())


def test_a_gap_before_the_log_does_not_stop_flushing(home: Path) -> None:
    with pond(home, shards=1) as lake:
        for _ in range(2):
            lake.fill(30)
            lake.run("flush")
        lake.run("checkpoint")
        last = lake.live()[-1]
        (lake.db_dir / "chunks" / last.file_name).unlink()
        (report,) = rebuild(lake)
        assert report.gaps == [(0, last.sequence_min, last.sequence_max + 1)]
        lake.fill(9)
        lake.run("flush")
        assert [record.sequence for record in lake.db.scan(last.sequence_max + 1)] == list(
            range(last.sequence_max + 1, len(lake.model[0]))
        )


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_could_not_be_read_is_not_removed(home: Path, which: int) -> None:
    """A key that was not at hand, or a damaged footer: the file may be the only copy, and jobs must let it be."""
    with pond(home, shards=1) as lake:
        for _ in range(3):
            lake.fill(30)
            lake.run("flush")
        lake.run("checkpoint")
        path = lake.db_dir / "chunks" / lake.live()[which].file_name
        whole = path.read_bytes()
        path.write_bytes(whole[:-4] + b"torn")
        (report,) = rebuild(lake)
        assert len(report.problems) == 1
        lake.fill(9)
        for kind in ("flush", "checkpoint", "compact", "retain"):
            lake.enqueue(kind)  # Some of them fail, and tell why.
            lake.settle()
        assert path.exists()
        with pytest.raises(CorruptError):
            list(lake.db.scan())
        path.write_bytes(whole)
        (report,) = rebuild(lake)
        assert (report.gaps, report.problems) == ([], [])
        lake.check()


RING = KeyRing({"old": bytes(range(32)), "new": bytes(range(1, 33))}, "new")


@pytest.mark.parametrize("past", [checkpointed, evicted])
def test_encrypted_chunks_are_found_again_with_their_keys(home: Path, past: Callable[[Pond], None]) -> None:
    with pond(home, keys=RING, key_id="old") as lake:
        past(lake)
        before = [told(record) for record in lake.live()]
        lake.keys = KeyRing({"other": bytes(32)}, "other")
        (report,) = rebuild(lake)
        assert len(report.problems) == len(before)
        assert not any("000102030405" in problem for problem in report.problems)
        with pytest.raises(KeyNotFound):
            list(lake.db.scan())
        lake.keys = RING
        lake.reopen()
        lake.check()  # With the right keys nothing is missing.
        (report,) = rebuild(lake)
        assert (report.gaps, report.problems) == ([], [])
        assert [told(record) for record in lake.live()] == before
        lake.check()


def test_a_damaged_file_gives_way_to_its_object(home: Path) -> None:
    with pond(home, shards=1) as lake:
        archived(lake)
        path = lake.db_dir / "chunks" / lake.live()[0].file_name
        whole = path.read_bytes()
        path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
        (report,) = rebuild(lake)
        assert len(report.problems) == 1
        assert not report.gaps
        lake.check()
        lake.run("hydrate")
        assert path.read_bytes() == whole
        lake.check_no_orphans()


def test_what_the_log_has_is_flushed_again(home: Path) -> None:
    with pond(home, shards=1) as lake:
        for _ in range(3):
            lake.fill(30)
            lake.run("flush")
        (lake.db_dir / "chunks" / lake.live()[1].file_name).unlink()
        (report,) = rebuild(lake)
        assert (report.gaps, report.problems) == ([], [])
        lake.check()
        for kind in ("flush", "checkpoint"):
            lake.run(kind)
            lake.check()
        lake.check_no_orphans()


def test_chunks_of_one_that_had_the_name_before_are_left_alone(home: Path) -> None:
    with pond(home, shards=1) as lake:
        evicted(lake)
        lake.store.drop(NAME)
        lake.create(shards=1)
        lake.append(b"new", b"key")
        (report,) = rebuild(lake)
        assert (report.gaps, report.problems, report.chunks) == ([], [], 0)
        lake.check()


def test_of_two_with_one_name_the_last_counts(home: Path) -> None:
    """A power cut between the commit of a drop and its note beside the files leaves the name twice."""
    with pond(home) as lake:
        flushed(lake)
        path = lake.db_dir / "database.json"
        alive = path.read_bytes()
        lake.store.drop(NAME)
        path.write_bytes(alive)
        lake.create()
        lake.fill(9)
        first, second = rebuild(lake)
        assert "has its name" in first.problems[0]
        assert second.problems == []
        lake.check()


def test_an_archive_that_does_not_answer_ends_a_rebuild(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> bytes:
        raise TierUnavailable("away")

    with pond(home) as lake:
        evicted(lake)
        with monkeypatch.context() as patch:
            patch.setattr(lake.tier, "get", away)
            with pytest.raises(TierUnavailable):
                rebuild(lake)
        (report,) = rebuild(lake)
        assert report.gaps == []
        lake.check()


def test_without_its_archive_what_is_only_there_is_a_gap(home: Path) -> None:
    with pond(home, shards=1) as lake:
        evicted(lake)
        lake.fill(30)
        lake.run("flush")
        lake.run("checkpoint")
        last = lake.live()[-1]
        (report,) = rebuild(lake, has_tier=False)
        assert (report.chunks, report.gaps) == (1, [(0, 0, last.sequence_min)])
        assert [record.sequence for record in lake.db.scan()] == list(range(last.sequence_min, len(lake.model[0])))


def test_a_fork_is_found_again_with_what_it_shares(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        fork = lake.store.fork(NAME, "copy")
        fork.append(b"of the fork", b"key")
        run(lake, JobKind.FLUSH, "copy", seal=True)
        lake.run("flush")
        lake.run("compact")
        lake.run("retain")
        wanted = payloads(fork)
        reports = rebuild(lake)
        assert [report.gaps for report in reports] == [[], []]
        assert payloads(lake.store.database("copy")) == wanted
        lake.check()
        run(lake, JobKind.COMPACT, "copy", eager=True)
        lake.run("retain")
        assert payloads(lake.store.database("copy")) == wanted
        lake.check()


def test_a_fork_is_found_again_when_its_origin_is_gone(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        fork = lake.store.fork(NAME, "copy")
        wanted = payloads(fork)
        lake.store.drop(NAME)
        rebuild(lake)
        assert payloads(lake.store.database("copy")) == wanted


def test_a_catalog_with_databases_is_not_written_over(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        with pytest.raises(UsageError, match="move it away"):
            rebuild_catalog(PosixFS(), lake.store.layout, lake.store.catalog, lake.tier, None)
        lake.check()


def test_readers_go_on_where_they_were(home: Path) -> None:
    with pond(home) as lake:
        checkpointed(lake)
        with lake.db.reader("billing") as reader:
            read = reader.poll(40)
            reader.commit()
        rebuild(lake)
        with lake.db.reader("billing") as reader:
            rest = list(reader)
        found = {(record.shard, record.sequence) for record in read + rest}
        assert len(found) == len(read) + len(rest) == sum(map(len, lake.model.values()))


def test_a_store_copied_elsewhere_is_found_there(home: Path) -> None:
    with pond(home / "here") as lake:
        purged(lake)
    shutil.move(home / "here", home / "there")
    with Pond(home / "there", model=lake.model) as moved:
        rebuild(moved)
        moved.check()


def without_the_first(lake: Pond) -> tuple[ChunkRecord, DatabaseReport]:
    for _ in range(2):
        lake.fill(30)
        lake.run("flush")
    lake.run("checkpoint")
    first = lake.live()[0]
    (lake.db_dir / "chunks" / first.file_name).unlink()
    (report,) = rebuild(lake)
    return first, report


def test_the_oldest_records_are_a_gap_too(home: Path) -> None:
    with pond(home, shards=1) as lake:
        first, report = without_the_first(lake)
        assert report.gaps == [(0, 0, first.sequence_max + 1)]


def test_what_a_retention_may_have_removed_is_no_gap(home: Path) -> None:
    with pond(home, shards=1, retention_max_bytes=1 << 40) as lake:
        _, report = without_the_first(lake)
        assert report.gaps == []


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_store_without_its_catalog_is_not_opened(home: Path, mode: Any, *, is_empty: bool) -> None:
    with pond(home) as lake:
        lake.fill(3)
    root = home / LAKE
    (root / "catalog.mdb").unlink()
    if is_empty:
        (root / "catalog.mdb").touch()
    with pytest.raises(CatalogCorrupted, match=f"the catalog is lost; run `latewood rebuild --catalog {root}`"):
        Store.open(root, mode=mode)
    assert (root / "catalog.mdb").exists() == is_empty


def test_what_lies_behind_a_gap_counts_if_the_log_ends_before_it(home: Path) -> None:
    """The log is an older copy: it fills a part of the gap, and has nothing of what follows."""
    with pond(home, shards=1) as lake:
        lake.append_many([b"a"] * 50)
        lake.run("flush")
        lake.append_many([b"b"] * 50)
        lake.db.shards[0].log.roll()
        lake.store.close()
        shutil.copytree(shards := lake.home / LAKE / "databases" / f"00000001-{NAME}" / "shards", home / "past")
        lake.store = lake._open()
        for letter in (b"c", b"d"):
            lake.append_many([letter] * 50)
            lake.run("flush")
        lake.store.close()
        (middle,) = shards.parent.glob("chunks/*-00000000000000000149-*")
        middle.unlink()
        shutil.rmtree(shards)
        shutil.copytree(home / "past", shards)
        (report,) = remake_catalog(home / LAKE).databases
        assert (report.chunks, report.gaps) == (2, [(0, 100, 150)])
        assert "ends at 100, and the store had its records up to 199 in chunks" in report.problems[0]
        lake.store = lake._open()
        with pytest.raises(LogBehind):
            lake.db.append(b"x")
        assert [record.payload for record in lake.db.scan(start=150, stop=200)] == [b"d"] * 50
