"""A record in a partition that its node did not write is found before anything is served of that partition."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from latewood.errors import CorruptError, Diverged, StrayLog, StrayRecord, UnavailableError, UnsupportedVersion
from latewood.format.entry import Action, Command, encode_command, encode_record
from latewood.format.identity import Owner
from latewood.fs import FileSystem, PosixFS
from latewood.log import Log
from latewood.replica.engine import Entry, EntryKind, HardState
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.machine import LogMachine, PartitionEntry
from latewood.replica.markers import hard_state_record
from latewood.replica.recovery import fetch_partitions
from latewood.replica.repair import Mender, Repair, repair_files
from latewood.replica.snapshot import SnapshotReader, SnapshotReceiver, snapshots
from latewood.testing import CrashFS, FakeClock, MemFS
from tests.replica.node import BIRTHS, ROOT, SMALL, Node, Tally

pytestmark = pytest.mark.needs("native")

PARTITIONS = ROOT / "partitions"
LOG, MACHINE = 1, 2
TEXT = b"a line of text from a program of somebody else"


def append_to(
    path: Path,
    payloads: Sequence[bytes],
    *,
    ext_id: int = 0,
    birth: bytes | None = None,
    fs: FileSystem | None = None,
) -> int:
    """Append to a log of a node that is stopped; return the sequence.

    A program that takes the log for its own is refused; this one passes for the node.
    """
    with Log.open(path, SMALL, fs=fs, background=False, owner=Owner.NODE, birth=birth) as log:
        return log.append_many(payloads, ext_id=ext_id).start


def append_stray(fs: FileSystem, name: str, payload: bytes = b"stray", *, ext_id: int = 0) -> None:
    """Append to a partition; if there is none, make it as the node would."""
    partition_id, born = map(int, name.split("-"))
    append_to(PARTITIONS / name, [payload], ext_id=ext_id, birth=BIRTHS.partition(partition_id, born), fs=fs)


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


@pytest.mark.parametrize("ext_id", [3, 1 << 40], ids=["of an entry to come", "of no entry"])
def test_a_stray_record_in_place_of_a_committed_one_proves_no_entry_to_be_committed(ext_id: int) -> None:
    """Otherwise the node, once it is mended, would serve an entry that the cluster may give up."""
    node = Node(MemFS())
    node.write(LOG, b"a", b"b")
    node.append([node.entry(LOG, b"not committed")])
    node.store.sync()
    node.close()
    fs = node.fs
    fs.remove_tree(PARTITIONS / "1-1")
    append_stray(fs, "1-1", ext_id=1)
    append_stray(fs, "1-1", ext_id=ext_id)
    with pytest.raises(StrayRecord, match="record 0 "):
        Node(fs)
    with SegmentedLogStore.open(ROOT / "parent", SMALL, fs=fs, clock=node.clock, background=False) as store:
        assert store.commit_index == 2


def test_a_directory_of_a_partition_that_was_never_born_is_found_and_the_real_one_stays() -> None:
    node = stopped()
    held = node.fs.list(PARTITIONS / "1-1" / "segments")
    append_stray(node.fs, "1-7")
    with pytest.raises(StrayLog, match="entry 7 of the parent log"):
        Node(node.fs)
    assert node.fs.list(PARTITIONS / "1-1" / "segments") == held


@pytest.mark.parametrize("name", ["9-4", "9-99"])
def test_a_directory_of_an_unknown_partition_is_found(name: str) -> None:
    fs = stopped().fs
    append_stray(fs, name)
    with pytest.raises(StrayLog) as refused:
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
    with pytest.raises(StrayLog, match=BIRTHS.partition(5, 3).hex()):
        Node(fs, root=tmp_path)
    with patch("latewood.replica.births.identity_of", return_value=None), pytest.raises(StrayRecord, match="record 0 "):
        Node(fs, root=tmp_path)  # As of a partition that an older program made.


def test_a_record_of_an_entry_behind_the_end_of_the_parent_log_is_no_matter_for_a_repair() -> None:
    """Either it is another program's, or the parent log has lost its end: then the node has forgotten promises."""
    fs = stopped().fs
    append_stray(fs, "1-1", ext_id=11)
    with pytest.raises(Diverged, match="the parent log ends with entry 10") as refused:
        Node(fs)
    assert not isinstance(refused.value, StrayRecord)
    assert "cluster repair" not in str(refused.value)


