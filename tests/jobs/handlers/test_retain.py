"""Retain: what a policy lets go, and what compactions have replaced, goes; nothing else does."""

from pathlib import Path

import pytest

from latewood.catalog.tables import JobKind
from latewood.errors import TierUnavailable
from latewood.jobs import Outcome
from latewood.jobs.handlers.retain import RETAIN
from tests.jobs.handlers.lake import DB, Lake

HOUR_MS = 3600 * 1000
NO_GRACE = {"grace_ms": 0}


def old_and_new(lake: Lake) -> None:
    lake.flush(10)
    lake.clock.advance(ms=HOUR_MS)
    lake.flush(10)


def test_without_a_policy_everything_stays(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        old_and_new(lake)
        rows = lake.rows()
        assert lake.run(RETAIN) is Outcome.COMPLETED
        assert lake.rows() == rows


def test_what_is_too_old_goes_with_its_row_and_its_object(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        old_and_new(lake)
        lake.run(JobKind.ARCHIVE)
        lake.keep(max_age_ms=HOUR_MS // 2)
        assert lake.run(RETAIN, NO_GRACE) is Outcome.COMPLETED
        assert [row.record.wal_range for row in lake.rows()] == [(10, 19), (10, 19)]
        assert len(lake.files()) == len(lake.keys_in_tier()) == 2
        lake.check()
        lake.check_no_orphan()


def test_what_is_too_much_goes(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        old_and_new(lake)
        lake.keep(max_bytes=lake.live(0)[1].record.size_bytes * 2 + 100)
        lake.run(RETAIN, NO_GRACE)
        assert [row.record.wal_range for row in lake.live(0)] == [(10, 19)]
        lake.check()


def test_everything_may_go_and_the_floor_stays_where_it_is(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        old_and_new(lake)
        lake.run(JobKind.CHECKPOINT)
        lake.keep(max_bytes=0)
        lake.run(RETAIN, NO_GRACE)
        assert lake.rows() == []
        assert lake.files() == []
        assert lake.last_applied(0) == 20
        lake.check()
        lake.flush(5)
        assert [row.record.wal_range for row in lake.live(0)] == [(20, 24)]
        lake.check()


def test_what_expires_stays_readable_for_its_grace(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        old_and_new(lake)
        lake.keep(max_age_ms=HOUR_MS // 2)
        lake.run(RETAIN, {"grace_ms": 1000})
        assert [row.record.wal_range for row in lake.live(0)] == [(10, 19)]
        assert len(lake.files()) == 4
        lake.clock.advance(ms=1000)
        lake.run(RETAIN)
        assert len(lake.files()) == len(lake.rows()) == 2


def test_what_a_reader_wants_stays(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        old_and_new(lake)
        lake.keep(max_bytes=0)
        lake.floors = {0: 10, 1: 3}
        lake.run(RETAIN, NO_GRACE)
        assert [row.record.wal_range for row in lake.live(0)] == [(10, 19)]
        assert [row.record.wal_range for row in lake.live(1)] == [(0, 9), (10, 19)]
        lake.check()


def test_objects_stay_for_as_long_as_the_policy_says_and_their_rows_with_them(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        old_and_new(lake)
        lake.run(JobKind.ARCHIVE)
        lake.keep(max_age_ms=HOUR_MS // 2, purge_remote_after_ms=HOUR_MS // 4)
        lake.run(RETAIN, NO_GRACE)
        assert len(lake.files()) == 2
        assert len(lake.keys_in_tier()) == len(lake.rows()) == 4
        lake.clock.advance(ms=HOUR_MS // 4)
        lake.run(RETAIN)
        assert len(lake.keys_in_tier()) == len(lake.rows()) == 2
        lake.check()


def test_an_archived_chunk_waits_until_what_replaced_it_is_archived_too(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10, 11)
        lake.run(JobKind.ARCHIVE)
        lake.run(JobKind.COMPACT, NO_GRACE)
        lake.run(RETAIN)
        assert len(lake.keys_in_tier()) == 4, "the only copies beside the local ones"
        lake.run(JobKind.ARCHIVE)
        lake.run(RETAIN)
        assert len(lake.keys_in_tier()) == len(lake.files()) == 2
        lake.check()


def test_an_object_that_was_sent_but_not_committed_goes_with_the_chunk(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        row = lake.live(0)[0]
        lake.run(JobKind.ARCHIVE)
        lake.change(row)  # As if the upload had been cut before its commit.
        lake.keep(max_bytes=0)
        lake.run(RETAIN, NO_GRACE)
        assert lake.keys_in_tier() == []


def test_a_tier_that_is_away_keeps_the_row_until_the_object_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: str) -> None:
        raise TierUnavailable("it does not answer")

    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        lake.run(JobKind.ARCHIVE)
        lake.keep(max_bytes=0)
        monkeypatch.setattr(lake.tier, "delete", away, raising=False)
        lake.run(RETAIN, NO_GRACE)
        assert len(lake.rows()) == len(lake.keys_in_tier()) == 2
        assert lake.live() == []
        monkeypatch.undo()
        lake.run(RETAIN, NO_GRACE)
        assert len(lake.rows()) == len(lake.keys_in_tier()) == 0


def test_an_object_in_a_tier_that_is_not_the_databases_is_not_lost_track_of(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(10)
        lake.run(JobKind.ARCHIVE)
        lake.keep(max_bytes=0)
        lake.tier.name = "another"
        assert lake.run(RETAIN, NO_GRACE) is Outcome.FAILED
        assert len(lake.rows()) == 2


def test_the_log_goes_as_far_as_its_readers_let_it(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.flush(20, 20)
        lake.run(JobKind.CHECKPOINT)
        with lake.logs[DB, 0].reader("slow") as reader:
            assert reader.sequence == 40
        lake.append(20)
        lake.run(RETAIN)
        assert lake.logs[DB, 0].first_sequence == 40
        lake.check()
