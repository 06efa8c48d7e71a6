"""Partitions: placed at commit, verified when they come again, made and torn down as the parent log says."""

from pathlib import Path

import pytest

from latewood.errors import Diverged
from latewood.log import Log
from latewood.replica.machine import LogMachine, PartitionEntry
from latewood.replica.partition import PartitionLogStore
from latewood.replica.roster import Roster
from latewood.testing import CrashFS, FakeClock, MemFS
from tests.replica.node import BIRTHS, ROOT, SMALL, Node

PATH = Path("partitions/7-3")


def entries(low: int, high: int, shift: int = 10) -> list[PartitionEntry]:
    return [PartitionEntry(7, index, index + shift, 1_000 + index, b"%d" % index) for index in range(low, high)]


def open_partition(fs: MemFS) -> PartitionLogStore:
    return PartitionLogStore.open(PATH, 7, 3, fs=fs, clock=FakeClock(), options=SMALL)


def test_what_is_placed_can_be_read_as_a_plain_log() -> None:
    fs = MemFS()
    partition = open_partition(fs)
    partition.place(entries(1, 4))
    partition.close()
    with Log.open(PATH, mode="r", fs=fs) as log:
        found = [(one.sequence, one.ext_id, one.timestamp_ns, one.payload) for one in log.scan()]
    assert found == [(0, 11, 1_001, b"1"), (1, 12, 1_002, b"2"), (2, 13, 1_003, b"3")]


def test_entries_that_come_again_are_left_alone() -> None:
    partition = open_partition(MemFS())
    assert partition.place(entries(1, 4)) == entries(1, 4)
    assert partition.place(entries(2, 6)) == entries(4, 6)
    assert list(partition.read(1, 9)) == entries(1, 6)
    assert partition.last() == entries(5, 6)[0]


@pytest.mark.parametrize(
    "wrong",
    [
        entries(2, 3, shift=11),
        [entries(2, 3)[0]._replace(payload=b"other")],
        [entries(2, 3)[0]._replace(timestamp_ns=5)],
        entries(6, 7),
        [*entries(4, 5), *entries(6, 7)],
    ],
    ids=["another parent index", "another payload", "another time", "a gap", "a gap within"],
)
def test_what_does_not_agree_is_refused_and_nothing_is_written(wrong: list[PartitionEntry]) -> None:
    partition = open_partition(MemFS())
    partition.place(entries(1, 4))
    with pytest.raises(Diverged, match="partition 7"):
        partition.place(wrong)
    assert partition.next_index == 4


def test_singles_that_were_placed_quickly_count_for_the_room_that_is_left() -> None:
    """Else the log would roll on the event loop's thread, which the question for room is there to prevent."""
    partition, index = open_partition(MemFS()), 1
    assert partition.takes(1)
    while partition.place_quickly(index, index, 1_000, [b"x" * 40]):
        index += 1
        assert index < 20, "a segment of 512 bytes has an end"
    assert not partition.takes(40)
    assert partition.place_run(index, index, 1_000, [b"x" * 40]), "it rolls, for whoever may wait"


def test_flushed_follows_a_flush() -> None:
    partition = open_partition(MemFS())
    partition.place(entries(1, 4))
    assert partition.flushed_index == 0
    assert partition.flush() == 3


def test_a_compacted_head_is_believed() -> None:
    partition = open_partition(MemFS())
    partition.place(entries(1, 60))
    partition.compact(40)
    assert 2 < partition.first_index <= 41
    assert partition.place(entries(1, 60)) == []


@pytest.mark.needs("native")
def test_a_partition_is_made_at_its_first_write_and_again_after_a_teardown() -> None:
    node = Node(MemFS())
    node.write(1, b"old", b"older")
    node.tear_down(1)
    assert node.contents() == {}
    assert not any(node.fs.walk(ROOT / "partitions")), "its files are collected"
    node.write(1, b"new")
    assert [one.payload for one in node.contents()[1]] == [b"new"]
    assert node.roster.get(1) is not None
    assert node.marks[1].highest_index == 1
    node.close()


@pytest.mark.needs("native")
def test_entries_of_a_torn_down_partition_are_no_concern_of_the_next_one() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(1, b"old", b"older")
    node.tear_down(1)
    node.write(1, b"new")
    node.close()
    again = Node(fs)
    assert [one.payload for one in again.contents()[1]] == [b"new"]
    again.close()


@pytest.mark.needs("native")
def test_a_partition_that_was_torn_down_last_does_not_come_back() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(1, b"old")
    node.write(3, b"kept")
    node.tear_down(1)
    node.close()
    again = Node(fs)
    assert list(again.contents()) == [3]
    again.close()


@pytest.mark.needs("native")
def test_a_teardown_that_is_cut_is_finished() -> None:
    fs, clock = CrashFS(), FakeClock()
    roster = Roster(Path("partitions"), BIRTHS, fs=fs, clock=clock, options=SMALL)
    roster.open()
    for partition_id in (1, 2):
        partition = roster.make(partition_id, 5)
        partition.place([PartitionEntry(partition_id, 1, 5, 0, b"x")])
        partition.flush()
    for _, survivor in fs.cuts_during(lambda _: roster.tear_down(1, 6), 20):
        found = Roster(Path("partitions"), BIRTHS, fs=survivor, clock=clock, options=SMALL)
        found.open()
        assert {one.partition_id for one in found} in ({1, 2}, {2})
        found.tear_down(1, 6)
        assert survivor.list(Path("partitions")) == ["2-5"]
        found.close()


def test_of_two_births_the_later_counts() -> None:
    fs = MemFS()
    for born in (3, 9):
        birth = BIRTHS.partition(7, born)
        PartitionLogStore.open(Path(f"partitions/7-{born}"), 7, born, birth=birth, fs=fs, options=SMALL).close()
    roster = Roster(Path("partitions"), BIRTHS, fs=fs, options=SMALL)
    roster.open()
    assert [(one.partition_id, one.born) for one in roster] == [(7, 9)]
    assert fs.list(Path("partitions")) == ["7-9"]


def test_the_default_machine_has_no_other_state() -> None:
    machine = LogMachine(1)
    machine.restore(machine.snapshot())
    with pytest.raises(ValueError, match="no other state"):
        machine.restore([b"x"])