# -- the parent log and snapshots -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x01", encode_record(hard_state_record(HardState(9, 3, 2)))],
    ids=["nothing", "too short", "a copied hard state"],
)
def test_a_stray_append_to_a_parent_log_stops_the_node(payload: bytes) -> None:
    fs = stopped().fs
    at = append_to(ROOT / "parent", [payload], fs=fs)
    with pytest.raises(CorruptError, match=f"record {at} .*another program appended it") as refused:
        Node(fs)
    assert refused.value.path == ROOT / "parent"


def test_a_stray_append_to_a_parent_log_that_looks_like_a_later_version_says_what_it_may_be() -> None:
    fs = stopped().fs
    append_to(ROOT / "parent", [TEXT], fs=fs)
    with pytest.raises(UnsupportedVersion) as refused:
        Node(fs)
    assert "another program appended it" in refused.value.__notes__[0]


def test_a_stray_append_to_a_snapshot_is_no_part_of_it() -> None:
    fs = stopped(compacts=True).fs
    path = ROOT / "snapshots" / "10-1"
    with SnapshotReader.open(fs, path) as reader:
        before = reader.chunk_count, list(reader.chunks())
    append_to(path, [TEXT] * 3, fs=fs)
    with SnapshotReader.open(fs, path) as reader:
        assert (reader.chunk_count, list(reader.chunks())) == before
    node = Node(fs)
    node.work()
    assert node.tallies()[MACHINE][0] == 5
    node.close()


def test_a_snapshot_under_the_name_of_another_is_not_believed_and_set_aside_by_a_repair() -> None:
    """It was copied there, from another moment: machines would begin with a state of that."""
    node = stopped(compacts=True)
    fs = node.fs
    fs.rename(ROOT / "snapshots" / "10-1", ROOT / "snapshots" / "9-1")
    with pytest.raises(CorruptError, match=r"snapshots/10-1 .* is gone"):
        Node(fs)
    again = stopped(compacts=True)
    again = Node(again.fs)
    again.write(LOG, b"more")
    again.snapshot(compact=False)
    again.close()
    again.fs.rename(ROOT / "snapshots" / "11-1", ROOT / "snapshots" / "12-1")
    with pytest.raises(CorruptError, match=r"snapshots/12-1 .*is of another snapshot"):
        Node(again.fs)
    (aside,) = mend(again, again.fs).set_aside
    assert aside.what == "snapshot"
    Node(again.fs).close()


# -- what is legal ----------------------------------------------------------------------------------------


def receive(leader: Node, fs: MemFS) -> Path:
    """Have a snapshot of another node on this disk."""
    index, term = snapshots(leader.fs, ROOT / "snapshots")[-1]
    receiver = SnapshotReceiver(fs, FakeClock(), ROOT / "snapshots", index, term)
    with SnapshotReader.open(leader.fs, ROOT / "snapshots" / f"{index}-{term}") as source:
        for number, raw in source.chunks():
            receiver.add(number, raw)
    return ROOT / "snapshots" / f"{index}-{term}"


def cut_short_installation(held: int, garbage: int = 0, fs: MemFS | None = None) -> MemFS:
    """Return the disk of a node that was stopped while it fetched records for a snapshot of another.

    Its parent log ends with some entries that were never committed, and that others took the place of.
    """
    leader, fs = Node(MemFS()), fs or MemFS()
    follower = Node(fs)
    for node in (leader, follower):
        node.write(LOG, *[b"log %d" % at for at in range(3)])
    leader.write(LOG, *[b"log %d" % at for at in range(3, 20)])
    leader.snapshot()
    for _ in range(garbage):
        follower.append([follower.entry(LOG, b"never committed")._replace(term=2)])
    follower.store.sync()
    path = receive(leader, fs)

    def pull(_: object, low: int) -> list[PartitionEntry]:
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


