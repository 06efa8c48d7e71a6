"""Purge: nothing is left of a dropped database but what its forks need."""

from pathlib import Path

import pytest

from latewood.catalog.tables import JobKind
from latewood.jobs.handlers.retain import RETAIN
from tests.runtime.pond import NAME, Pond, pond
from tests.runtime.test_fork import flushed, payloads, run
from tests.runtime.test_rebuild import rebuild


def forked(lake: Pond) -> list[bytes]:
    flushed(lake)
    lake.run("archive")
    lake.store.fork(NAME, "copy")
    return payloads(lake.store.database("copy"))


def test_nothing_is_left_of_a_purged_database(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        lake.run("archive")
        lake.run("evict")
        directory = lake.db_dir
        lake.store.drop(NAME)
        assert lake.store.purge() == [NAME]
        assert not directory.exists()
        assert lake.keys_in_tier() == []


@pytest.mark.parametrize("has_lost_catalog", [False, True])
def test_what_a_fork_shares_outlives_its_origin(home: Path, *, has_lost_catalog: bool) -> None:
    with pond(home) as lake:
        wanted = forked(lake)
        lake.store.drop(NAME)
        if has_lost_catalog:
            rebuild(lake)
        assert lake.store.purge() == []
        assert payloads(lake.store.database("copy")) == wanted
        run(lake, JobKind.COMPACT, "copy", eager=True)
        run(lake, JobKind.ARCHIVE, "copy")
        run(lake, RETAIN, "copy")
        assert lake.store.purge() == [NAME]
        assert payloads(lake.store.database("copy")) == wanted
        lake.check_no_orphans()


def test_what_the_origin_has_let_go_before_is_still_its_forks(home: Path) -> None:
    with pond(home) as lake:
        wanted = forked(lake)
        lake.run("checkpoint")
        lake.run("compact")
        lake.run("archive")
        lake.run("retain")
        assert not {row.record.file_name for row in lake.rows()} & {
            one.file_name for one in lake.live(lake.store.database("copy"))
        }
        lake.store.drop(NAME)
        lake.store.purge()
        assert payloads(lake.store.database("copy")) == wanted
        lake.reopen()
        assert payloads(lake.store.database("copy")) == wanted


def test_a_purged_fork_takes_what_only_it_still_shared(home: Path) -> None:
    with pond(home) as lake:
        flushed(lake)
        lake.store.fork(NAME, "copy")
        lake.run("archive")
        lake.run("checkpoint")
        lake.run("compact")
        lake.run("archive")
        lake.run("retain")
        lake.store.drop("copy")
        assert lake.store.purge() == ["copy"]
        lake.check()
        lake.check_no_orphans()
