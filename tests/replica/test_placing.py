"""Commands written to their partitions from an entry's bytes: each whole, and none that is not plainly its turn."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood import kernel
from latewood.format.entry import VERSION, Action, Command, encode_command
from latewood.kernel import pure
from latewood.replica.native import native
from tests.kernel.packing import Entry, appender, scan_all

pytestmark = pytest.mark.needs("native")

CLIENT = b"c" * 16


class Logs:
    """Partitions 1 and 2, whose next record has index 101, each with room for so many bytes."""

    def __init__(self, *, room: int = 256, born: int = 5) -> None:
        self.buffers = {partition: bytearray(room) for partition in (1, 2)}
        self.doors: dict[int, tuple[int, Any]] = {}
        for partition, buffer in self.buffers.items():
            door = kernel.Door(lambda *_: -1)
            door.set(appender(kernel, buffer), has_time=False)
            self.doors[partition] = (born, door)
        self.placed: list[tuple[int, int, int, int]] = []

    def place(self, *commands: Command, start: int = 0, ext_id: int = 9, cut: int = 0) -> int:
        """Place commands, and return how many bytes are left."""
        data = b"".join(map(encode_command, commands))
        data = data[: len(data) - cut]
        end: int = native("_place_commands")(data, start, VERSION, ext_id, self.doors, self.placed)
        return len(data) - end

    def contents(self) -> list[list[Entry]]:
        return [scan_all(kernel, buffer)[0] for buffer in self.buffers.values()]


def test_records_go_to_their_partitions_with_the_entry_s_time_and_index() -> None:
    logs = Logs()
    assert logs.place(Command(1, 101, [b"a", b"b"], 7), Command(2, 101, [b"c"], 8), Command(1, 103, [b""], 9)) == 0
    assert logs.placed == [(1, 101, 102, 9), (2, 101, 101, 9), (1, 103, 103, 9)]
    assert logs.contents() == [[Entry(7, 9, b"a"), Entry(7, 9, b"b"), Entry(9, 9, b"")], [Entry(8, 9, b"c")]]


def test_it_goes_on_from_where_it_is_told() -> None:
    logs, first = Logs(), Command(3, 1, [b"elsewhere"])
    assert logs.place(first, Command(1, 101, [b"a"]), start=len(encode_command(first))) == 0
    assert logs.placed == [(1, 101, 101, 9)]


def test_it_stops_before_whatever_is_not_plain() -> None:
    follows = Command(2, 101, [b"behind"])
    for odd in [
        Command(1, 101, [], action=Action.TEAR_DOWN),
        Command(1, 101, [b"a"], action=Action.TEAR_DOWN),
        Command(1, 100, [b"there already"]),
        Command(1, 102, [b"behind a gap"]),
        Command(1, 101, []),
        Command(1, 0, []),
        Command(3, 101, [b"of no partition"]),
        Command(1, 101, [bytes(300)]),
        Command(1, 101, [bytes(80)] * 3),
        Command(1, 101, [b"too late"], 2**63),
    ]:
        logs = Logs()
        left = len(encode_command(odd)) + len(encode_command(follows))
        assert logs.place(Command(2, 101, [b"before"]), odd, follows) == left, odd
        assert logs.placed == [(2, 101, 101, 9)]
        assert logs.contents()[0] == [], "all of a command, or nothing"


def test_what_is_for_an_earlier_life_is_not_placed() -> None:
    logs = Logs(born=10)
    assert logs.place(Command(1, 101, [b"old"]), ext_id=9) > 0
    assert logs.place(Command(1, 101, [b"new"]), ext_id=10) == 0


def test_what_is_cut_short_is_not_placed() -> None:
    size = len(encode_command(Command(1, 101, [b"abc"])))
    for cut in range(1, size):
        logs = Logs()
        assert logs.place(Command(1, 101, [b"abc"]), cut=cut) == size - cut
        assert not logs.placed


def test_a_door_that_leads_nowhere_and_one_of_the_other_kernel_place_nothing() -> None:
    logs = Logs()
    logs.doors[1][1].set(None)
    logs.doors[2] = (5, pure.Door(lambda *_: -1))
    assert logs.place(Command(1, 101, [b"a"])) > 0
    assert logs.place(Command(2, 101, [b"a"])) > 0


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_bring_it_down(data: bytes, start: int) -> None:
    native("_place_commands")(data, start, VERSION, 9, Logs().doors, [])
