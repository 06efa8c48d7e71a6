"""The fold over a parent log gives the same from the beginning, and from wherever the head may be retired to."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latewood.errors import CorruptError
from latewood.format.entry import ParentRecord, RecordKind
from latewood.replica.engine import ConfState, EntryKind, HardState, Snapshot
from latewood.replica.markers import (
    ParentState,
    base_record,
    cut_record,
    entry_record,
    hard_state_record,
    members_record,
)
from tests.replica.parent import CONF, entry, snapshot_at

PATH = Path("parent")


def fold(records: Sequence[ParentRecord], start: int = 0) -> ParentState:
    state = ParentState(PATH, from_beginning=start == 0)
    for sequence, record in enumerate(records[start:], start):
        state.add(record, sequence)
    state.check_whole()
    return state


def known(state: ParentState) -> tuple[object, ...]:
    conf = (state.conf, state.conf_index)
    return state.base_index, state.last_index, state.terms(), state.hard_state, conf, state.changes, state.snapshot


class Author:
    """Writes the records that a store would write."""

    def __init__(self) -> None:
        self.records: list[ParentRecord] = []
        self.state = ParentState(PATH)

    def write(self, *records: ParentRecord) -> None:
        for record in records:
            self.state.add(record, len(self.records))
            self.records.append(record)

    def append(self, back: int, count: int, kind: int) -> None:
        first = max(self.state.last_index + 1 - back, self.state.base_index + 1)
        term = max(1, self.state.terms()[-1][1] + (first <= self.state.last_index))
        if first <= self.state.last_index:
            self.write(cut_record(first, term))
        self.write(*(entry_record(entry(index, term, kind=kind)) for index in range(first, first + count)))

    def compact(self, share: int) -> None:
        index = self.state.base_index + 1 + share % max(1, self.state.last_index - self.state.base_index)
        if index <= self.state.last_index:
            conf, conf_index = self.state.conf, self.state.conf_index
            snapshot = Snapshot(index, self.state.term(index) or 0, CONF, b"")
            self.write(base_record(snapshot, clears=False), hard_state_record(HardState(9, 1, index)))
            if conf_index > index:
                self.write(members_record(conf_index, conf, 1))

    def install(self, ahead: int) -> None:
        snapshot = snapshot_at(self.state.last_index + 1 + ahead, self.state.terms()[-1][1] + 1)
        self.write(base_record(snapshot, clears=True), hard_state_record(self.state.hard_state))

    def needed(self) -> int:
        """Return where the head may be retired to: a store knows exactly where the first entry stands that counts."""
        first = self.state.base_index + 1
        for _, start in self.state.anchors(first, 1) if self.state.last_index >= first else ():
            entries = (at for at in range(start, len(self.records)) if self.records[at].kind == RecordKind.ENTRY)
            self.state.pin(next(at for at in entries if self.records[at].index == first))
        return self.state.needed_sequence(len(self.records))

    def join(self, node: int) -> None:
        if self.state.last_index:
            self.write(members_record(self.state.last_index, ConfState(voters=(1, node)), 1))


STEPS = st.one_of(
    st.tuples(st.just(Author.append), st.tuples(st.integers(0, 4), st.integers(1, 4), st.sampled_from(EntryKind))),
    st.tuples(st.just(Author.compact), st.tuples(st.integers(0, 9))),
    st.tuples(st.just(Author.install), st.tuples(st.integers(0, 2))),
    st.tuples(st.just(Author.join), st.tuples(st.integers(2, 5))),
)


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=200, deadline=None)
def test_a_log_without_its_head_adds_up_to_the_same(steps: list[tuple[object, tuple[int, ...]]]) -> None:
    author = Author()
    for step, arguments in steps:
        step(author, *arguments)  # type: ignore[operator]
    for start in range(author.needed() + 1):
        assert known(fold(author.records, start)) == known(author.state), start


def test_an_old_base_does_not_vouch_for_entries_that_went_with_the_head() -> None:
    """Entry 2 stood before the base at 1, and was retired when the base was 3: what is left begins with that base."""
    author = Author()
    author.append(0, 2, EntryKind.NORMAL)
    author.compact(0)
    old_base = len(author.records) - 2
    author.append(0, 2, EntryKind.NORMAL)
    author.compact(1)
    assert author.state.base_index == 3
    assert known(fold(author.records, old_base)) == known(author.state)


def test_what_is_left_may_begin_with_entries_that_are_cut_right_behind_an_older_base() -> None:
    """The base stands behind them, so it says nothing of them; the cut takes all of them back to it."""
    author = Author()
    author.append(0, 9, EntryKind.NORMAL)
    author.compact(2)
    author.append(6, 1, EntryKind.NORMAL)
    assert (author.state.base_index, author.state.last_index) == (3, 4)
    assert author.records[author.needed()] == base_record(Snapshot(3, 1, CONF, b""), clears=False)
    for start in range(author.needed() + 1):
        assert known(fold(author.records, start)) == known(author.state), start


def test_a_base_whose_entries_are_missing_is_refused() -> None:
    author = Author()
    author.append(0, 3, EntryKind.NORMAL)
    author.compact(0)
    author.append(0, 1, EntryKind.NORMAL)
    with pytest.raises(CorruptError, match="without the base"):
        fold(author.records, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        entry_record(entry(5)),
        entry_record(entry(4, term=0)),
        cut_record(5, 1),
        base_record(snapshot_at(4), clears=False),
    ],
)
def test_a_record_that_cannot_follow_is_refused(wrong: ParentRecord) -> None:
    author = Author()
    author.append(0, 3, EntryKind.NORMAL)
    author.write(entry_record(entry(4)), cut_record(4, 1))
    with pytest.raises(CorruptError):
        author.write(wrong)