def test_an_entry_for_a_partition_that_was_torn_down_since_is_not_compared_with_the_next_life_of_that() -> None:
    """The node got the entry, and two snapshots: one at the entry, and one behind the teardown and the next life."""
    leader, fs = Node(MemFS()), MemFS()
    follower = Node(fs)
    for node in (leader, follower):
        node.write(MACHINE, b"state")
    follower.append([follower.entry(LOG, b"of the first life")])
    follower.store.sync()
    leader.write(LOG, b"of the first life")
    leader.snapshot(compact=False)
    receive(leader, fs)
    leader.tear_down(LOG)
    leader.write(LOG, *[b"of the next life %d" % at for at in range(5)])
    leader.snapshot(compact=False)
    path = receive(leader, fs)
    with SnapshotReader.open(fs, path) as reader:
        fetch_partitions(follower.roster, reader, lambda _, low: list(leader.roster[LOG].read(low, 6)))
    follower.close()
    again = Node(fs)
    assert [one.payload for one in again.contents()[LOG]] == [b"of the next life %d" % at for at in range(5)]
    assert again.store.commit_index == 2
    again.close()


@pytest.mark.parametrize("applied", [2, 5])
def test_a_machine_that_has_applied_more_than_its_node_had_routed_is_sound(applied: int) -> None:
    """An older program did not know again that the entry is committed; so its snapshot stands before the entry."""
    node = Node(MemFS())
    node.write(LOG, b"a")
    payloads = [b"%d" % at for at in range(5)]
    node.append([node.entry(MACHINE, *payloads)])
    node.store.sync()
    node.machine.prepare({MACHINE: 2})
    records = [PartitionEntry(MACHINE, at, 2, node.clock.now_ns(), payload) for at, payload in enumerate(payloads, 1)]
    node.roster[MACHINE].place(records)
    node.close()
    fs = node.fs

    class Stumbling(Tally):
        def apply(self, entry: PartitionEntry) -> None:
            if entry.index > applied:
                raise ValueError("not yet")
            super().apply(entry)

    with patch("latewood.replica.recovery._remember_commit"):
        again = Node(fs, lambda number: Stumbling(number) if number == MACHINE else LogMachine(number))
    again.work()
    assert again.snapshot().index == 1
    again.close()
    with SnapshotReader.open(fs, ROOT / "snapshots" / "1-1") as reader:
        assert [one.partition_log_index for one in reader.partitions if one.partition_id == MACHINE] == [applied]
    last = Node(fs)
    last.work()
    assert last.tallies()[MACHINE][0] == 5
    last.close()


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


# -- repair -----------------------------------------------------------------------------------------------


def mend(node: Node, fs: FileSystem) -> Repair:
    """Repair a node that is stopped, as `latewood cluster repair` does."""
    layout, clock = node.site.layout, node.clock
    with SegmentedLogStore.open(layout.parent, SMALL, fs=fs, clock=clock, background=False) as store:
        return repair_files(store, Mender(layout, fs, clock, BIRTHS, SMALL, "replace it"))


@pytest.mark.parametrize("compacts", [False, True], ids=["in the parent log", "in a snapshot"])
@pytest.mark.parametrize(("name", "partition_id"), [("1-1", LOG), ("2-2", MACHINE)])
def test_a_repair_keeps_what_is_the_nodes_and_sets_the_whole_aside(
    name: str, partition_id: int, *, compacts: bool
) -> None:
    """No other node is there: nobody has the records that the parent log has forgotten."""
    node = stopped(compacts=compacts)
    for _ in range(40):
        append_stray(node.fs, name)
    (aside,) = mend(node, node.fs).set_aside
    assert (aside.what, aside.kept, aside.path) == ("partition", 5, ROOT / "damaged" / f"partitions-{name}")
    assert "record 5 came with no entry" in aside.problem
    with Log.open(aside.path, mode="r", fs=node.fs) as log:
        assert log.next_sequence == 45
    again = Node(node.fs)
    again.work()
    assert [one.index for one in again.contents()[partition_id]] == [1, 2, 3, 4, 5]
    again.write(partition_id, b"goes on")
    assert again.contents()[partition_id][-1].payload == b"goes on"
    again.close()
    assert mend(node, node.fs).set_aside == []


def test_a_repair_finds_all_partitions_that_have_strays_at_once() -> None:
    node = stopped()
    for name in ("1-1", "2-2", "9-4", "9-99"):
        append_stray(node.fs, name)
    assert [(one.path.name, one.kept) for one in mend(node, node.fs).set_aside] == [
        ("partitions-1-1", 5),
        ("partitions-2-2", 5),
        ("partitions-9-4", 0),
        ("partitions-9-99", 0),
    ]
    Node(node.fs).close()


