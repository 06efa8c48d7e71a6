"""Writing as a leader: what is proposed, once, and what is answered."""

from collections.abc import Sequence

import pytest

from latewood.format.entry import Action, decode_commands
from latewood.replica.answers import CLIENTS_MAX
from latewood.replica.bundle import ENTRY_BYTES_MAX
from latewood.replica.grouping import Answer
from latewood.replica.pending import Proposed
from latewood.replica.replies import Refused
from latewood.replica.writing import Writer, WriteRequest
from latewood.testing import MemFS
from tests.replica.node import Node

pytestmark = pytest.mark.needs("native")

CLIENT = b"c" * 16


class Desk:
    """A writer, what it has proposed, and what it has answered."""

    def __init__(self) -> None:
        self.node = Node(MemFS())
        self.proposed: list[tuple[bytes, Proposed]] = []
        self.writer = Writer(self.node.machine, self.node.clock, self._propose, 1 << 30)

    def _propose(self, data: bytes, proposed: Proposed, commands: int) -> None:
        assert len(decode_commands(data)) == commands
        self.proposed.append((data, proposed))

    def settle(self, place: int, index: int, *, routed: bool = True) -> None:
        self.writer.settle([(self.proposed[place][1], index)])
        if routed:
            self.writer.forget_settled()

    def append(self, number: int, payloads: Sequence[bytes], client: bytes = CLIENT) -> list[Answer]:
        answers: list[Answer] = []
        self.writer.append(WriteRequest(2, client, number, payloads), answers.append)
        return answers

    def tear_down(self) -> list[Answer]:
        answers: list[Answer] = []
        self.writer.tear_down(2, answers.append)
        return answers


def test_a_large_request_is_several_commands_and_is_answered_with_the_last() -> None:
    desk = Desk()
    answers = desk.append(1, [bytes(ENTRY_BYTES_MAX // 2)] * 5)
    commands = [decode_commands(data)[0] for data, _ in desk.proposed]
    assert [(one.partition_log_index, one.last_index) for one in commands] == [(1, 2), (3, 4), (5, 5)]
    for place in range(3):
        assert answers == []
        desk.settle(place, place)
    assert answers == [[1, 2, 3, 4, 5]]


def test_a_second_teardown_joins_the_first_and_nothing_is_taken_until_it_is_done() -> None:
    """Else the end of one of them would let records in, with numbers of the old life, before the other is done."""
    desk = Desk()
    desk.node.write(2, b"a")
    first, second = desk.tear_down(), desk.tear_down()
    assert [decode_commands(data)[0].action for data, _ in desk.proposed] == [Action.TEAR_DOWN]
    (refused,) = desk.append(1, [b"x"])
    assert isinstance(refused, Refused)
    assert refused.retryable
    desk.settle(0, 2)
    assert (first, second) == ([[]], [[]])
    assert desk.append(1, [b"x"]) == []


def test_a_repetition_is_answered_also_while_only_the_partitions_do_not_know_of_the_first() -> None:
    """A thread that makes the partition may still have it: whoever joined the first then would wait for ever."""
    desk = Desk()
    first = desk.append(1, [b"a"])
    desk.settle(0, 1, routed=False)
    assert first == desk.append(1, [b"a"]) == [[1]]
    assert len(desk.proposed) == 1


def test_a_second_teardown_is_answered_also_while_only_the_partitions_do_not_know_of_the_first() -> None:
    desk = Desk()
    desk.node.write(2, b"a")
    first = desk.tear_down()
    desk.settle(0, 2, routed=False)
    assert first == desk.tear_down() == [[]]


def test_what_was_done_is_answered_though_it_would_be_refused_now() -> None:
    desk = Desk()
    desk.append(1, [b"large"])
    desk.node.append([desk.node.entry(2, b"large")])
    desk.node.machine.answers.note([(1, decode_commands(desk.proposed[0][0])[0])])
    desk.settle(0, 1)
    desk.writer._payload_bytes_max = 1
    assert desk.append(1, [b"large"]) == [[1]]


def test_clients_on_their_way_count_for_the_table_of_clients() -> None:
    desk = Desk()
    desk.node.write(2, b"a")
    book = desk.node.machine.answers
    book.restore(2, [])
    for number in range(CLIENTS_MAX - 1):
        desk.append(1, [b"x"], number.to_bytes(16, "big"))
        book.note([(number + 2, decode_commands(desk.proposed[-1][0])[0])])
        desk.settle(-1, number + 2)
    assert desk.append(1, [b"x"], b"y" * 16) == [], "the last that there is room for"
    (refused,) = desk.append(1, [b"x"], b"z" * 16)
    assert isinstance(refused, Refused)
    assert refused.limit == "clients"
