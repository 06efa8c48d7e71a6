"""Lives against a model that remembers every record: a position belongs if the log still has all before it."""

from itertools import count
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.format.identity import LIVES_MAX, LogIdentity, Mark
from latewood.log import identity as library
from latewood.log.identity import Claim, born, reborn, stranger_reason
from tests.format.codecs import BIRTH

PARTS: Final = 8
"""A place in a log is so many parts of its length, so that losses and positions fall everywhere."""
Steps = list[tuple[str, int, int]]


class Copy(NamedTuple):
    """One copy of a log: which it is, and its records, each of which is there once in all copies and for all times."""

    identity: LogIdentity
    records: list[int]


class Taken(NamedTuple):
    """A position, and the records before it when it was taken."""

    copy: int
    mark: Mark
    records: list[int]
    starts: list[int]
    """To where that copy of the log went back since."""

    @property
    def sequence(self) -> int:
        return len(self.records)


class Story:
    """Copies of a log that go on, lose records and are copied, and the positions that somebody has taken in them."""

    def __init__(self) -> None:
        self.copies = [Copy(born(Claim(birth=BIRTH), 0), [])]
        self.taken: list[Taken] = []
        self._tokens, self._numbers = count(), count(1)

    def append(self, at: int, part: int) -> None:
        identity, records = self.copies[at]
        self.copies[at] = Copy(identity, records + [next(self._tokens) for _ in range(part + 1)])

    def take(self, at: int, part: int) -> None:
        identity, records = self.copies[at]
        self.taken.append(Taken(at, identity.mark, records[: len(records) * part // PARTS], []))

    def lose(self, at: int, part: int) -> None:
        """A rebuild, which may lose nothing."""
        identity, records = self.copies[at]
        start = len(records) * part // PARTS
        self.copies[at] = Copy(self.new_life(identity, start), records[:start])
        for one in self.taken:
            if one.copy == at:
                one.starts.append(start)

    def copy(self, at: int, _: int) -> None:
        """A copy that is told that it is one."""
        identity, records = self.copies[at]
        self.copies.append(Copy(self.new_life(identity, len(records)), list(records)))

    def new_life(self, identity: LogIdentity, start: int) -> LogIdentity:
        return reborn(identity, start, lambda size: next(self._numbers).to_bytes(size, "little"))

    def check(self) -> None:
        for one in self.taken:
            for at, (identity, records) in enumerate(self.copies):
                belongs = stranger_reason(identity, one.mark, one.sequence) is None
                if belongs and len(records) >= one.sequence:
                    assert records[: one.sequence] == one.records, "a position was taken for one of other records"
                if at == one.copy:
                    assert belongs == all(one.sequence <= start for start in one.starts), "or refused without a reason"


steps = st.lists(
    st.tuples(st.sampled_from(["append", "take", "lose", "copy"]), st.integers(0, 2), st.integers(0, PARTS)),
    max_size=40,
)


def play(played: Steps) -> None:
    story = Story()
    for what, which, part in played:
        getattr(story, what)(which % len(story.copies), part)
    story.check()


@given(steps)
def test_a_position_belongs_if_and_only_if_the_log_never_went_back_behind_it(played: Steps) -> None:
    play(played)


TWICE: Final = [("append", 0, 7), ("take", 0, 4), ("lose", 0, 6), ("lose", 0, 2), ("append", 0, 7)]


def test_a_log_that_went_back_twice_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model finds a comparison that looks at the next life alone."""
    play(TWICE)
    monkeypatch.setattr(library, "min", lambda starts, default: next(iter(starts), default), raising=False)
    with pytest.raises(AssertionError, match="other records"):
        play(TWICE)


@given(st.integers(0, LIVES_MAX * 2), st.integers(0, 50))
def test_a_position_of_a_life_that_fell_off_is_refused_and_never_taken_for_another(lives: int, sequence: int) -> None:
    story = Story()
    first = identity = story.copies[0].identity
    for _ in range(lives):
        identity = story.new_life(identity, 50)
    refused = stranger_reason(identity, first.mark, sequence) is not None
    assert refused == (lives >= LIVES_MAX)
