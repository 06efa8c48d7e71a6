"""A record in a partition that its node did not write is found before anything is served of that partition."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from latewood.errors import Diverged, StrayRecord, UnavailableError
from latewood.format.entry import Action, Command, encode_command
from latewood.fs import FileSystem, PosixFS
from latewood.log import Log
from latewood.replica.engine import Entry, EntryKind, HardState
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.machine import PartitionEntry
from latewood.replica.recovery import fetch_partitions
from latewood.replica.snapshot import SnapshotReader, SnapshotReceiver, snapshots
from latewood.testing import FakeClock, MemFS
from tests.replica.node import ROOT, SMALL, Node

pytestmark = pytest.mark.needs("native")

PARTITIONS = ROOT / "partitions"
LOG, MACHINE = 1, 2


def append_stray(fs: FileSystem, name: str, payload: bytes = b"stray", *, ext_id: int = 0, root: Path = ROOT) -> None:
    """Append a record to a log of a node that is stopped, as a program does that takes it for a log of its own."""
    with Log.open(root / "partitions" / name, fs=fs, background=False) as log:
        log.append(payload, ext_id=ext_id)


def stopped(*, count: int = 5, compacts: bool = False) -> Node:
    """Return a node with a log and a machine, that is stopped."""
    node = Node(MemFS())
    for at in range(count):
        node.write(LOG, b"log %d" % at)
        node.write(MACHINE, b"state %d" % at)
    if compacts:
        node.snapshot()
    node.close()
    return node


@pytest.mark.parametrize("compacts", [False, True], ids=["in the parent log", "in a snapshot"])
@pytest.mark.parametrize("ext_id", [0, 3], ids=["without an entry", "with the number of another entry"])
@pytest.mark.parametrize(("name", "partition_id"), [("1-1", LOG), ("2-2", MACHINE)])
def test_a_node_with_a_stray_append_in_a_partition_does_not_start(
    name: str, partition_id: int, ext_id: int, *, compacts: bool
) -> None:
    fs = stopped(compacts=compacts).fs
    append_stray(fs, name, ext_id=ext_id)
    with pytest.raises(StrayRecord, match="record 5 ") as refused:
        Node(fs)
    assert (refused.value.partition_id, refused.value.sequence) == (partition_id, 5)
    assert refused.value.path == PARTITIONS / name
    assert "`latewood cluster repair" in str(refused.value)


def test_a_stray_append_where_a_record_was_lost_is_found() -> None:
    node = Node(MemFS())
    node.write(LOG, b"a", b"b")
    node.close()
    fs = node.fs
    fs.remove_tree(PARTITIONS / "1-1")
    append_stray(fs, "1-1")
    with pytest.raises(StrayRecord, match="record 0 "):
        Node(fs)


def test_a_stray_append_is_found_though_the_parent_log_forgot_what_is_committed() -> None:
    """The partition holds entries that the parent log has, and does not know to be committed."""
    node = Node(MemFS())
    node.write(LOG, b"a")
    node.append([node.entry(LOG, b"b")])
    node.store.sync()
    node.roster[LOG].place([PartitionEntry(LOG, 2, 2, node.clock.now_ns(), b"b")])
    node.close()
    fs = node.fs
    Node(fs).close()
    append_stray(fs, "1-1")
    with pytest.raises(StrayRecord, match="record 2 "):
        Node(fs)


def test_a_record_that_differs_from_an_entry_not_known_to_be_committed_is_found() -> None:
    node = Node(MemFS())
    node.write(LOG, b"a")
    node.append([node.entry(LOG, b"b")])
    node.store.sync()
    node.close()
    append_stray(node.fs, "1-1")
    with pytest.raises(StrayRecord, match="record 1 "):
        Node(node.fs)


def test_a_directory_of_a_partition_that_was_never_born_is_found_and_the_real_one_stays() -> None:
    node = stopped()
    held = node.fs.list(PARTITIONS / "1-1" / "segments")
    append_stray(node.fs, "1-7")
    with pytest.raises(StrayRecord, match="entry 7 of the parent log"):
        Node(node.fs)
    assert node.fs.list(PARTITIONS / "1-1" / "segments") == held


@pytest.mark.parametrize("name", ["9-4", "9-99"])
def test_a_directory_of_an_unknown_partition_is_found(name: str) -> None:
    fs = stopped().fs
    append_stray(fs, name)
    with pytest.raises(StrayRecord) as refused:
        Node(fs)
    assert refused.value.path == PARTITIONS / name


def test_a_directory_that_was_copied_from_another_partition_is_found(tmp_path: Path) -> None:
    fs = PosixFS()
    node = Node(fs, root=tmp_path)
    node.write_together((1, [b"a"]), (3, [b"other"]))
    node.write(3, b"b")
    node.write(5, b"c")
    node.snapshot()
    node.close()
    shutil.rmtree(tmp_path / "partitions" / "1-1")
    shutil.copytree(tmp_path / "partitions" / "5-3", tmp_path / "partitions" / "1-1")
    with pytest.raises(StrayRecord, match="record 0 "):
        Node(fs, root=tmp_path)


def test_a_record_of_an_entry_behind_the_end_of_the_parent_log_is_no_matter_for_a_repair() -> None:
    """Either it is another program's, or the parent log has lost its end: then the node has forgotten promises."""
    fs = stopped().fs
    append_stray(fs, "1-1", ext_id=11)
    with pytest.raises(Diverged, match="the parent log ends with entry 10") as refused:
        Node(fs)
    assert not isinstance(refused.value, StrayRecord)
    assert "cluster repair" not in str(refused.value)


