"""Answers to a group: together if they are known together, and none waits for another."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.clock import SystemClock
from latewood.replica.grouping import Answer, GroupReplies, sequence_runs
from latewood.replica.replies import Appended, AppendedGroup, NotLeader, Refused
from latewood.replica.requests import AppendGroup
from latewood.replica.service import Service
from tests.replica.groups import Part, group_of, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable


@given(st.sets(st.integers(1, 60)).map(sorted))
def test_runs_are_the_sequences_and_no_two_could_be_one(indices: list[int]) -> None:
    runs = sequence_runs(indices)
    assert Appended(0, runs).sequences == [index - 1 for index in indices]
    ends = [start + count for start, count in runs]
    assert all(count > 0 for _, count in runs)
    assert all(end < start for end, (start, _) in zip(ends, runs[1:], strict=False))


def test_answers_of_one_turn_leave_together() -> None:
    async def act() -> None:
        sent: list[AppendedGroup] = []
        refused: list[None] = []
        replies = GroupReplies(5, sent.append, lambda: refused.append(None))
        replies.answer(0, [1])
        replies.answer(2, NotLeader(0, 1))
        replies.add_plain([4, 3], [7, 8])
        replies.add_plain([6], [9])
        await asyncio.sleep(0)
        assert sent == [AppendedGroup(5, [Appended(0, [(0, 1)]), NotLeader(2, 1)], [4, 3, 6], [7, 8, 9])]
        assert not refused
        replies.answer(1, [8, 9])
        replies.answer(5, Refused(0, "failed", "why", retryable=False))
        await asyncio.sleep(0)
        last = Refused(5, "failed", "why", retryable=False)
        assert sent[1:] == [AppendedGroup(5, [Appended(1, [(7, 2)]), last], [], [])]
        assert len(refused) == 1

    asyncio.run(act())


class FakeCore:
    """Has a request of partition 2 wait, and answers all others at once."""

    def __init__(self) -> None:
        self.stalled: list[Callable[[Answer], None]] = []

    def append_group(self, group: AppendGroup, replies: GroupReplies) -> None:
        assert group.client_id == b"c" * 16
        for place, one in enumerate(parts_of(group)):
            if one.partition == 2:
                self.stalled.append(partial(replies.answer, place))
            elif one.partition == 3:
                replies.answer(place, Refused(0, "overloaded", "full", retryable=True, partition=3))
            else:
                replies.add_plain([place], [one.request_id])


class FakeConnection:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    name = "somebody"
    aborted = ""

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def abort(self, reason: str) -> None:
        self.aborted = reason


class FakeHost:
    def __init__(self) -> None:
        self.core = FakeCore()


def asked(service: Service, request: Any) -> FakeConnection:
    connection = FakeConnection()
    service.on_request(cast("Any", connection), request)
    return connection


def test_a_stalled_partition_holds_up_its_own_answer_only() -> None:
    async def act() -> None:
        host = FakeHost()
        service = Service(cast("Any", host), SystemClock())
        parts = [Part(number, number + 20, [b"x"] * number) for number in (1, 2, 3, 4)]
        connection = asked(service, group_of(9, b"c" * 16, parts))
        await asyncio.sleep(0)
        refused = Refused(2, "overloaded", "full", retryable=True, partition=3)
        assert connection.sent == [AppendedGroup(9, [refused], [0, 3], [21, 24])]
        host.core.stalled[0]([4, 8])
        await asyncio.sleep(0)
        assert connection.sent[1:] == [AppendedGroup(9, [Appended(1, [(3, 1), (7, 1)])], [], [])]
        assert service.refused_count == 1
        service.close()

    asyncio.run(act())


def test_a_node_that_is_opening_refuses_the_whole_group() -> None:
    async def act() -> None:
        host = FakeHost()
        host.core = None  # type: ignore[assignment]
        service = Service(cast("Any", host), SystemClock())
        (refused,) = asked(service, group_of(9, b"c" * 16, [Part(1, 1, [b"x"])] * 2)).sent
        assert (refused.id, refused.code, refused.retryable) == (9, "unavailable", True)
        service.close()

    asyncio.run(act())


@pytest.mark.parametrize(
    "columns",
    [
        ([1, 2], [1], [], [b"x", b"y"]),
        ([1, 2], [1, 1], [1], [b"x", b"y"]),
        ([1, 2], [1, 1], [], [b"x"]),
        ([1, 2], [1, 1], [1, 2], [b"x", b"y"]),
        ([1, 2], [1, 1], [3, -1], [b"x", b"y"]),
    ],
)
def test_whoever_sends_a_group_that_is_not_whole_is_hung_up_on(columns: tuple[Any, Any, Any, Any]) -> None:
    async def act() -> None:
        service = Service(cast("Any", FakeHost()), SystemClock())
        connection = asked(service, AppendGroup(9, b"c" * 16, *columns))
        assert "lack what they need" in connection.aborted
        assert not connection.sent
        service.close()

    asyncio.run(act())
