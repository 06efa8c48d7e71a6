"""Requests that come together: the plain ones share an entry, and each still has an end of its own."""

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.format.entry import Command, decode_commands, encode_command
from latewood.replica.answers import CLIENT_SILENT_NS, request_name
from latewood.replica.bundle import ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, ENTRY_RECORDS_MAX
from latewood.replica.grouping import GroupReplies
from latewood.replica.replies import Appended, AppendedGroup, NotLeader, Refused
from latewood.replica.requests import PARTITION_MAX
from latewood.replica.writing import Writer, WriteRequest
from latewood.testing import MemFS
from tests.replica.groups import Part, group_of
from tests.replica.node import Node

pytestmark = pytest.mark.needs("native")

if TYPE_CHECKING:
    from collections.abc import Callable

    from latewood.replica.pending import Proposed

CLIENT = b"c" * 16


def payloads(partition: int, number: int, count: int = 1) -> list[bytes]:
    """Return what a request has to append: nobody else's."""
    return [b"%d of %d for %d" % (place, number, partition) for place in range(count)]


def number_of(command: Command) -> int:
    """Return the number of the request that a command is of."""
    return int.from_bytes(command.request[len(CLIENT) :], "little")


class Desk:
    """A writer on a node whose partitions 1, 3 and 5 know the client, up to its request 1."""

    def __init__(self, payload_bytes_max: int = 1 << 20) -> None:
        self.node = Node(MemFS())
        for partition in (1, 3, 5):
            self.node.write_together((partition, [b"first"]), request=request_name(CLIENT, 1))
        self.proposed: list[tuple[list[Command], Proposed]] = []
        self.writer = Writer(self.node.machine, self.node.clock, self._propose, payload_bytes_max)

    def append(self, *requests: tuple[int, int, int]) -> list[AppendedGroup]:
        """Append (partition, number, records) each; the list has the replies."""
        sent: list[AppendedGroup] = []
        parts = [Part(partition, number, payloads(partition, number, count)) for partition, number, count in requests]
        self.writer.append_group(group_of(9, CLIENT, parts), GroupReplies(9, sent.append, lambda: None))
        return sent

    def indices(self) -> list[list[tuple[int, int, int]]]:
        return [
            [(one.partition_id, one.partition_log_index, len(one.payloads)) for one in data]
            for data, _ in self.proposed
        ]

    def settle(self, *places: int) -> None:
        self.writer.settle([(self.proposed[place][1], 1) for place in places])

    def _propose(self, data: bytes, proposed: "Proposed", count: int) -> None:
        """Look at what is proposed: each command has the payloads of the request that it names."""
        commands = decode_commands(data)
        assert len(commands) == count
        for one in commands:
            assert list(one.payloads) == payloads(one.partition_id, number_of(one), len(one.payloads))
        self.proposed.append((commands, proposed))


def at_a_desk(act: "Callable[[Desk], object]") -> None:
    async def run() -> None:
        found = act(Desk())
        if asyncio.iscoroutine(found):
            await found

    asyncio.run(run())


PLACES = st.sampled_from([1, 1, 3, 5, 7, -1, PARTITION_MAX + 1])


@given(st.lists(st.tuples(PLACES, st.integers(0, 5)), max_size=12), st.booleans())
def test_whatever_comes_together_each_request_is_done_once_with_its_own_records(
    keys: list[tuple[int, int]],
    each_has_one: bool,  # noqa: FBT001 - hypothesis gives it
) -> None:
    """Request 1 was done before, with one record; 0 is no number of a request, and some partitions cannot be."""

    def count(partition: int, number: int) -> int:
        return 1 if each_has_one or number == 1 else (partition + number) % 4

    async def act(desk: Desk) -> None:
        requests = [(*key, count(*key)) for key in keys]
        sent, again = desk.append(*requests), desk.append(*requests)
        desk.settle(*range(len(desk.proposed)))
        await asyncio.sleep(0)
        counts = [count(*key) for key in keys]
        assert answers_of(sent, counts) == answers_of(again, counts), "a repetition is told the same"
        done = [one for commands, _ in desk.proposed for one in commands]
        assert all(len(one.payloads) == count(one.partition_id, number_of(one)) for one in done)
        names = sorted((one.partition_id, number_of(one)) for one in done)
        new = {key for key in keys if key[0] in (1, 3, 5, 7) and key[1] > (key[0] != 7) and count(*key)}
        assert names == sorted(new), "what is new, once"

    at_a_desk(act)


