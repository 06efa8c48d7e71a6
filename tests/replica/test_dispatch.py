"""Admission and backlogs, beyond what tests/scenarios/admission.txt shows."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import Overloaded, UnavailableError
from latewood.format.entry import Action, Command
from latewood.replica.dispatch import Dispatcher, Following, Limits, Load, Signal, chunks, next_indices
from latewood.testing import MemFS
from tests.replica.node import Node

Steps = list[tuple[str, int, int]]


@pytest.mark.needs("native")
@given(st.lists(st.integers(0, 50)), st.integers(1, 8), st.integers(1, 100))
def test_chunks_cover_a_request_in_order_and_keep_their_bounds(sizes: list[int], ops_max: int, bytes_max: int) -> None:
    found = list(chunks(sizes, ops_max, bytes_max))
    assert [at for chunk in found for at in chunk] == list(range(len(sizes)))
    for chunk in found:
        assert 1 <= len(chunk) <= ops_max
        assert len(chunk) == 1 or sum(sizes[at] for at in chunk) <= bytes_max


class Books:
    """A dispatcher, and for each partition the entries in hand; committed ones cannot be taken back."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(
            Limits(ops_max=12, bytes_max=60), Limits(ops_max=20, bytes_max=None, age_max_ms=None)
        )
        self.model = {key: list[tuple[int, int]]() for key in range(3)}
        self.following = dict.fromkeys(range(3), 1)
        self.committed, self.applied = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0)

    def admit(self, key: int, number: int) -> None:
        mine, every = self.model[key], sum(map(len, self.model.values()))
        size = sum(one for _, one in mine)
        refused = bool(mine) and (len(mine) + number > 12 or size + number * number > 60)
        if refused or (every > 0 and every + number > 20):
            with pytest.raises(Overloaded):
                self.dispatcher.admit(key, number, number * number, 0)
            return
        taken = self.dispatcher.admit(key, number, number * number, 0)
        assert taken[0] == self.following[key], "indices have no gaps"
        self.model[key] += [(index, number) for index in taken]
        self.following[key] = taken[-1] + 1

    def commit(self, key: int, number: int) -> None:
        if self.committed[key] + 1 < self.following[key]:
            first, last = self.committed[key] + 1, min(self.committed[key] + number, self.following[key] - 1)
            self.committed[key] = last
            self.dispatcher.record_committed(key, first, last, last - first + 1, 0)

    def apply(self, key: int, number: int) -> None:
        if self.applied[key] < self.committed[key]:
            self.applied[key] = min(self.applied[key] + number, self.committed[key])
            self.dispatcher.record_applied(key, self.applied[key])
            self.model[key] = [one for one in self.model[key] if one[0] > self.applied[key]]

    def log(self, key: int, number: int) -> None:
        """As `commit`, and `apply` of all that is committed: for a partition whose log is its state."""
        first, last = self.committed[key] + 1, min(self.committed[key] + number, self.following[key] - 1)
        if self.applied[key] == self.committed[key] and first <= last:
            self.committed[key] = self.applied[key] = last
            self.dispatcher.record_logged([(key, first, last, 99)])
            self.model[key] = [one for one in self.model[key] if one[0] > last]

    def withdraw(self, key: int, number: int) -> None:
        if self.model[key]:
            index = max(self.committed[key] + 1, self.following[key] - number)
            self.dispatcher.withdraw(key, index)
            self.model[key] = [one for one in self.model[key] if one[0] < index]
            self.following[key] = index

    def lead(self, *_: int) -> None:
        self.dispatcher.lead(Following({one: self.committed[one] + 1 for one in range(3)}))
        for one in range(3):
            self.model[one] = [item for item in self.model[one] if item[0] <= self.committed[one]]
            self.following[one] = self.committed[one] + 1

    def forget(self, key: int, _: int) -> None:
        self.dispatcher.forget(key)
        self.model[key], self.following[key], self.committed[key], self.applied[key] = [], 1, 0, 0

    def check(self) -> None:
        for one in range(3):
            load = self.dispatcher.load(one)
            assert (load.ops, load.bytes) == (len(self.model[one]), sum(size for _, size in self.model[one]))
            assert load.lag == self.committed[one] - self.applied[one]
            assert self.dispatcher.next_index(one) == self.following[one]
        loads, whole = [self.dispatcher.load(one) for one in range(3)], self.dispatcher.whole()
        assert (whole.ops, whole.bytes) == (sum(load.ops for load in loads), sum(load.bytes for load in loads))


