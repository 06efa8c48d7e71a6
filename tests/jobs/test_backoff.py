"""Pauses double, have a bound, and chance only shortens them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import UsageError
from latewood.jobs import Backoff

chances = st.floats(0, 1, exclude_max=True)


def test_pauses_double_up_to_their_bound() -> None:
    backoff = Backoff(first_ms=100, max_ms=1_000, jitter=0)
    assert [backoff.pause_ms(attempt, 0.7) for attempt in range(1, 7)] == [100, 200, 400, 800, 1_000, 1_000]


def test_chance_takes_off_no_more_than_the_jitter() -> None:
    backoff = Backoff(first_ms=1_000, max_ms=1_000, jitter=0.25)
    assert (backoff.pause_ms(1, 0.0), backoff.pause_ms(1, 0.999_999)) == (1_000, 750)


@given(st.integers(-5, 1 << 70), chances, st.integers(1, 10_000), st.floats(0, 1))
def test_a_pause_is_always_above_0_and_within_its_bound(attempt: int, chance: float, first: int, jitter: float) -> None:
    backoff = Backoff(first_ms=first, max_ms=20_000, jitter=jitter)
    assert 1 <= backoff.pause_ms(attempt, chance) <= 20_000


@given(st.integers(1, 100), chances)
def test_without_jitter_a_later_pause_is_never_shorter(attempt: int, chance: float) -> None:
    backoff = Backoff(jitter=0)
    assert backoff.pause_ms(attempt, chance) <= backoff.pause_ms(attempt + 1, chance)


@pytest.mark.parametrize("fields", [{"first_ms": 0}, {"first_ms": 2, "max_ms": 1}, {"jitter": 1.1}, {"jitter": -0.1}])
def test_pauses_that_cannot_be_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Backoff(**fields)
