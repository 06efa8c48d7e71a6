"""Barriers: told when all is applied, never sooner, and at the latest when the time is up."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.clock import SystemClock
from latewood.errors import Overloaded, UsageError, WaitExpired
from latewood.replica.barrier import BarrierBoard, BarrierLimits, Barriers
from latewood.replica.watermarks import Watermarks
from latewood.testing import FakeClock
from tests.replica.test_watermarks import route

pytestmark = pytest.mark.needs("native")

FAR = 1 << 60


def board(marks: Watermarks, **limits: int) -> BarrierBoard:
    return BarrierBoard(marks.applied_through, BarrierLimits(**limits))


def marks_with(*partitions: int) -> Watermarks:
    marks = Watermarks()
    marks.record_parent_durable(1_000)
    for at, partition_id in enumerate(partitions, 1):
        route(marks, partition_id, partitions[:at].count(partition_id), at)
    return marks


def test_a_waiter_is_told_when_the_last_partition_is_through() -> None:
    marks = marks_with(1, 2, 3, 1)
    barriers = board(marks)
    waiter = barriers.begin("me", 3, [1, 2], FAR, 0, routed=4)
    marks.record_applied(1, 1)
    assert barriers.applied(1) == []
    marks.record_applied(2, 1)
    assert barriers.applied(2) == [waiter]
    assert len(barriers) == 0


def test_nobody_waits_for_what_is_done() -> None:
    marks = marks_with(1, 2)
    marks.record_applied(1, 1)
    barriers = board(marks)
    assert barriers.begin("me", 2, [1, 99], FAR, 0, routed=2) is None, "idle and unknown partitions hold nobody up"


def test_a_target_that_is_not_routed_yet_is_waited_for() -> None:
    marks = marks_with(1)
    barriers = board(marks)
    waiter = barriers.begin("me", 3, [1, 2], FAR, 0, routed=1)
    other = barriers.begin("me", 2, [2], FAR, 0, routed=1)
    marks.record_applied(1, 1)
    assert barriers.applied(1) == []
    route(marks, 2, 1, 2)
    assert barriers.routed(2) == []
    route(marks, 1, 2, 3)
    assert barriers.routed(3) == []
    marks.record_applied(2, 1)
    assert barriers.applied(2) == [other], "the first still waits for partition 1"
    marks.record_applied(1, 2)
    assert barriers.applied(1) == [waiter]


def test_deadlines_are_kept_without_anything_happening() -> None:
    barriers = board(marks_with(1), wait_max_ms=10)
    late = barriers.begin("me", 1, [1], FAR, 0, routed=1)
    soon = barriers.begin("me", 1, [1], 4_000_000, 0, routed=1)
    assert barriers.next_deadline_ns() == 4_000_000
    assert barriers.expire(4_000_000) == [soon]
    assert barriers.next_deadline_ns() == 10_000_000, "no wait is longer than allowed"
    assert barriers.expire(10_000_000) == [late]
    assert barriers.next_deadline_ns() is None


def test_a_client_has_so_many_waiters_and_no_more() -> None:
    barriers = board(marks_with(1), waiters_per_client=2, waiters_max=3)
    first = barriers.begin("a", 1, [1], FAR, 0, routed=1)
    barriers.begin("a", 1, [1], FAR, 0, routed=1)
    with pytest.raises(Overloaded, match="waiters of a"):
        barriers.begin("a", 1, [1], FAR, 0, routed=1)
    barriers.begin("b", 1, [1], FAR, 0, routed=1)
    with pytest.raises(Overloaded, match="waiters would be 4"):
        barriers.begin("c", 1, [1], FAR, 0, routed=1)
    assert first is not None
    barriers.cancel(first)
    barriers.cancel(first)
    barriers.begin("a", 1, [1], FAR, 0, routed=1)


def test_a_client_begins_so_many_in_a_second() -> None:
    marks = marks_with(1)
    barriers = board(marks, starts_per_second=2)
    for _ in range(2):
        waiter = barriers.begin("a", 1, [1], FAR, 0, routed=1)
        assert waiter is not None
        barriers.cancel(waiter)
    with pytest.raises(Overloaded, match="waits a second of a"):
        barriers.begin("a", 1, [1], FAR, 0, routed=1)
    barriers.begin("b", 1, [1], FAR, 0, routed=1)
    barriers.begin("a", 1, [1], FAR, 500_000_000, routed=1)


def test_clients_that_come_once_are_forgotten() -> None:
    barriers = board(marks_with(1))
    for number in range(5_000):
        waiter = barriers.begin(f"client {number}", 1, [1], FAR, number * 10_000_000, routed=1)
        assert waiter is not None
        barriers.cancel(waiter)
    assert len(barriers._clients) < 1_200


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["route", "apply", "wait", "expire"]), st.integers(0, 2), st.integers(0, 6), st.booleans()
        ),
        max_size=50,
    )
)
def test_waiters_are_told_exactly_when_all_is_applied(steps: list[tuple[str, int, int, bool]]) -> None:
    marks = Watermarks()
    marks.record_parent_durable(1_000)
    barriers, waiting, now_ns = board(marks), dict[int, tuple[int, list[int], int]](), 0
    held, applied = [0, 0, 0], [0, 0, 0]
    for step, key, number, both in steps:
        told = list[int]()
        if step == "route":
            held[key] += 1
            route(marks, key, held[key], marks.routed + 1)
            told = barriers.routed(marks.routed)
        elif step == "apply" and applied[key] < held[key]:
            applied[key] += 1
            marks.record_applied(key, applied[key])
            told = barriers.applied(key)
        elif step == "wait":
            partitions = [key, (key + 1) % 3] if both else [key]
            waiter = barriers.begin("me", number, partitions, now_ns + number, now_ns, routed=marks.routed)
            done = number <= marks.routed and all(marks.applied_through(one) >= number for one in partitions)
            assert (waiter is None) == done
            if waiter is not None:
                waiting[waiter] = (number, partitions, now_ns + number)
        elif step == "expire":
            now_ns += 2
            expired = barriers.expire(now_ns)
            assert sorted(expired) == sorted(one for one, (_, _, due) in waiting.items() if due <= now_ns)
            for one in expired:
                del waiting[one]
        due = [
            one
            for one, (target, partitions, _) in waiting.items()
            if target <= marks.routed and all(marks.applied_through(part) >= target for part in partitions)
        ]
        assert sorted(told) == sorted(due)
        for one in told:
            del waiting[one]
    assert len(barriers) == len(waiting)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_a_coroutine_waits_and_is_told() -> None:
    async def work() -> None:
        marks = marks_with(1, 2)
        barriers = Barriers(marks.applied_through, FakeClock(), routed=2)
        waits = [asyncio.ensure_future(barriers.wait("me", target, [1, 2], 5)) for target in (1, 2, 3)]
        await asyncio.sleep(0)
        marks.record_applied(1, 1)
        barriers.applied(1)
        await asyncio.sleep(0)
        assert [wait.done() for wait in waits] == [True, False, False]
        marks.record_applied(2, 1)
        barriers.applied(2)
        marks.record_passed(3)
        barriers.routed(3)
        await asyncio.gather(*waits)
        await barriers.wait("me", 3, [1, 2], 5)

    run(work())


def test_a_coroutine_is_told_that_its_time_is_up() -> None:
    async def work() -> None:
        barriers = Barriers(marks_with(1).applied_through, SystemClock(), routed=1)
        with pytest.raises(WaitExpired):
            await barriers.wait("me", 1, [1], 0.01)
        with pytest.raises(UsageError):
            await barriers.wait("me", 1, [1], 0)

    run(work())


def test_a_coroutine_that_is_cancelled_waits_no_more() -> None:
    async def work() -> None:
        marks = marks_with(1)
        barriers = Barriers(marks.applied_through, FakeClock(), routed=1)
        wait = asyncio.ensure_future(barriers.wait("me", 1, [1], 5))
        await asyncio.sleep(0)
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        assert len(barriers._board) == 0
        marks.record_applied(1, 1)
        barriers.applied(1)

    run(work())