# -- what is legal ----------------------------------------------------------------------------------------


def receive(leader: Node, fs: MemFS) -> Path:
    """Have a snapshot of another node on this disk."""
    index, term = snapshots(leader.fs, ROOT / "snapshots")[-1]
    receiver = SnapshotReceiver(fs, FakeClock(), ROOT / "snapshots", index, term)
    with SnapshotReader.open(leader.fs, ROOT / "snapshots" / f"{index}-{term}") as source:
        for number, raw in source.chunks():
            receiver.add(number, raw)
    return ROOT / "snapshots" / f"{index}-{term}"


def cut_short_installation(held: int, garbage: int = 0) -> MemFS:
    """Return the disk of a node that was stopped while it fetched records for a snapshot of another.

    Its parent log ends with some entries that were never committed, and that others took the place of.
    """
    leader, fs = Node(MemFS()), MemFS()
    follower = Node(fs)
    for node in (leader, follower):
        node.write(LOG, *[b"log %d" % at for at in range(3)])
    leader.write(LOG, *[b"log %d" % at for at in range(3, 20)])
    leader.snapshot()
    for _ in range(garbage):
        follower.append([follower.entry(LOG, b"never committed")._replace(term=2)])
    follower.store.sync()
    path = receive(leader, fs)

    def pull(state: object, low: int) -> list[PartitionEntry]:
        if low > held:
            raise UnavailableError("the transfer breaks off here")
        return list(leader.roster[LOG].read(low, min(low + 5, held + 1)))

    with SnapshotReader.open(fs, path) as reader, suppress(UnavailableError):
        fetch_partitions(follower.roster, reader, pull)
    follower.close()
    return fs


@pytest.mark.parametrize("garbage", [0, 2, 30])
@pytest.mark.parametrize("held", [3, 8, 19, 20])
def test_a_partition_that_is_ahead_for_a_snapshot_is_sound(held: int, garbage: int) -> None:
    node = Node(cut_short_installation(held, garbage))
    assert node.roster[LOG].next_index == held + 1
    node.close()


@pytest.mark.parametrize("garbage", [0, 2, 30])
@pytest.mark.parametrize("held", [3, 8, 19, 20])
def test_a_stray_append_to_a_partition_that_is_ahead_for_a_snapshot_is_found(held: int, garbage: int) -> None:
    fs = cut_short_installation(held, garbage)
    append_stray(fs, "1-1")
    with pytest.raises(StrayRecord, match=f"record {held} "):
        Node(fs)


def test_a_snapshot_that_the_parent_log_agrees_with_says_that_entries_before_it_are_committed() -> None:
    """Their commit was forgotten, as it may be; a record that differs from them is a stray one all the same."""
    node = Node(MemFS())
    node.write(LOG, b"a", b"b")
    node.snapshot(compact=False)
    node.close()
    fs = node.fs
    with SegmentedLogStore.open(ROOT / "parent", SMALL, fs=fs, clock=node.clock, background=False) as store:
        store.set_hard_state(HardState(1, 1, 1))
    Node(fs).close()
    with SegmentedLogStore.open(ROOT / "parent", SMALL, fs=fs, clock=node.clock, background=False) as store:
        store.set_hard_state(HardState(1, 1, 1))
    fs.remove_tree(PARTITIONS / "1-1")
    append_stray(fs, "1-1", b"a", ext_id=1)
    with pytest.raises(StrayRecord, match="record 0 "):
        Node(fs)


def test_entries_behind_a_teardown_that_is_not_known_to_be_committed_are_of_another_partition() -> None:
    node = Node(MemFS())
    node.write(LOG, b"a", b"b")
    data = encode_command(Command(LOG, 0, (), action=Action.TEAR_DOWN))
    node.append([Entry(3, 1, EntryKind.NORMAL, data)])
    node.next.clear()
    node.append([node.entry(LOG, b"of the next life")])
    node.store.sync()
    node.close()
    again = Node(node.fs)
    assert [one.payload for one in again.contents()[LOG]] == [b"a", b"b"]
    again.close()


def test_a_directory_from_before_the_base_that_the_snapshot_does_not_know_is_removed() -> None:
    """The partition was torn down while the node was away, and the real one of that number stays."""
    fs = stopped(compacts=True).fs
    for name in ("1-5", "9-4"):
        append_stray(fs, name)
    node = Node(fs)
    assert fs.list(PARTITIONS) == ["1-1", "2-2"]
    assert len(node.contents()[LOG]) == 5
    node.close()
