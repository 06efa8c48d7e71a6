"""The clock that tests move."""

from datetime import UTC, datetime

from latewood.testing import FakeClock


def test_it_starts_at_noon_of_a_day_in_2026() -> None:
    now = datetime.fromtimestamp(FakeClock().now_ns() / 1e9, UTC)
    assert now == datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_it_stands_still() -> None:
    clock = FakeClock()
    assert clock.now_ns() == clock.now_ns()


def test_it_advances_by_the_sum_of_what_it_is_given() -> None:
    clock = FakeClock(now_ns=5)
    clock.advance(1, seconds=2, ms=3)
    assert clock.now_ns() == 5 + 1 + 2_000_000_000 + 3_000_000


def test_it_can_be_set_back() -> None:
    clock = FakeClock()
    clock.set(7)
    assert clock.now_ns() == 7
