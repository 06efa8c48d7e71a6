"""Whether a stored position is of the log that is here, and where to go on if it is not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.format.identity import Life, LogIdentity, Mark, Owner
from latewood.spark.offsets import ShardId, StoredOffsets
from latewood.spark.standing import CHECKPOINT_MEND, Home, another_log, standing, standings

OURS, THEIRS = bytes(range(16)), bytes(range(16, 32))
LIVES = (Life(1, 0), Life(2, 100), Life(3, 60))
"""It went back to 100, grew again, and then went back to 60."""
LOG = LogIdentity(OURS, Owner.ANYBODY, LIVES)


def home(first: int = 0, identity: LogIdentity | None = LOG) -> Home:
    return Home(Path("/events"), Path("/events"), identity, first)


@pytest.mark.parametrize(
    ("life", "sequence", "goes_on_at"),
    [(1, 60, 60), (1, 61, None), (1, 100, None), (2, 60, 60), (2, 61, None), (3, 61, 61), (3, 1000, 1000)],
)
def test_a_position_of_an_earlier_life_is_of_this_log_up_to_the_loss(
    life: int, sequence: int, goes_on_at: int | None
) -> None:
    found = standing(home(), Mark(OURS, life), sequence)
    assert (found.sequence, found.stranger is None) == (goes_on_at or 60, goes_on_at is not None)


def test_a_position_of_another_log_leads_to_the_earliest_record() -> None:
    found = standing(home(first=7), Mark(THEIRS, 1), 12)
    assert found.sequence == 7
    assert found.stranger is not None
    assert THEIRS.hex() in found.stranger
    assert OURS.hex() in found.stranger


def test_a_position_of_a_life_that_is_not_known_leads_to_the_earliest_record() -> None:
    found = standing(home(first=7), Mark(OURS, 9), 12)
    assert (found.sequence, found.stranger is None) == (7, False)


def test_lost_records_that_retention_would_have_taken_since_are_passed_over() -> None:
    found = standing(home(first=70), Mark(OURS, 1), 90)
    assert (found.sequence, found.place) == (70, "at the earliest record of the log that is here")


@given(st.integers(0, 2**63), st.sampled_from([None, LOG]), st.sampled_from([None, Mark(THEIRS, 1)]))
def test_what_an_older_program_stored_or_made_is_believed(
    sequence: int, identity: LogIdentity | None, mark: Mark | None
) -> None:
    if identity is None or mark is None:
        assert standing(home(identity=identity), mark, sequence) == (sequence, None, "")


def test_only_shards_that_are_here_and_stored_are_compared() -> None:
    here, gone, new = ShardId("clicks", 0), ShardId("gone", 0), ShardId("new", 0)
    stored = StoredOffsets({here: 5, gone: 6}, {here: Mark(OURS, 3), gone: Mark(THEIRS, 1)})
    assert standings({here: home(), new: home()}, stored) == {here: (5, None, "")}


def test_the_error_says_which_log_and_what_to_do() -> None:
    found = standing(home(), Mark(OURS, 1), 90)
    error = another_log(ShardId("clicks", 3), home(), found, "the checkpoint of this query", CHECKPOINT_MEND)
    assert str(error) == (
        "/events: the checkpoint of this query is not of this log (shard 3 of 'clicks'): the position is 90, and the "
        "log went back to 60 since: it was rebuilt or restored; start the query with a new checkpointLocation, which "
        "reads this log from its earliest record, or wherever startingOffsets says; to keep the checkpoint and go on "
        "at sequence 60, where the lost records began, set failOnDataLoss to false"
    )
    assert "not of this log: " in str(another_log(ShardId("", 0), home(), found, "it", CHECKPOINT_MEND))