STEPS = st.sampled_from(["admit", "commit", "apply", "log", "withdraw", "forget", "lead"])


@pytest.mark.needs("native")
@given(st.lists(st.tuples(STEPS, st.integers(0, 2), st.integers(1, 5)), max_size=60))
def test_backlogs_agree_with_a_list_of_what_is_unapplied(steps: Steps) -> None:
    books = Books()
    for step, key, number in steps:
        getattr(books, step)(key, number)
        books.check()


@pytest.mark.needs("native")
def test_durable_entries_still_count_until_they_are_applied() -> None:
    """The planted bug of old: a backlog that shrinks at durable lets a stalled partition take without end."""
    node = Node(MemFS())
    dispatcher = node.machine.parts.dispatcher
    node.append([node.entry(2, b"a"), node.entry(2, b"b", index=2)])
    node.store.sync()
    node.machine.commit(node.store.read_all(1, 3), 2)
    node.machine.flush()
    assert node.marks[2].flushed_index == 2
    assert dispatcher.load(2).ops == 2
    node.work()
    assert dispatcher.load(2).ops == 0
    assert dispatcher.next_index(2) == 3


@pytest.mark.needs("native")
def test_a_refusal_is_retryable_and_names_partition_and_limit() -> None:
    dispatcher = Dispatcher(Limits(ops_max=1))
    dispatcher.admit(4, 1, 1, 0)
    with pytest.raises(UnavailableError) as caught:
        dispatcher.admit(4, 1, 1, 0)
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert isinstance(error, Overloaded)
    assert (error.partition_id, error.limit, error.value, error.bound) == (4, "queued operations", 2, 1)


@pytest.mark.needs("native")
@pytest.mark.parametrize(
    ("limits", "whole", "limit"),
    [
        (Limits(ops_max=3), None, "queued operations"),
        (Limits(bytes_max=30), None, "queued bytes"),
        (Limits(age_max_ms=1), None, "age of the oldest entry in ms"),
        (None, Limits(ops_max=3, age_max_ms=None), "queued operations"),
        (None, Limits(bytes_max=30, age_max_ms=None), "queued bytes"),
    ],
)
def test_each_limit_holds_for_a_partition_that_is_known(
    limits: Limits | None, whole: Limits | None, limit: str
) -> None:
    """Such a partition is admitted by the native table, as long as nothing speaks against it."""
    dispatcher = Dispatcher(limits, whole)
    for start in (0, 10_000_000):
        dispatcher.admit(4, 2, 20, start)
        dispatcher.admit(4, 1, 10, start + 1_000_000)
        with pytest.raises(Overloaded) as caught:
            dispatcher.admit(4, 1, 1, start + 2_000_000)
        assert (caught.value.limit, caught.value.partition_id) == (limit, None if limits is None else 4)
        dispatcher.record_applied(4, dispatcher.next_index(4) - 1)


@pytest.mark.needs("native")
def test_the_oldest_of_all_is_known() -> None:
    dispatcher = Dispatcher(whole=Limits(age_max_ms=5))
    dispatcher.admit(1, 2, 2, 1_000_000)
    dispatcher.admit(2, 1, 1, 4_000_000)
    assert dispatcher.whole().oldest_ns == 1_000_000
    with pytest.raises(Overloaded, match="all partitions together: age"):
        dispatcher.admit(3, 1, 1, 8_000_000)
    dispatcher.record_applied(1, 2)
    assert dispatcher.whole().oldest_ns == 4_000_000
    dispatcher.admit(3, 1, 1, 8_000_000)