def test_a_repair_finds_a_record_that_differs_from_its_entry() -> None:
    node = Node(MemFS())
    node.write(LOG, b"a", b"b")
    node.close()
    node.fs.remove_tree(PARTITIONS / "1-1")
    append_stray(node.fs, "1-1", b"another", ext_id=1)
    (aside,) = mend(node, node.fs).set_aside
    assert (aside.kept, "record 0 is not what entry 1" in aside.problem) == (0, True)
    again = Node(node.fs)
    assert [one.payload for one in again.contents()[LOG]] == [b"a", b"b"]
    again.close()


def test_a_repair_leaves_all_as_it_is_if_the_parent_log_may_have_lost_its_end() -> None:
    node = stopped()
    append_stray(node.fs, "1-1", ext_id=11)
    append_stray(node.fs, "2-2")
    with pytest.raises(Diverged, match=r"the parent log ends with entry 10.*; replace it"):
        mend(node, node.fs)
    assert node.fs.list(PARTITIONS) == ["1-1", "2-2"]


@pytest.mark.parametrize("held", [8, 20])
def test_a_repair_keeps_what_is_there_for_a_snapshot_that_was_being_installed(held: int) -> None:
    fs = cut_short_installation(held, garbage=2)
    append_stray(fs, "1-1")
    node = Node(MemFS())
    node.close()
    (aside,) = mend(node, fs).set_aside
    assert aside.kept == held
    again = Node(fs)
    assert again.roster[LOG].next_index == held + 1
    again.close()


def test_a_repair_lets_go_of_what_came_for_a_snapshot_that_is_damaged() -> None:
    fs = cut_short_installation(8)
    path = next(one for one in fs.walk(ROOT / "snapshots") if one.suffix == ".q")
    file = fs.open(path, write=True)
    file.pwrite(b"\xff", 200)
    file.close()
    with pytest.raises(CorruptError):
        Node(fs)
    node = Node(MemFS())
    node.close()
    assert [(one.what, one.kept) for one in mend(node, fs).set_aside] == [("snapshot", 0), ("partition", 3)]
    again = Node(fs)
    assert [one.payload for one in again.contents()[LOG]] == [b"log 0", b"log 1", b"log 2"]
    again.close()


def test_a_repair_that_is_cut_anywhere_loses_no_record() -> None:
    fs = CrashFS(tear_bytes=4096)
    node = Node(fs)
    node.write(LOG, *[b"log %d" % at for at in range(20)])
    node.snapshot()
    node.close()
    append_stray(fs, "1-1")
    outcomes = set()
    for _, survivor in list(fs.cuts_during(lambda disk: mend(node, disk), 4))[::3]:
        outcomes.add(len(mend(node, survivor).set_aside))
        again = Node(survivor)
        assert [one.payload for one in again.contents()[LOG]] == [b"log %d" % at for at in range(20)]
        again.close()
    assert outcomes == {0, 1}


def test_a_repair_of_a_damaged_snapshot_and_what_came_for_it_may_be_cut_anywhere() -> None:
    fs = CrashFS(tear_bytes=4096)
    cut_short_installation(8, fs=fs)
    path = next(one for one in fs.walk(ROOT / "snapshots") if one.suffix == ".q")
    file = fs.open(path, write=True)
    file.pwrite(b"\xff", 200)
    file.sync()
    file.close()
    node = Node(MemFS())
    node.close()
    for _, survivor in list(fs.cuts_during(lambda disk: mend(node, disk), 4))[::3]:
        mend(node, survivor)
        again = Node(survivor)
        assert [one.payload for one in again.contents()[LOG]] == [b"log 0", b"log 1", b"log 2"]
        again.close()


def test_what_a_repair_kept_takes_its_place_when_the_node_starts_after_a_cut() -> None:
    fs = CrashFS(tear_bytes=4096)
    node = Node(fs)
    node.write(LOG, *[b"log %d" % at for at in range(20)])
    node.snapshot()
    node.close()
    append_stray(fs, "1-1")
    started = 0
    for _, survivor in list(fs.cuts_during(lambda disk: mend(node, disk), 4))[::3]:
        with suppress(StrayRecord):
            again = Node(survivor)
            assert len(again.contents()[LOG]) == 20
            again.close()
            started += 1
    assert started
