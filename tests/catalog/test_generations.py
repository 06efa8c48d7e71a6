"""Watermarks and the heap of waiters: pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.catalog.generations import Waiter, WaiterHeap, Watermarks
from latewood.errors import UsageError


def test_a_component_that_never_committed_is_at_zero() -> None:
    assert Watermarks()[7] == 0


def test_no_generation_goes_back_and_none_goes_halfway() -> None:
    marks = Watermarks({1: 5, 2: 5})
    with pytest.raises(UsageError, match="cannot go back to 4"):
        marks.advance({2: 6, 1: 4})
    assert marks.all() == {1: 5, 2: 5}
    marks.advance({1: 5, 2: 6})
    assert marks[2] == 6


def test_those_whose_generation_has_come_leave_in_the_order_of_their_targets() -> None:
    heap = WaiterHeap()
    for waiter_id, target in ((1, 9), (2, 3), (3, 5), (4, 3)):
        heap.add(Waiter(waiter_id, 1, target))
    heap.add(Waiter(5, 2, 1))
    assert [waiter.waiter_id for waiter in heap.satisfied({1: 5})] == [2, 4, 3]
    assert len(heap) == 2


def test_those_whose_deadline_has_come_leave_by_either_clock() -> None:
    heap = WaiterHeap()
    heap.add(Waiter(1, 1, 9, 100, 1.0))
    heap.add(Waiter(2, 1, 9, 300, 2.0))
    heap.add(Waiter(3, 1, 9, 200, 9.0))
    heap.add(Waiter(4, 1, 9))
    assert [waiter.waiter_id for waiter in heap.expired(199, 0.0)] == [1]
    assert [waiter.waiter_id for waiter in heap.expired(0, 2.0)] == [2]
    assert heap.next_deadline_ms() == 200
    assert heap.expired(0, 0.0) == []
    assert len(heap) == 2


def test_who_cancelled_is_never_told() -> None:
    heap = WaiterHeap()
    heap.add(Waiter(1, 1, 1, 1, 1.0))
    assert heap.cancel(1)
    assert not heap.cancel(1)
    assert heap.satisfied({1: 9}) == heap.expired(9, 9.0) == heap.drain() == []


def test_those_who_are_gone_do_not_pile_up() -> None:
    heap = WaiterHeap()
    for waiter_id in range(10_000):
        heap.add(Waiter(waiter_id, 1, 1, 1 << 50, 1e9))
        heap.cancel(waiter_id)
    assert len(heap._by_deadline) < 200
    assert sum(map(len, heap._by_target.values())) < 200


def test_the_lowest_targets_are_shown_first_and_no_more_than_asked_for() -> None:
    heap = WaiterHeap()
    for waiter_id in range(20):
        heap.add(Waiter(waiter_id, 1, 100 - waiter_id))
    assert [waiter.target for waiter in heap.of(1, 3)] == [81, 82, 83]
    assert list(heap.of(2, 3)) == []


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(0, 50)), max_size=40), st.data())
def test_everybody_leaves_exactly_once(waiters: list[tuple[int, int, int]], data: st.DataObject) -> None:
    heap, left = WaiterHeap(), list[int]()
    for waiter_id, (component, target, deadline) in enumerate(waiters):
        heap.add(Waiter(waiter_id, component, target, deadline, None))
    for _ in range(5):
        marks = data.draw(st.dictionaries(st.integers(1, 3), st.integers(0, 20)))
        left += [waiter.waiter_id for waiter in heap.satisfied(marks)]
        left += [waiter.waiter_id for waiter in heap.expired(data.draw(st.integers(0, 50)), 0.0)]
    left += [waiter.waiter_id for waiter in heap.drain()]
    assert sorted(left) == list(range(len(waiters)))
    assert len(heap) == 0
