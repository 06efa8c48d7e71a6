"""Marks as JSON has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.format.identity import Mark
from latewood.format.mark import mark_texts, parse_mark

MARKS = st.builds(Mark, st.binary(min_size=16, max_size=16), st.integers(1, 2**64 - 1))


@given(st.none() | MARKS)
def test_a_mark_survives_the_way_through_json(mark: Mark | None) -> None:
    assert parse_mark(*mark_texts(mark)) == mark


@pytest.mark.parametrize(
    ("log", "life"),
    [
        (None, "00" * 8),
        ("00" * 16, None),
        ("00" * 15, "00" * 8),
        ("00" * 16, "00" * 9),
        ("0G" * 16, "00" * 8),
        ("AB" * 16, "00" * 8),
        ("00" * 16 + "\n", "00" * 8),
        (0, 0),
    ],
)
def test_what_is_no_mark_is_refused(log: object, life: object) -> None:
    with pytest.raises(ValueError, match="not the identity of a log"):
        parse_mark(log, life)
