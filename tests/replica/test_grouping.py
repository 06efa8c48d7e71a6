"""Answers to a group: together if they are known together, and none waits for another."""

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from latewood.clock import SystemClock
from latewood.replica.grouping import GroupReplies, sequence_runs
from latewood.replica.replies import Appended, AppendedGroup, NotLeader, Refused
from latewood.replica.requests import PARTITION_MAX, Append, AppendGroup, PartitionAppend
from latewood.replica.service import Service
from latewood.replica.writing import Answering, WriteRequest


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
        replies = GroupReplies(5, sent.append)
        first, second, third = Appended(0, [(0, 1)]), NotLeader(2, 1), Appended(1, [(7, 2)])
        replies.add(first)
        replies.add(second)
        await asyncio.sleep(0)
        assert sent == [AppendedGroup(5, [first, second])]
        replies.add(third)
        await asyncio.sleep(0)
        assert sent[1:] == [AppendedGroup(5, [third])]

    asyncio.run(act())


class FakeCore:
    """Has a request of partition 2 wait, and answers all others at once."""

    def __init__(self) -> None:
        self.writes: list[WriteRequest] = []
        self.stalled: list[Answering] = []

    def append(self, request: WriteRequest, answering: Answering) -> None:
        self.writes.append(request)
        if request.partition == 2:
            self.stalled.append(answering)
        elif request.partition == 3:
            answering(Refused(0, "overloaded", "full", retryable=True, partition=3))
        else:
            answering([index + 10 for index, _ in enumerate(request.payloads)])


class FakeConnection:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


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
        parts = [PartitionAppend(number, number + 20, [b"x"] * number) for number in (1, 2, 3, 4)]
        connection = asked(service, AppendGroup(9, b"c" * 16, parts))
        await asyncio.sleep(0)
        (reply,) = connection.sent
        assert reply.id == 9
        assert [(one.id, type(one)) for one in reply.answers] == [(0, Appended), (2, Refused), (3, Appended)]
        assert reply.answers[2].runs == [(9, 4)]
        assert reply.answers[1].partition == 3
        host.core.stalled[0]([4, 8])
        await asyncio.sleep(0)
        assert connection.sent[1:] == [AppendedGroup(9, [Appended(1, [(3, 1), (7, 1)])])]
        assert host.core.writes == [(part.partition, b"c" * 16, part.request_id, part.payloads) for part in parts]
        assert service.refused_count == 1
        service.close()

    asyncio.run(act())


def test_a_partition_that_cannot_be_is_refused_alone() -> None:
    async def act() -> None:
        service = Service(cast("Any", FakeHost()), SystemClock())
        parts = [PartitionAppend(PARTITION_MAX + 1, 1, [b"x"]), PartitionAppend(1, 1, [b"x"])]
        connection = asked(service, AppendGroup(9, b"c" * 16, parts))
        await asyncio.sleep(0)
        refused, appended = connection.sent[0].answers
        assert (refused.id, refused.code, appended) == (0, "usage", Appended(1, [(9, 1)]))
        (alone,) = asked(service, Append(3, PARTITION_MAX + 1, b"c" * 16, 1, [b"x"])).sent
        assert (alone.id, alone.code) == (3, "usage")
        service.close()

    asyncio.run(act())


def test_a_node_that_is_opening_refuses_the_whole_group() -> None:
    async def act() -> None:
        host = FakeHost()
        host.core = None  # type: ignore[assignment]
        service = Service(cast("Any", host), SystemClock())
        (refused,) = asked(service, AppendGroup(9, b"c" * 16, [PartitionAppend(1, 1, [b"x"])] * 2)).sent
        assert (refused.id, refused.code, refused.retryable) == (9, "unavailable", True)
        service.close()

    asyncio.run(act())
