"""What is routed slowly: entries that make or remove partitions, some partitions at a time."""

from collections.abc import Callable

from latewood.format.entry import Action, Command, encode_command
from latewood.replica.engine import Entry, EntryKind
from latewood.replica.routing import Committed
from latewood.replica.slow import MADE_AT_ONCE, births, slow_count


def write(index: int, *partitions: int, action: Action = Action.WRITE) -> Committed:
    commands = [Command(partition, 1, [b"x"], action=action) for partition in partitions]
    return Committed(Entry(index, 1, EntryKind.NORMAL, b"".join(map(encode_command, commands))))


def rooms(*partitions: int, size: int = 1 << 20) -> Callable[[int, int], bool | None]:
    left = dict.fromkeys(partitions, size)

    def has_room(partition: int, wanted: int) -> bool | None:
        if partition not in left:
            return None
        left[partition] -= wanted
        return left[partition] >= 0

    return has_room


EMPTY = Committed(Entry(1, 1, EntryKind.NORMAL, b""))
CHANGE = Committed(Entry(2, 1, EntryKind.CONF_CHANGE, b"\1\2" + bytes(60)))


def test_entries_of_known_partitions_and_raft_s_own_are_quick() -> None:
    assert slow_count([EMPTY, CHANGE, write(3, 7), write(4, 8)], rooms(7, 8)) is None


def test_a_new_partition_is_slow_with_all_that_comes_along() -> None:
    assert slow_count([write(3, 7), write(4, 9), write(5, 7)], rooms(7)) == 3


def test_only_so_many_partitions_are_made_in_one_go() -> None:
    entries = [write(index, index) for index in range(1, 3 * MADE_AT_ONCE)]
    assert slow_count(entries, rooms()) == MADE_AT_ONCE


def test_a_partition_that_may_roll_is_slow() -> None:
    assert slow_count([write(3, 7)], rooms(7, size=32)) == 1
    assert slow_count([write(3, 7)], rooms(7, size=33)) is None


def test_what_one_entry_writes_to_a_partition_is_counted_together() -> None:
    assert slow_count([write(3, 7, 8, 7)], rooms(7, 8, size=65)) == 1
    assert slow_count([write(3, 7, 8, 7)], rooms(7, 8, size=66)) is None


def test_an_entry_that_makes_many_partitions_is_routed_alone() -> None:
    many = write(4, *range(10, 10 + 2 * MADE_AT_ONCE))
    assert slow_count([write(3, 7), many, write(5, 7)], rooms(7)) == 1
    assert slow_count([many, write(5, 7)], rooms(7)) == 1


def test_a_removal_is_slow() -> None:
    assert slow_count([write(3, 7, action=Action.TEAR_DOWN)], rooms(7)) == 1


def test_a_partition_is_born_by_its_first_entry() -> None:
    assert births([EMPTY, CHANGE, write(3, 7), write(4, 9), write(5, 7)]) == {7: 3, 9: 4}


def test_nothing_is_prepared_for_entries_that_remove_a_partition() -> None:
    assert births([write(3, 7), write(4, 7, action=Action.TEAR_DOWN), write(5, 7)]) == {}


def test_what_several_entries_bring_to_a_partition_is_asked_for_at_once() -> None:
    assert slow_count([write(3, 7), write(4, 7)], rooms(7, size=65)) == 2
    assert slow_count([write(3, 7), write(4, 7)], rooms(7, size=66)) is None
