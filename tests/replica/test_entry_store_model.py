"""Random lives of a parent log, with reopenings and power cuts, against a list of entries."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from latewood.replica.engine import Entry, EntryKind, HardState
from latewood.testing import CrashFS
from tests.replica.parent import everything, open_store, snapshot_at


class StoreMachine(RuleBasedStateMachine):
    """The model: all entries that were ever the log, by index; what is durable of them; the hard state."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = CrashFS()
        self.store = open_store(self.fs, recent_bytes_max=40)
        self.entries: list[Entry] = []
        self.base = 0
        self.base_term = 0
        self.hard_state = self.durable_hard_state = HardState()
        self.durable_to = 0

    @property
    def last(self) -> int:
        return self.base + len(self.entries)

    @property
    def term(self) -> int:
        return max(self.hard_state.term, self.entries[-1].term if self.entries else self.base_term)

    @rule(back=st.integers(0, 6), count=st.integers(1, 8), newer=st.integers(0, 2), size=st.integers(0, 90))
    def append(self, back: int, count: int, newer: int, size: int) -> None:
        """Append, or overwrite some of the end: then of a newer term, as Raft would."""
        first = max(self.last + 1 - back, self.hard_state.commit + 1, self.base + 1)
        term = max(1, self.term + (max(newer, 1) if first <= self.last else newer))
        new = [
            Entry(index, term, EntryKind.NORMAL, b"%d/%d" % (term, index) + bytes(size))
            for index in range(first, first + count)
        ]
        self.store.append(new)
        self.entries[first - self.base - 1 :] = new
        self.durable_to = min(self.durable_to, first - 1)
        if term > self.hard_state.term:
            self.hard_state = HardState(term, 0, self.hard_state.commit)

    @rule(ahead=st.integers(0, 5), vote=st.integers(0, 3), newer=st.integers(0, 1))
    def set_hard_state(self, ahead: int, vote: int, newer: int) -> None:
        commit = min(self.last, max(self.base, self.hard_state.commit) + ahead)
        self.hard_state = HardState(self.term + newer, vote, commit)
        self.store.set_hard_state(self.hard_state)

    @rule()
    def sync(self) -> None:
        self.store.sync()
        self.durable_to, self.durable_hard_state = self.last, self.hard_state

    @precondition(lambda self: min(self.hard_state.commit, self.durable_to) > self.base)
    @rule(choice=st.integers(0, 1000))
    def compact(self, choice: int) -> None:
        top = min(self.hard_state.commit, self.durable_to)
        index = self.base + 1 + choice % (top - self.base)
        term = self.entries[index - self.base - 1].term
        self.store.compact(snapshot_at(index, term))
        self._rebase(index, term)
        self.durable_to, self.durable_hard_state = self.last, self.hard_state

    @rule(ahead=st.integers(0, 9))
    def install(self, ahead: int) -> None:
        index, term = max(self.last, 1) + ahead, max(1, self.term)
        self.store.install(snapshot_at(index, term))
        self.entries, self.base, self.base_term = [], index, term
        self.sync()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.fs, recent_bytes_max=40)
        self.durable_to, self.durable_hard_state = self.last, self.hard_state

    @rule()
    def lose_power(self) -> None:
        """What was synced is there; of the rest, any prefix of what was written."""
        self.fs = self.fs.after_power_cut()
        self.store = open_store(self.fs, recent_bytes_max=40)
        found = everything(self.store)
        durable = self.entries[: self.durable_to - self.base]
        assert found[: len(durable)] == durable
        assert self.store.hard_state.term >= self.durable_hard_state.term
        self.entries, self.hard_state = found, self.store.recover().hard_state
        self.store.set_hard_state(self.hard_state)
        self.sync()

    @rule(low=st.integers(0, 60), count=st.integers(0, 12), bytes_max=st.integers(0, 300))
    def read(self, low: int, count: int, bytes_max: int) -> None:
        low += self.base
        found = self.store.read(low, low + count, bytes_max)
        expected = [one for one in self.entries if low <= one.index < low + count] if low > self.base else []
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)

    @invariant()
    def agrees(self) -> None:
        assert (self.store.first_index, self.store.last_index) == (self.base + 1, self.last)
        assert everything(self.store) == self.entries
        assert self.store.hard_state == self.hard_state
        assert self.store.durable_index <= self.store.last_index
        assert self.store.durable_index >= self.durable_to
        assert all(self.store.term(one.index) == one.term for one in self.entries)

    def teardown(self) -> None:
        self.store.close()

    def _rebase(self, index: int, term: int) -> None:
        del self.entries[: index - self.base]
        self.base, self.base_term = index, term


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestParentLog = pytest.mark.slow(StoreMachine.TestCase)