def answers_of(sent: list[AppendedGroup], counts: list[int]) -> list[object]:
    """Return how requests of so many records ended, with their sequences; every one of them ends once."""
    found: dict[int, object] = {}
    for one in sent:
        for place, first in zip(one.places, one.sequences, strict=True):
            assert place not in found
            found[place] = list(range(first, first + counts[place]))
        for answer in one.answers:
            assert answer.id not in found
            found[answer.id] = answer.sequences if isinstance(answer, Appended) else type(answer)
    assert sorted(found) == list(range(len(counts)))
    return [found[place] for place in range(len(counts))]


def test_plain_requests_share_an_entry_and_are_answered_together() -> None:
    async def act(desk: Desk) -> None:
        sent = desk.append((1, 2, 1), (3, 2, 2), (1, 3, 1))
        assert desk.indices() == [[(1, 2, 1), (3, 2, 2), (1, 3, 1)]]
        names = {one.request for one in desk.proposed[0][0]}
        assert names == {request_name(CLIENT, 2), request_name(CLIENT, 3)}
        desk.settle(0)
        await asyncio.sleep(0)
        assert sent == [AppendedGroup(9, [], [0, 1, 2], [1, 1, 2])]

    at_a_desk(act)


def test_what_is_not_plain_goes_its_own_way_in_the_order_of_the_indices() -> None:
    async def act(desk: Desk) -> None:
        sent = desk.append(
            (1, 2, 1), (1, 1, 1), (7, 1, 1), (3, 2, 1), (PARTITION_MAX + 1, 1, 1), (-1, 1, 1), (1, -3, 1)
        )
        assert desk.indices() == [[(1, 2, 1)], [(7, 1, 1)], [(3, 2, 1)]], "and what was done before is not done again"
        desk.settle(2, 1, 0)
        await asyncio.sleep(0)
        answers = {answer.id: answer for answer in sent[0].answers}
        assert answers[1] == Appended(1, [(0, 1)])
        assert answers[2] == Appended(2, [(0, 1)])
        assert [(one.id, one.code) for one in answers.values() if isinstance(one, Refused)] == [
            (4, "usage"),
            (5, "usage"),
            (6, "usage"),
        ]
        assert sorted(zip(sent[0].places, sent[0].sequences, strict=True)) == [(0, 1), (3, 1)]

    at_a_desk(act)


def test_a_large_group_is_several_entries() -> None:
    async def act(desk: Desk) -> None:
        count = ENTRY_COMMANDS_MAX + 3
        sent = desk.append(*((1, number + 2, 1) for number in range(count)))
        assert [len(commands) for commands, _ in desk.proposed] == [ENTRY_COMMANDS_MAX, 3]
        desk.settle(0)
        await asyncio.sleep(0)
        desk.settle(1)
        await asyncio.sleep(0)
        assert [len(one.places) for one in sent] == [ENTRY_COMMANDS_MAX, 3]
        assert [place for one in sent for place in one.places] == list(range(count))

    at_a_desk(act)


def test_an_entry_is_bounded_also_if_there_is_hardly_anything_in_the_records() -> None:
    async def act(desk: Desk) -> None:
        partitions = range(10, 24)
        for partition in partitions:
            desk.node.write_together((partition, [b"first"]), request=request_name(CLIENT, 1))
        desk.append(*((partition, 2, ENTRY_RECORDS_MAX) for partition in partitions))
        assert sum(len(commands) for commands, _ in desk.proposed) == len(partitions)
        sizes = [len(b"".join(map(encode_command, commands))) for commands, _ in desk.proposed]
        assert ENTRY_BYTES_MAX // 2 < max(sizes) <= ENTRY_BYTES_MAX

    at_a_desk(act)


def test_a_repetition_is_not_done_again_on_its_way_or_just_done() -> None:
    async def act(desk: Desk) -> None:
        first, again, alone = desk.append((1, 2, 1), (3, 2, 2)), desk.append((3, 2, 2)), list[object]()
        desk.writer.append(WriteRequest(1, CLIENT, 2, payloads(1, 2)), alone.append)
        assert len(desk.proposed) == 1
        desk.settle(0)
        late = desk.append((1, 2, 1))
        await asyncio.sleep(0)
        assert first == [AppendedGroup(9, [], [0, 1], [1, 1])]
        assert again == [AppendedGroup(9, [Appended(0, [(1, 2)])], [], [])]
        assert alone == [[2]]
        assert late == [AppendedGroup(9, [Appended(0, [(1, 1)])], [], [])]
        assert len(desk.proposed) == 1

    at_a_desk(act)


