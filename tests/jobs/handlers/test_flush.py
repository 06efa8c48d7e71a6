"""Flush: what is sealed becomes chunks, once."""

from pathlib import Path

from latewood.catalog.tables import JobKind
from latewood.jobs import Outcome
from latewood.jobs.handlers.flush import STEPS
from tests.jobs.handlers.lake import Lake, prove


def sealed(lake: Lake) -> None:
    lake.append(40)


def test_a_flush_that_is_killed_at_any_step_ends_in_the_same_state(tmp_path: Path) -> None:
    assert set(prove(tmp_path, sealed, JobKind.FLUSH, {"seal": True})) == set(STEPS)


def test_a_flush_takes_what_is_sealed_and_leaves_the_open_segment(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        lake.append(40)
        assert lake.run(JobKind.FLUSH) is Outcome.COMPLETED
        assert [row.record.wal_range for row in lake.live(0)] == [(0, 31)]
        assert lake.last_applied(0) == 32
        assert lake.state(0).last_sealed_segment == 1
        lake.check()
