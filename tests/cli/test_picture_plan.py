"""Where things go in a picture: nothing crosses, nothing is left out, nothing is drawn twice."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.cli.picture_plan import (
    Bar,
    Kind,
    Label,
    Needle,
    Scale,
    Stretch,
    flowed,
    labels,
    merged,
    portions,
    scale_of,
    shared_range,
    text_width,
    ticks,
    totals,
)

SCALE = Scale(0, 1000, 100, 1000)
FONT = 12


def needle_at(sequence: int, name: str = "reader") -> Needle:
    return Needle(name, sequence, 1000 - sequence)


def clashes(found: list[Label]) -> list[tuple[str, str]]:
    """The labels that lie on one another, or that a needle on its way down to the bar goes through."""
    problems = []
    for one, other in combinations(found, 2):
        left, right = sorted((one, other), key=lambda label: label.x)
        reaches = left.x + text_width(left.text, FONT) >= right.x
        is_clear = left.row != right.row if left.x == right.x else left.row > right.row  # One needle, two labels.
        if reaches and not is_clear:
            problems.append((left.text, right.text))
    return problems


@given(st.lists(st.integers(0, 1000), max_size=12))
def test_no_label_meets_another_or_its_needle(sequences: list[int]) -> None:
    found = labels([needle_at(at, f"reader-{number}") for number, at in enumerate(sequences)], SCALE, FONT)
    assert len(found) == len(sequences)
    assert clashes(found) == []


def test_a_clash_would_be_seen() -> None:
    one, other = needle_at(10), needle_at(20)
    assert clashes([Label(110, 0, "first", one), Label(120, 0, "second", other)])
    assert clashes([Label(110, 0, "first", one), Label(120, 1, "second", other)])
    assert not clashes([Label(110, 1, "first", one), Label(120, 0, "second", other)])


def test_readers_far_apart_share_a_row() -> None:
    assert {label.row for label in labels([needle_at(0), needle_at(500), needle_at(1000)], SCALE, FONT)} == {0}


@pytest.mark.parametrize(
    ("first", "stop", "expected"),
    [
        (0, 0, [0]),
        (0, 9, [0, 2, 4, 6, 8]),
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (990, 1010, [990, 995, 1000, 1005, 1010]),
        (0, 10**12, [n * 2 * 10**11 for n in range(6)]),
    ],
)
def test_ticks_are_round(first: int, stop: int, expected: list[int]) -> None:
    assert ticks(first, stop, 6) == expected


@given(st.lists(st.tuples(st.sampled_from(Kind), st.integers(1, 300)), max_size=200))
def test_merging_loses_nothing(pieces: list[tuple[Kind, int]]) -> None:
    stretches, at = [], 0
    for number, (kind, length) in enumerate(pieces):
        stretches.append(Stretch(kind, at, at + length, length * 7, f"piece {number}"))
        at += length
    scale = Scale(0, max(1, at), 0, 100)
    found = merged(stretches, scale)
    bar = Bar("shard", 0, at, found, [])
    assert totals([bar]) == totals([bar._replace(stretches=stretches)])
    assert [one.start for one in found[1:]] == [one.stop for one in found[:-1]]


def test_many_narrow_segments_become_few() -> None:
    stretches = [Stretch(Kind.SEALED, at, at + 1, 64, f"segment {at}") for at in range(10_000)]
    found = merged(stretches, Scale(0, 10_000, 0, 1000))
    assert len(found) == 1
    assert (found[0].name, found[0].pieces) == ("segment 0 … segment 9999", 10_000)


def test_what_log_and_chunks_both_have_is_cut_out() -> None:
    chunk, segment = Stretch(Kind.LOCAL, 0, 100, 1, "chunk"), Stretch(Kind.SEALED, 60, 150, 1, "segment")
    shared = shared_range([chunk, segment])
    assert shared == (60, 100)
    assert portions(chunk, shared) == [(0, 60, False), (60, 100, True)]
    assert portions(segment, shared) == [(60, 100, True), (100, 150, False)]
    assert portions(Stretch(Kind.OPEN, 150, 150, 1, "empty"), shared) == []


def test_without_chunks_nothing_is_shared() -> None:
    start, stop = shared_range([Stretch(Kind.OPEN, 5, 9, 1, "segment")])
    assert start == stop


def test_one_scale_serves_all_shards() -> None:
    scale = scale_of([Bar("a", 10, 20, [], []), Bar("b", 5, 12, [], [])], 0, 150)
    assert (scale.first, scale.stop) == (5, 20)
    assert [scale.x(sequence) for sequence in (0, 5, 20, 99)] == [0, 0, 150, 150]


def test_a_legend_goes_on_in_the_next_row() -> None:
    assert flowed([40, 40, 40, 200], 100) == [(0, 0), (40, 0), (0, 1), (0, 2)]
