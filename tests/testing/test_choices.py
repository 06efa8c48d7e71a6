"""Which combinations are tried: pure numbers."""

from latewood.testing.choices import Unit, choices


def unit(options: int, *, metadata: bool = False) -> Unit:
    timeline = tuple((option, option) for option in range(1, options))
    return Unit(options, options - 1, timeline, (0,), (options - 1,), metadata)


def test_nothing_to_choose_is_one_choice() -> None:
    assert list(choices([], 1, 0)) == [()]


def test_as_many_as_the_limit_are_all_tried() -> None:
    found = list(choices([unit(2), unit(3)], 6, 0))
    assert found == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_one_more_than_the_limit_is_sampled_without_repeats() -> None:
    found = list(choices([unit(2)] * 10, 1023, 0))
    assert len(found) == len(set(found)) < 1024


def test_the_first_choices_are_nothing_everything_and_each_half() -> None:
    found = list(choices([unit(2, metadata=True), unit(2)], 3, 0))
    assert found[:4] == [(0, 0), (1, 1), (1, 0), (0, 1)]


def test_the_telling_choices_come_even_beyond_the_limit() -> None:
    found = set(choices([unit(2)] * 5, 1, 0))
    assert {(1, 0, 0, 0, 0), (0, 0, 0, 0, 1), (0, 1, 1, 1, 1), (1, 1, 1, 1, 0)} <= found


def test_a_unit_knows_what_it_was_at_each_time() -> None:
    thing = Unit(3, 1, ((5, 2), (9, 1)), (), (), metadata=False)
    assert [thing.at(time) for time in (0, 5, 8, 9, 99)] == [0, 2, 2, 1, 1]