@pytest.mark.needs("native")
def test_the_second_guard_keeps_memory_bounded() -> None:
    dispatcher = Dispatcher(Limits(ops_max=10, bytes_max=100))
    assert dispatcher.may_queue(Load(5, 50), Load(5, 50))
    assert not dispatcher.may_queue(Load(5, 50), Load(6, 6))
    assert not dispatcher.may_queue(Load(0, 0), Load(1, 101))


def test_a_new_leader_counts_the_whole_end_of_its_log() -> None:
    tail = [
        Command(1, 6, [b"uncommitted"]),
        Command(2, 1, [b"a new partition"]),
        Command(3, 0, (), action=Action.TEAR_DOWN),
        Command(4, 0, (), action=Action.TEAR_DOWN),
        Command(4, 1, [b"again"]),
    ]
    assert next_indices({1: 5, 3: 9, 4: 9}, tail) == Following({1: 7, 2: 2, 3: 1, 4: 2}, frozenset({3, 4}))


@pytest.mark.needs("native")
def test_nothing_is_admitted_behind_a_teardown_that_is_not_committed() -> None:
    dispatcher = Dispatcher()
    dispatcher.admit(1, 2, 2, 0)
    dispatcher.end(1)
    with pytest.raises(Overloaded, match="teardown"):
        dispatcher.admit(1, 1, 1, 0)
    dispatcher.forget(1)
    assert dispatcher.admit(1, 1, 1, 0) == range(1, 2)


@pytest.mark.needs("native")
def test_a_teardown_that_was_lost_with_its_leader_holds_nothing_up() -> None:
    dispatcher = Dispatcher()
    dispatcher.admit(1, 2, 2, 0)
    dispatcher.end(1)
    dispatcher.lead(Following({1: 3}))
    assert dispatcher.admit(1, 1, 1, 0) == range(3, 4)


@pytest.mark.needs("native")
def test_a_new_leader_goes_on_behind_the_records_of_a_next_life() -> None:
    """Its log ends with a teardown and a record behind it, both uncommitted."""
    dispatcher = Dispatcher()
    dispatcher.record_committed(1, 1, 5, 5, 0)
    dispatcher.lead(next_indices({1: 5}, [Command(1, 0, (), action=Action.TEAR_DOWN), Command(1, 1, [b"again"])]))
    with pytest.raises(Overloaded, match="teardown"):
        dispatcher.admit(1, 1, 1, 0)
    dispatcher.forget(1)
    assert dispatcher.admit(1, 1, 1, 0) == range(2, 3)


@pytest.mark.needs("native")
def test_flags_of_a_partition_that_nobody_knows_are_down() -> None:
    dispatcher = Dispatcher()
    assert not dispatcher.is_frozen(1)
    assert not dispatcher.is_throttled(1)
    dispatcher.freeze(1, frozen=True)
    assert dispatcher.is_frozen(1)


@pytest.mark.needs("native")
def test_limits_beyond_all_numbers_are_no_limits() -> None:
    huge = 1 << 70
    limits = Limits(ops_max=huge, bytes_max=huge, age_max_ms=(1 << 63) - 1, lag_max=huge)
    dispatcher = Dispatcher(limits, Limits(ops_max=huge, bytes_max=huge, age_max_ms=None))
    assert dispatcher.admit(1, 3, 5, 0) == range(1, 4)
    assert dispatcher.admit(1, 1, 1, 1 << 61) == range(4, 5)


@pytest.mark.needs("native")
def test_nothing_leaves_nothing_behind_and_passes_no_signal() -> None:
    dispatcher = Dispatcher(signals=lambda _: [Signal("heat", 2, 1)])
    with pytest.raises(Overloaded, match="heat"):
        dispatcher.admit(1, 0, 0, 5)
    calm = Dispatcher()
    assert calm.admit(1, 0, 0, 5) == range(1, 1)
    assert calm.whole().oldest_ns is None


@pytest.mark.needs("native")
def test_partitions_are_known_in_the_order_of_their_numbers() -> None:
    """A story that is told again goes the same way."""
    dispatcher = Dispatcher()
    for key in range(100, 0, -1):
        dispatcher.table.set_next_index(key, 2)
    assert [key for key, _ in dispatcher.table.committed()] == list(range(1, 101))
