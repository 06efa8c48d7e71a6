"""Routing: what is taken the quick way comes to the same as by the careful one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.replica.answers import request_name
from latewood.replica.routing import Committed, SegmentedStateMachine
from latewood.testing import MemFS
from tests.replica.node import Node

pytestmark = pytest.mark.needs("native")

Steps = list[tuple[str, int, int]]
CLIENTS = (b"c" * 16, b"d" * 16)
steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "many", "tear down", "flush", "snapshot", "look", "restart"]),
        st.integers(0, 5),
        st.integers(1, 5),
    ),
    max_size=40,
)


class Careful(Node):
    """Takes nothing the quick way."""

    def commit(self) -> None:
        self.machine.route_quickly = lambda entries, parent_durable: 0  # type: ignore[method-assign] # noqa: ARG005 - a stub
        super().commit()


class Story:
    """What happens to a node; the same requests, whatever the node is."""

    def __init__(self, kind: type[Node]) -> None:
        self._kind, self.node, self._numbers = kind, kind(MemFS()), dict.fromkeys(CLIENTS, 0)

    def do(self, step: str, key: int, number: int) -> None:
        node = self.node
        if step == "write":
            self._write([(key, number)])
        elif step == "many":
            self._write([(one % 6, number % 3) for one in range(key, key + 4)])
        elif step == "tear down" and node.roster.get(key):
            node.tear_down(key)
        elif step == "flush":
            node.machine.flush()
        elif step == "snapshot" and node.marks.routed:
            node.snapshot(compact=False)
        elif step == "look":
            self.figures()
        elif step == "restart":
            node.close()
            self.node = self._kind(node.fs)

    def _write(self, requests: Sequence[tuple[int, int]]) -> None:
        client = CLIENTS[len(requests) % 2]
        self._numbers[client] += 1
        name = request_name(client, self._numbers[client])
        self.node.write_together(*((key, [b"%d" % key] * count) for key, count in requests), request=name)

    def figures(self) -> tuple[object, ...]:
        machine, marks, dispatcher = self.node.machine, self.node.marks, self.node.machine.parts.dispatcher
        keys = marks.partitions
        return (
            self.node.contents(),
            self.node.tallies(),
            [(key, marks[key], marks.applied_through(key)) for key in keys],
            (marks.routed, marks.applied_floor(), marks.flushed_floor(), machine.truncatable_to()),
            [(dispatcher.load(key), dispatcher.next_index(key)) for key in keys],
            {key: machine.answers.encode(key) for key in range(6)},
        )


@pytest.mark.slow
@given(steps)
def test_the_quick_way_and_the_careful_one_come_to_the_same(story: Steps) -> None:
    quick, careful = Story(Node), Story(Careful)
    for step in story:
        quick.do(*step)
        careful.do(*step)
    assert quick.figures() == careful.figures()


def quickly(machine: SegmentedStateMachine, node: Node) -> int:
    entries = list(map(Committed, node.store.read_all(node.marks.routed + 1, node.store.last_index + 1)))
    return machine.route_quickly(entries, node.store.durable_index)


def test_only_what_makes_removes_and_rolls_nothing_is_quick() -> None:
    node = Node(MemFS())
    node.write(1, b"a")
    for data in [(1, b"b"), (1, b"c"), (3, b"new"), (1, b"d")]:
        node.append([node.entry(*data)])
    node.store.sync()
    assert quickly(node.machine, node) == 2
    assert [entry.payload for entry in node.contents()[1]] == [b"a", b"b", b"c"]
    node.commit()
    assert [entry.payload for entry in node.contents()[1]] == [b"a", b"b", b"c", b"d"]
    node.append([node.entry(1, bytes(340))])  # There is not so much room in the segment any more.
    node.store.sync()
    assert quickly(node.machine, node) == 0


def test_an_entry_that_is_quick_in_part_is_taken_on_once() -> None:
    node = Node(MemFS())
    node.write(1, b"a")
    data = node.command(1, b"b") + node.command(3, b"new") + node.command(1, b"c")
    node.append([node.entry(1)._replace(data=data)])
    node.store.sync()
    assert quickly(node.machine, node) == 0
    assert node.marks[1].highest_index == 1, "nobody was told of the part that was written"
    node.commit()
    assert [entry.payload for entry in node.contents()[1]] == [b"a", b"b", b"c"]
    assert node.marks[1].highest_index == 3
    assert node.marks[3].highest_index == 1


def test_the_partitions_of_machines_are_not_quick() -> None:
    node = Node(MemFS())
    node.write(2, b"a")
    node.append([node.entry(2, b"b")])
    node.store.sync()
    assert quickly(node.machine, node) == 0
