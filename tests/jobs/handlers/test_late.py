"""Handlers that are loaded with the first job are all there are."""

from latewood.jobs.handlers.late import STORE_KINDS
from latewood.jobs.handlers.store import RUNS, STEPS


def test_every_kind_of_a_store_is_handled_late() -> None:
    assert set(STORE_KINDS) == set(RUNS) == set(STEPS)
