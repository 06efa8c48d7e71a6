"""Lives against a model that remembers every record: a position belongs if the log still has all before it."""

from itertools import count
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from latewood.format.identity import LIVES_MAX, LogIdentity, Mark
from latewood.log.identity import Claim, born, reborn, stranger_reason
from tests.format.codecs import BIRTH


class Copy(NamedTuple):
    """One copy of a log: which it is, and its records, each of which is there once in all copies and for all times."""

    identity: LogIdentity
    records: list[int]


class Taken(NamedTuple):
    """A position, and the records before it when it was taken."""

    mark: Mark
    records: list[int]

    @property
    def sequence(self) -> int:
        return len(self.records)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(0, 3), st.integers(0, 20)),
        st.tuples(st.just("lose"), st.integers(0, 3), st.integers(0, 20)),
        st.tuples(st.just("copy"), st.integers(0, 3), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
def test_a_position_belongs_if_and_only_if_the_log_never_went_back_behind_it(
    played: list[tuple[str, int, int]],
) -> None:
    """A rebuild that loses records, and a copy that goes on beside the first in a life of its own, are of the story."""
    tokens, numbers = count(), count(1)
    copies = [Copy(born(Claim(birth=BIRTH), 0), [])]
    taken: list[tuple[int, Taken]] = []
    went_back: list[list[int]] = []
    for what, which, number in played:
        at = which % len(copies)
        identity, records = copies[at]
        match what:
            case "append":
                copies[at] = Copy(identity, records + [next(tokens) for _ in range(number)])
            case "take":
                kept = records[: min(number, len(records))]
                taken.append((at, Taken(identity.mark, kept)))
                went_back.append([])
            case "lose":
                start = min(number, len(records))
                copies[at] = Copy(new_life(identity, start, numbers), records[:start])
                for (home, _), starts in zip(taken, went_back, strict=True):
                    if home == at:
                        starts.append(start)
            case _:
                copies.append(Copy(new_life(identity, len(records), numbers), list(records)))
    for (home, one), starts in zip(taken, went_back, strict=True):
        for at, (identity, records) in enumerate(copies):
            belongs = stranger_reason(identity, one.mark, one.sequence) is None
            if belongs and len(records) >= one.sequence:
                assert records[: one.sequence] == one.records, "a position was taken for one of other records"
            if at == home:
                assert belongs == all(one.sequence <= start for start in starts), "or refused without a reason"


def new_life(identity: LogIdentity, start: int, numbers: "count[int]") -> LogIdentity:
    return reborn(identity, start, lambda size: next(numbers).to_bytes(size, "little"))


@given(st.integers(0, LIVES_MAX * 2), st.integers(0, 50))
def test_a_position_of_a_life_that_fell_off_is_refused_and_never_taken_for_another(lives: int, sequence: int) -> None:
    first = born(Claim(birth=BIRTH), 0)
    identity, numbers = first, count(1)
    for _ in range(lives):
        identity = new_life(identity, 50, numbers)
    refused = stranger_reason(identity, first.mark, sequence) is not None
    assert refused == (lives >= LIVES_MAX)
