"""Snapshots that are written, and count only when their partitions are durable, while entries are routed."""

from pathlib import Path

import pytest

from latewood.errors import (
    Poisoned,
    StorageError,
)
from latewood.replica.snapshot import (
    SnapshotInHand,
    SnapshotReader,
    begin_snapshot,
    snapshots,
)
from latewood.testing import CrashFS, MemFS
from tests.replica.node import CONF, Node
from tests.replica.test_snapshot import DIRECTORY

pytestmark = pytest.mark.needs("native")


def begun(node: Node) -> SnapshotInHand:
    return begin_snapshot(node.machine, node.fs, DIRECTORY, 1, CONF)


def test_a_snapshot_counts_when_its_partitions_are_durable_whatever_is_routed_meanwhile() -> None:
    node = Node(CrashFS())
    node.write(1, b"in it")
    node.write(2, b"in it")
    in_hand = begun(node)
    node.write(1, b"behind it")
    assert snapshots(node.fs, DIRECTORY) == []
    in_hand.publish()
    in_hand.record(node.machine)
    assert (node.marks[1].snapshot_index, node.marks[1].flushed_index, node.marks[1].highest_index) == (1, 1, 2)
    assert node.marks.flushed_floor() == node.marks.snapshot_global == 2
    node.store.compact(in_hand.snapshot)
    assert isinstance(node.fs, CrashFS)
    again = Node(node.fs.after_power_cut())
    assert [entry.payload for entry in again.contents()[1]] == [b"in it", b"behind it"]


def test_a_partition_that_is_torn_down_meanwhile_does_not_hinder_the_snapshot() -> None:
    node = Node(MemFS())
    node.write(1, b"a")
    node.write(3, b"b")
    in_hand = begun(node)
    node.tear_down(1)
    node.write(1, b"another life")
    in_hand.publish()
    in_hand.record(node.machine)
    assert node.marks[1].snapshot_index == 0
    node.store.compact(in_hand.snapshot)
    node.close()
    again = Node(node.fs)
    assert {key: [entry.payload for entry in found] for key, found in again.contents().items()} == {
        1: [b"another life"],
        3: [b"b"],
    }


def test_a_sync_that_fails_while_a_snapshot_is_published_is_told_as_that() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(1, b"a")
    in_hand = begun(node)
    fs.fail("sync", "", StorageError("no luck"))
    with pytest.raises(Poisoned):
        in_hand.publish()
    fs.heal()
    assert snapshots(fs, DIRECTORY) == []
    assert not fs.list(DIRECTORY), "what was written of it is gone"


class StoppedFS(MemFS):
    """A disk whose node is stopped at the moment when a snapshot gets its name, before or after the rename."""

    def __init__(self, *, is_renamed: bool) -> None:
        super().__init__()
        self.is_renamed = is_renamed
        self.in_hand: SnapshotInHand | None = None

    def rename(self, source: Path, target: Path) -> None:
        """Rename, and have the node's other thread abandon the snapshot."""
        if self.is_renamed:
            super().rename(source, target)
        if self.in_hand is not None and target.parent == DIRECTORY:
            self.in_hand.abandon()
        if not self.is_renamed:
            super().rename(source, target)


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_snapshot_that_is_abandoned_while_it_is_published_is_whole(is_renamed: bool) -> None:  # noqa: FBT001 - a parameter
    fs = StoppedFS(is_renamed=is_renamed)
    node = Node(fs)
    node.write(1, b"a")
    fs.in_hand = begun(node)
    fs.in_hand.publish()
    node.close()
    with SnapshotReader.open(fs, DIRECTORY / "1-1") as reader:
        assert [one.partition_id for one in reader.partitions] == [1]


def test_a_snapshot_that_nobody_publishes_can_be_given_up_and_taken_again() -> None:
    node = Node(MemFS())
    node.write(1, b"a")
    in_hand = begun(node)
    in_hand.abandon()
    in_hand.abandon()
    assert not node.fs.list(DIRECTORY)
    assert node.snapshot().index == 1