def test_a_request_that_went_its_own_way_is_recognized_in_a_group() -> None:
    async def act(desk: Desk) -> None:
        alone: list[object] = []
        desk.writer.append(WriteRequest(7, CLIENT, 1, payloads(7, 1)), alone.append)
        desk.writer.append(WriteRequest(7, CLIENT, 2, payloads(7, 2)), alone.append)
        desk.node.machine.answers.note([(9, desk.proposed[0][0][0])])  # Now the partition knows the client.
        sent = desk.append((7, 2, 1))
        assert len(desk.proposed) == 2
        desk.settle(0, 1)
        await asyncio.sleep(0)
        assert alone == [[1], [2]]
        assert sent == [AppendedGroup(9, [Appended(0, [(1, 1)])], [], [])]

    at_a_desk(act)


def test_a_repetition_is_recognized_though_its_client_was_forgotten_meanwhile() -> None:
    """Another's record, after a long silence, makes the partition forget the client; its own next brings it back."""

    async def act(desk: Desk) -> None:
        other = b"d" * 16
        desk.node.write_together((1, [b"first"]), request=request_name(other, 1))
        desk.node.clock.advance(CLIENT_SILENT_NS + 1)
        desk.append((1, 2, 1))
        desk.append((1, 3, 1))
        now_ns, answers = desk.node.clock.now_ns(), desk.node.machine.answers
        answers.note([(9, Command(1, 9, [b"y"], now_ns, request_name(other, 2)))])
        assert not answers.knows(1, CLIENT)
        answers.note([(10, desk.proposed[0][0][0])])
        assert answers.knows(1, CLIENT)
        again = desk.append((1, 3, 1))
        assert len(desk.proposed) == 2
        desk.settle(1)
        await asyncio.sleep(0)
        assert again == [AppendedGroup(9, [Appended(0, [(3, 1)])], [], [])]

    at_a_desk(act)


def test_what_is_refused_gives_its_indices_back_and_can_be_repeated() -> None:
    async def act(desk: Desk) -> None:
        sent = desk.append((1, 2, 1), (1, 3, 1), (3, 2, 1))
        again = desk.append((1, 3, 1))
        desk.writer.refuse([desk.proposed[0][1]], NotLeader(0, 2, "there"))
        await asyncio.sleep(0)
        assert [answer.id for answer in sent[0].answers] == [0, 1, 2]
        assert again[0].answers == [NotLeader(0, 2, "there")]
        assert desk.node.machine.parts.dispatcher.whole().ops == 0
        desk.append((1, 2, 1), (1, 3, 1))
        assert desk.indices()[1:] == [[(1, 2, 1)], [(1, 3, 1)]]

    at_a_desk(act)


def test_of_what_is_lost_nobody_knows_the_end() -> None:
    async def act(desk: Desk) -> None:
        sent = desk.append((1, 2, 1), (3, 2, 1))
        desk.writer.lose([desk.proposed[0][1]])
        await asyncio.sleep(0)
        assert [(one.id, one.code) for one in sent[0].answers if isinstance(one, Refused)] == [
            (0, "unknown"),
            (1, "unknown"),
        ]

    at_a_desk(act)


def test_a_partition_that_is_being_removed_takes_nothing_and_the_others_do() -> None:
    async def act(desk: Desk) -> None:
        desk.writer.tear_down(1, lambda _: None)
        sent = desk.append((1, 2, 1), (3, 2, 1))
        assert desk.indices()[1:] == [[(3, 2, 1)]]
        await asyncio.sleep(0)
        (refused,) = sent[0].answers
        assert isinstance(refused, Refused)
        assert refused.retryable

    at_a_desk(act)


def test_a_payload_that_is_too_large_is_refused_and_the_others_are_not() -> None:
    async def act(_: Desk) -> None:
        desk = Desk(payload_bytes_max=len(payloads(3, 2)[0]))
        sent = desk.append((3, 2, 1), (1, 10, 1), (5, 2, 1))
        assert desk.indices() == [[(3, 2, 1)], [(5, 2, 1)]]
        await asyncio.sleep(0)
        (refused,) = sent[0].answers
        assert isinstance(refused, Refused)
        assert (refused.id, refused.code) == (1, "too_large")

    at_a_desk(act)


def test_a_group_on_its_way_keeps_no_payloads() -> None:
    def act(desk: Desk) -> None:
        (payload,) = payloads(1, 2)
        before = sys.getrefcount(payload)
        group = group_of(9, CLIENT, [Part(1, 2, [payload]), Part(3, 2, payloads(3, 2))])
        desk.writer.append_group(group, GroupReplies(9, lambda _: None, lambda: None))
        assert len(desk.proposed) == 1
        del group
        assert sys.getrefcount(payload) == before

    at_a_desk(act)
