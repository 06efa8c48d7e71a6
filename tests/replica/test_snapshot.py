"""Snapshots: all partitions at one parent index, sent in chunks, resumed, checked, installed."""

from pathlib import Path

import pytest

from latewood.errors import (
    ConflictError,
    CorruptError,
    DiskFull,
    Diverged,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from latewood.format.entry import decode_chunk, encode_chunk
from latewood.replica.machine import LogMachine, PartitionEntry
from latewood.replica.partition import PartitionLogStore
from latewood.replica.recovery import Pull, close_node, install_snapshot
from latewood.replica.retention import drop_below
from latewood.replica.snapshot import (
    PartitionState,
    SnapshotReader,
    SnapshotReceiver,
    SnapshotWriter,
    remove_snapshots_before,
    snapshots,
)
from latewood.testing import CrashFS, FakeClock, MemFS
from tests.replica.node import CONF, ROOT, Node

DIRECTORY = ROOT / "snapshots"


def leader_with_snapshot(fs: MemFS | None = None) -> Node:
    node = Node(fs or MemFS())
    node.write(1, *[b"log %d" % at for at in range(20)])
    node.write(2, *[b"state %d" % at for at in range(20)])
    node.snapshot()
    return node


def reader_of(node: Node) -> SnapshotReader:
    index, term = snapshots(node.fs, DIRECTORY)[-1]
    return SnapshotReader.open(node.fs, DIRECTORY / f"{index}-{term}")


def pull_from(node: Node) -> Pull:
    def pull(state: PartitionState, low: int) -> list[PartitionEntry]:
        partition = node.roster.get(state.partition_id)
        assert partition is not None
        return partition.read_some(max(low, partition.first_index), 7)

    return pull


def transfer(source: SnapshotReader, fs: MemFS) -> None:
    receiver = SnapshotReceiver(fs, FakeClock(), DIRECTORY, source.index, source.term)
    for number, raw in source.chunks(receiver.next_number):
        receiver.add(number, raw)
    assert receiver.is_complete


@pytest.mark.needs("native")
def test_a_snapshot_stands_at_one_parent_index() -> None:
    node = leader_with_snapshot()
    with reader_of(node) as reader:
        assert (reader.index, reader.term, reader.conf) == (40, 1, CONF)
        found = [(one.partition_id, one.partition_log_index, one.log_is_state) for one in reader.partitions]
        assert found == [(1, 20, True), (2, 20, False)]
        assert list(reader.state(reader.partitions[0])) == []
        assert len(b"".join(reader.state(reader.partitions[1]))) == 16
    assert node.store.first_index == 41
    assert node.marks[2].snapshot_index == 20


@pytest.mark.needs("native")
def test_a_snapshot_waits_until_all_is_applied() -> None:
    node = Node(MemFS())
    with pytest.raises(UsageError, match="nothing to snapshot"):
        node.snapshot()
    node.write(2, b"a")
    node.append([node.entry(2, b"b")])
    node.store.sync()
    node.machine.commit(node.store.read_all(2, 3), 2)
    with pytest.raises(UnavailableError, match="not applied yet"):
        node.snapshot()
    node.work()
    node.snapshot()


@pytest.mark.needs("native")
def test_a_snapshot_that_a_crash_kept_from_being_used_is_used_by_the_next_attempt() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(2, b"a")
    node.snapshot(compact=False)
    node.close()
    again = Node(fs)
    again.work()
    again.snapshot()
    assert again.store.first_index == 2
    assert snapshots(fs, DIRECTORY) == [(1, 1)]
    assert again.marks.snapshot_global == 1


@pytest.mark.needs("native")
def test_a_partition_that_was_torn_down_meanwhile_needs_no_records() -> None:
    """The snapshot knows it, and peers have dropped it: it begins empty, until the teardown comes here too."""
    leader, fs = leader_with_snapshot(), MemFS()
    leader.tear_down(1)

    def pull(state: PartitionState, low: int) -> list[PartitionEntry]:
        raise NotFoundError(f"partition {state.partition_id} was torn down; nothing from {low} on is here")

    fresh = Node(fs)
    with reader_of(leader) as source:
        transfer(source, fs)
        with SnapshotReader.open(fs, DIRECTORY / "40-1") as reader:
            install_snapshot(fresh.node, reader, pull)
    close_node(fresh.node)
    again = Node(fs, pull=pull)
    assert again.contents()[1] == []
    assert again.next[1] == 21
    again.tear_down(1)
    assert list(again.contents()) == [2]


@pytest.mark.needs("native")
def test_records_that_nobody_has_now_are_asked_for_later() -> None:
    leader, fs = leader_with_snapshot(), MemFS()
    fresh = Node(fs)
    with reader_of(leader) as source:
        transfer(source, fs)
        with SnapshotReader.open(fs, DIRECTORY / "40-1") as reader:
            with pytest.raises(UnavailableError, match="nobody has entries of partition 1"):
                install_snapshot(fresh.node, reader, lambda *_: [])
            assert fresh.store.first_index == 1
            install_snapshot(fresh.node, reader, pull_from(leader))


@pytest.mark.needs("native")
def test_a_partition_that_waits_for_its_first_record_is_not_in_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(MemFS())
    node.write(2, b"a")

    def full(*_: object) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(PartitionLogStore, "place_run", full)
    with pytest.raises(DiskFull):
        node.write(4, b"b")
    monkeypatch.undo()
    node.snapshot()
    node.compact_partitions()
    with reader_of(node) as reader:
        assert [one.partition_id for one in reader.partitions] == [2]
    node.commit()
    assert node.tallies()[4][0] == 1


@pytest.mark.needs("native")
def test_a_machine_that_cannot_snapshot_leaves_nothing_behind() -> None:
    node = Node(MemFS())
    node.write(2, b"a")
    node.applier.machine(2).snapshot = lambda: (_ for _ in ()).throw(OSError("no"))  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no"):
        node.snapshot()
    assert node.fs.list(DIRECTORY) == []
    node.write(2, b"goes on")
    assert node.tallies()[2][0] == 2


def test_large_states_are_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latewood.replica.snapshot.CHUNK_BYTES_MAX", 10)
    fs = MemFS()
    writer = SnapshotWriter(fs, FakeClock(), DIRECTORY, 9, 2)
    writer.parent(CONF)
    writer.partition(PartitionState(2, 1, 5, 8, log_is_state=False, first_chunk=0), [bytes(25), b"", b"end"])
    writer.partition(PartitionState(4, 1, 5, 9, log_is_state=False, first_chunk=0), [])
    writer.finish()
    with SnapshotReader.open(fs, DIRECTORY / "9-2") as reader:
        assert [len(piece) for piece in reader.state(reader.partitions[0])] == [10, 10, 5, 3]
        assert list(reader.state(reader.partitions[1])) == []
        assert reader.chunk_count == 8


@pytest.mark.needs("native")
def test_a_lagging_node_is_brought_to_a_snapshot() -> None:
    leader, fs = leader_with_snapshot(), MemFS()
    lagging = Node(fs)
    lagging.write(1, b"log 0", b"log 1")
    with reader_of(leader) as source:
        transfer(source, fs)
        with SnapshotReader.open(fs, DIRECTORY / "40-1") as reader:
            install_snapshot(lagging.node, reader, pull_from(leader))
    close_node(lagging.node)
    again = Node(fs)
    assert again.contents()[1] == leader.contents()[1]
    assert again.tallies() == leader.tallies()
    assert again.store.first_index == 41
    leader.write(2, b"more")
    again.write(2, b"more")
    assert again.tallies() == leader.tallies()


@pytest.mark.needs("native")
def test_a_new_node_gets_what_retention_left_of_a_log() -> None:
    leader, fs = leader_with_snapshot(), MemFS()
    partition = leader.roster.get(1)
    assert partition is not None
    partition.compact(15)
    first = partition.first_index
    assert first > 5
    fresh = Node(fs)
    with reader_of(leader) as source:
        transfer(source, fs)
        with SnapshotReader.open(fs, DIRECTORY / "40-1") as reader:
            install_snapshot(fresh.node, reader, pull_from(leader))
    close_node(fresh.node)
    with pytest.raises(Diverged, match="has 0 of 20"):
        Node(fs)
    again = Node(fs, pull=pull_from(leader))
    assert again.contents()[1] == leader.contents()[1]
    again.close()
    assert Node(fs).contents()[1][0].index == first


@pytest.mark.needs("native")
def test_a_partition_that_was_torn_down_meanwhile_is_gone_after_an_installation() -> None:
    leader, fs = leader_with_snapshot(), MemFS()
    lagging = Node(fs)
    lagging.write(6, b"torn down before the snapshot")
    with reader_of(leader) as source:
        transfer(source, fs)
        with SnapshotReader.open(fs, DIRECTORY / "40-1") as reader:
            install_snapshot(lagging.node, reader, pull_from(leader))
    close_node(lagging.node)
    assert list(Node(fs).contents()) == [1, 2]


@pytest.mark.needs("native")
def test_a_snapshot_from_the_past_is_refused() -> None:
    leader, fs = leader_with_snapshot(), MemFS()
    ahead = Node(fs)
    ahead.write(1, *[b"log %d" % at for at in range(20)])
    ahead.write(2, *[b"state %d" % at for at in range(25)])
    with reader_of(leader) as source:
        transfer(source, fs)
    with SnapshotReader.open(fs, DIRECTORY / "40-1") as reader, pytest.raises(Diverged, match="would undo"):
        install_snapshot(ahead.node, reader, pull_from(leader))


@pytest.mark.needs("native")
def test_a_transfer_goes_on_where_it_broke_off() -> None:
    leader, fs = leader_with_snapshot(), CrashFS()
    with reader_of(leader) as source:
        sent = list(source.chunks())
        receiver = SnapshotReceiver(fs, FakeClock(), DIRECTORY, 40, 1)
        for number, raw in sent[:3]:
            receiver.add(number, raw)
        receiver.flush()
        later = fs.after_power_cut()
        again = SnapshotReceiver(later, FakeClock(), DIRECTORY, 40, 1)
        assert again.next_number == 3
        again.add(1, sent[1][1])
        with pytest.raises(ConflictError, match="does not follow"):
            again.add(4, sent[4][1])
        for number, raw in source.chunks(again.next_number):
            again.add(number, raw)
        assert again.is_complete
        again.add(0, sent[0][1])
    assert snapshots(later, DIRECTORY) == [(40, 1)]
    assert SnapshotReceiver(later, FakeClock(), DIRECTORY, 40, 1).is_complete


@pytest.mark.needs("native")
@pytest.mark.slow
@pytest.mark.parametrize("tear_bytes", [512, 4096])
def test_a_power_cut_during_a_transfer_leaves_all_or_none(tear_bytes: int) -> None:
    leader, fs = leader_with_snapshot(), CrashFS(tear_bytes=tear_bytes)
    with reader_of(leader) as source:
        count = 0
        for _, survivor in list(fs.cuts_during(lambda disk: transfer(source, disk), 6))[::5]:
            count += 1
            whole = snapshots(survivor, DIRECTORY)
            assert whole in ([], [(40, 1)])
            if whole:
                SnapshotReader.open(survivor, DIRECTORY / "40-1").close()
            transfer(source, survivor)
            assert snapshots(survivor, DIRECTORY) == [(40, 1)]
        assert count > 10


@pytest.mark.needs("native")
@pytest.mark.slow
def test_a_power_cut_during_an_installation_leaves_a_node_that_can_go_on() -> None:
    leader, fs = Node(MemFS()), CrashFS(tear_bytes=4096)
    lagging = Node(fs)
    for node in (leader, lagging):
        node.write(1, b"log 0", b"log 1")
        node.write(2, b"state 0")
    leader.write(1, *[b"log %d" % at for at in range(2, 20)])
    leader.write(2, *[b"state %d" % at for at in range(1, 20)])
    leader.snapshot()
    with reader_of(leader) as source:
        transfer(source, fs)

    def install(disk: CrashFS) -> None:
        with SnapshotReader.open(disk, DIRECTORY / "40-1") as reader:
            install_snapshot(lagging.node, reader, pull_from(leader))
        close_node(lagging.node)
        Node(disk)

    outcomes = set()
    for _, survivor in list(fs.cuts_during(install, 4))[::5]:
        node = Node(survivor, pull=pull_from(leader))
        node.work()
        installed = node.store.first_index == 41
        outcomes.add(installed)
        if not installed:
            assert [one.payload for one in node.contents()[1]][:2] == [b"log 0", b"log 1"]
            assert node.tallies()[2][0] == 1
            with SnapshotReader.open(survivor, DIRECTORY / "40-1") as reader:
                install_snapshot(node.node, reader, pull_from(leader))
        close_node(node.node)
        again = Node(survivor, pull=pull_from(leader))
        assert again.contents()[1] == leader.contents()[1]
        assert again.tallies() == leader.tallies()
    assert outcomes == {True, False}


@pytest.mark.needs("native")
@pytest.mark.parametrize("damage", ["flip", "swap", "drop", "other"])
def test_damage_is_found_by_whoever_receives(damage: str) -> None:
    leader, fs = leader_with_snapshot(), MemFS()
    with reader_of(leader) as source:
        sent = [raw for _, raw in source.chunks()]
    if damage == "flip":
        sent[3] = sent[3][:-1] + bytes([sent[3][-1] ^ 1])
    elif damage == "swap":
        sent[3], sent[4] = sent[4], sent[3]
    elif damage == "drop":
        del sent[3]
    else:
        sent[3] = encode_chunk(decode_chunk(sent[3], Path("x"), 0)._replace(index=39))
    receiver = SnapshotReceiver(fs, FakeClock(), DIRECTORY, 40, 1)
    with pytest.raises((CorruptError, ConflictError)):  # noqa: PT012 - which chunk shows it depends on the damage
        for number, raw in enumerate(sent):
            receiver.add(number, raw)
    assert not receiver.is_complete
    receiver.abandon()
    assert fs.list(DIRECTORY) == []


@pytest.mark.needs("native")
def test_a_snapshot_without_its_end_is_none() -> None:
    leader, fs = leader_with_snapshot(), MemFS()
    with reader_of(leader) as source:
        receiver = SnapshotReceiver(fs, FakeClock(), DIRECTORY, 40, 1)
        for number, raw in list(source.chunks())[:-1]:
            receiver.add(number, raw)
        receiver.close()
    fs.rename(DIRECTORY / "40-1.incoming", DIRECTORY / "40-1")
    with pytest.raises(CorruptError, match="not whole"):
        SnapshotReader.open(fs, DIRECTORY / "40-1")


@pytest.mark.needs("native")
def test_old_snapshots_go_and_a_cut_leaves_none_in_half() -> None:
    fs = CrashFS(tear_bytes=4096)
    node = leader_with_snapshot(fs)
    node.write(2, b"more")
    node.snapshot()
    assert snapshots(fs, DIRECTORY) == [(40, 1), (41, 1)]
    for _, survivor in fs.cuts_during(lambda disk: remove_snapshots_before(disk, DIRECTORY, 41), 10):
        for index, term in snapshots(survivor, DIRECTORY):
            SnapshotReader.open(survivor, DIRECTORY / f"{index}-{term}").close()
        remove_snapshots_before(survivor, DIRECTORY, 41)
        assert survivor.list(DIRECTORY) == ["41-1"]


@pytest.mark.needs("native")
def test_partitions_are_compacted_below_their_snapshot() -> None:
    fs = MemFS()
    node = leader_with_snapshot(fs)
    node.compact_partitions()
    log, state = node.roster.get(1), node.roster.get(2)
    assert log is not None
    assert state is not None
    assert log.first_index == 1, "a log that is its partition's state stays"
    assert state.first_index > 5
    node.write(2, b"more")
    tallies = node.tallies()
    node.close()
    again = Node(fs)
    again.work()
    assert again.tallies() == tallies
    again.close()
    fs.remove_tree(DIRECTORY)
    with pytest.raises(Diverged, match="the snapshot of that is gone"):
        Node(fs)


@pytest.mark.needs("native")
def test_partitions_keep_what_only_a_later_snapshot_holds() -> None:
    """The parent log begins behind the snapshot before the newest: what that one holds may go, and no more."""
    fs = MemFS()
    node = Node(fs)
    node.write(2, *[b"one %d" % at for at in range(20)])
    first = node.snapshot(compact=False)
    node.write(2, *[b"two %d" % at for at in range(20)])
    node.snapshot(compact=False)
    node.store.compact(first)
    node.compact_partitions()
    partition = node.roster.get(2)
    assert partition is not None
    assert 10 < partition.first_index <= 21
    tallies = node.tallies()
    node.close()
    fs.remove_tree(DIRECTORY / "40-1")  # Recovery does without the newest, as long as there is the one of the base.
    again = Node(fs)
    again.work()
    assert again.tallies() == tallies
    again.close()


@pytest.mark.needs("native")
def test_a_snapshot_of_an_earlier_life_shortens_no_partition() -> None:
    node = Node(MemFS())
    node.write(2, *[b"one %d" % at for at in range(20)])
    node.snapshot()
    node.tear_down(2)
    node.write(2, *[b"two %d" % at for at in range(20)])
    node.compact_partitions()
    assert [one.index for one in node.contents()[2]] == list(range(1, 21))


@pytest.mark.needs("native")
def test_a_log_that_gets_a_machine_is_applied_from_its_beginning() -> None:
    """Its snapshots hold no state: going on behind them would leave everything before them out."""
    fs = MemFS()
    node = Node(fs, LogMachine)
    node.write(2, *[b"%d" % at for at in range(20)])
    node.snapshot()
    node.write(2, b"after")
    node.close()
    again = Node(fs)
    again.work()
    assert again.tallies()[2][0] == 21
    again.close()
    shortened = Node(fs, LogMachine)
    partition = shortened.roster.get(2)
    assert partition is not None
    partition.compact(15)
    shortened.close()
    with pytest.raises(Diverged, match="no snapshot holds them"):
        Node(fs)


@pytest.mark.needs("native")
def test_a_new_node_begins_behind_a_snapshot_whose_records_all_went() -> None:
    """Others have dropped all that the snapshot knows; what is newer comes by the parent log."""
    leader, fs = leader_with_snapshot(), MemFS()
    with reader_of(leader) as source:
        transfer(source, fs)
    leader.write(1, *[b"later %d" % at for at in range(20)])
    partition = leader.roster.get(1)
    assert partition is not None
    drop_below(partition, 39, leader.fs)
    assert partition.first_index > 21
    fresh = Node(fs)
    with SnapshotReader.open(fs, DIRECTORY / "40-1") as reader:
        install_snapshot(fresh.node, reader, pull_from(leader))
    close_node(fresh.node)
    again = Node(fs, pull=pull_from(leader))
    assert again.next[1] == 21
    again.write(1, *[b"later %d" % at for at in range(20)])
    mine = [one for one in again.contents()[1] if one.index >= partition.first_index]
    assert [(one.index, one.payload) for one in mine] == [(one.index, one.payload) for one in leader.contents()[1]]


@pytest.mark.needs("native")
def test_a_snapshot_of_a_partition_torn_down_since_does_not_hinder_the_others() -> None:
    fs = MemFS()
    node = leader_with_snapshot(fs)
    node.write(4, b"x")
    node.snapshot()
    node.tear_down(4)
    node.compact_partitions()
    tallies = node.tallies()
    node.close()
    again = Node(fs)
    again.work()
    assert again.tallies() == tallies
