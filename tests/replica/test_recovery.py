"""A node that was killed anywhere comes back with the partitions that its parent log says it has."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from latewood.errors import DiskFull, Diverged
from latewood.format.entry import Command, encode_command
from latewood.replica.dispatch import Following
from latewood.replica.engine import Entry, EntryKind, HardState
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.machine import PartitionEntry
from latewood.replica.recovery import following_indices
from latewood.replica.routing import commands_of
from latewood.replica.snapshot import remove_snapshots_before
from latewood.testing import CrashFS, MemFS
from tests.replica.node import ROOT, SMALL, Node, tally_or_log

pytestmark = pytest.mark.needs("native")

LIMIT, STRIDE = 3, 5
LIMIT_CAMPAIGN = 200


def projection(entries: list[Entry]) -> dict[int, list[tuple[int, int, bytes]]]:
    """What the partitions must hold, by the parent log alone."""
    found: dict[int, list[tuple[int, int, bytes]]] = {}
    for entry in entries:
        for command in commands_of(entry):
            if command.partition_log_index == 0:
                found.pop(command.partition_id, None)
                continue
            places = enumerate(command.payloads, command.partition_log_index)
            found.setdefault(command.partition_id, []).extend((at, entry.index, payload) for at, payload in places)
    return found


def rows(contents: dict[int, list[PartitionEntry]]) -> dict[int, list[tuple[int, int, bytes]]]:
    return {key: [(one.index, one.global_index, one.payload) for one in found] for key, found in contents.items()}


class Promise(NamedTuple):
    """All that was committed and synced."""

    entries: tuple[Entry, ...] = ()


class Teller:
    """Writes, and notes what is owed after each acknowledgement."""

    def __init__(self, fs: CrashFS) -> None:
        self.fs, self.node, self.all = fs, Node(fs), list[Entry]()
        fs.note = Promise()

    def write(self, partition_id: int, *payloads: bytes) -> None:
        for payload in payloads:
            entry = self.node.entry(partition_id, payload)
            self.node.append([entry])
            self.all.append(entry)
        self.node.commit()
        self.fs.note = Promise(tuple(self.all))

    def write_together(self, *requests: tuple[int, Sequence[bytes]]) -> None:
        self.node.write_together(*requests)
        self._note_last()

    def tear_down(self, partition_id: int) -> None:
        self.node.tear_down(partition_id)
        self._note_last()

    def _note_last(self) -> None:
        self.all = self.all + self.node.store.read_all(self.node.store.last_index, self.node.store.last_index + 1)
        self.fs.note = Promise(tuple(self.all))


def some_writes(teller: Teller) -> None:
    teller.write(1, b"a", b"b")
    teller.write(2, b"c", b"d")
    teller.node.machine.flush()
    teller.write(1, b"e")


def a_teardown(teller: Teller) -> None:
    teller.write(1, b"a")
    teller.write(2, b"b")
    teller.tear_down(1)
    teller.tear_down(2)
    teller.write(1, b"c")


def some_bundles(teller: Teller) -> None:
    """More than a segment holds, so that a cut keeps a part of an entry's records."""
    small = [b"record %03d" % at for at in range(14)]
    teller.write_together((1, small), (2, [b"d"]), (1, [b"e"]))
    teller.node.machine.flush()
    teller.write_together((2, small), (4, [b"h", b"i"]))


def a_compaction(teller: Teller) -> None:
    teller.write(1, *[b"%d" % at for at in range(4)])
    teller.write(2, *[b"%d" % at for at in range(4)])
    teller.node.snapshot()
    teller.write(2, b"later")
    teller.node.snapshot()


def a_compaction_of_partitions(teller: Teller) -> None:
    """The parent log is cut at the snapshot before the newest, and then the partitions of machines are."""
    node = teller.node
    teller.write(2, *[b"%d" % at for at in range(16)])
    before = node.snapshot(compact=False)
    for _ in range(2):
        teller.write(2, *[b"later %d" % at for at in range(6)])
        newest = node.snapshot(compact=False)
        node.store.compact(before)
        node.compact_partitions()
        remove_snapshots_before(teller.fs, node.site.layout.snapshots, before.index)
        before = newest
    partition = node.roster.get(2)
    assert partition is not None
    assert partition.first_index > 10, "something was dropped"
    teller.write(2, b"end")


def check(survivor: CrashFS) -> None:
    promise = survivor.note
    assert isinstance(promise, Promise)
    before = list(promise.entries)
    node = Node(survivor)
    node.work()
    commit = node.node.applied
    assert commit >= len(before), "what was acknowledged is never rolled back"
    held = rows(node.contents())
    tail = [one for one in node.store.read_all(node.store.first_index, commit + 1) if one.index > len(before)]
    expected = projection(before + tail)
    for partition_id, found in expected.items():
        first = held[partition_id][0][0] if held.get(partition_id) else 1
        assert partition_id % 2 == 0 or first == 1, "a log keeps its records"
        assert held.pop(partition_id) == found[first - 1 :]
    assert not held
    for partition_id, (count, _) in node.tallies().items():
        assert count == len(expected[partition_id]), "every entry is applied once"
    node.write(5, b"goes on")
    assert rows(node.contents())[5][-1][2] == b"goes on"
    node.close()


@pytest.mark.slow
@pytest.mark.parametrize("tell", [some_writes, some_bundles, a_teardown, a_compaction, a_compaction_of_partitions])
def test_a_power_cut_at_any_step_changes_no_partition(tell: Callable[[Teller], None], campaign: bool) -> None:  # noqa: FBT001
    fs, count = CrashFS(tear_bytes=512 if tell is some_bundles else 4096), 0
    limit, stride = (LIMIT_CAMPAIGN, 1) if campaign else (LIMIT, STRIDE)
    for number, (step, survivor) in enumerate(fs.cuts_during(lambda disk: tell(Teller(disk)), limit)):
        if not isinstance(survivor.note, Promise) or number % stride:
            continue
        count += 1
        try:
            check(survivor)
        except Exception as error:
            error.add_note(f"after a cut at {step!r}, owing {len(survivor.note.entries)} entries")
            raise
    assert count > 20


def test_a_second_cut_during_recovery_changes_nothing_either() -> None:
    fs = CrashFS(tear_bytes=4096)
    a_compaction(Teller(fs))
    first = fs.after_power_cut()
    for _, survivor in list(first.cuts_during(Node, 4))[::4]:
        check(survivor)


def test_a_lost_end_of_a_partition_is_repaired_from_the_parent() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(1, b"a", b"b", b"c")
    expected = rows(node.contents())
    node.close()
    fs.remove_tree(ROOT / "partitions")
    again = Node(fs)
    assert rows(again.contents()) == expected
    again.close()


@pytest.mark.parametrize("held", [0, 1, 2, 3])
@pytest.mark.parametrize("partition_id", [1, 2])
def test_of_an_entry_that_a_partition_holds_in_part_the_rest_is_appended(partition_id: int, held: int) -> None:
    node = Node(MemFS())
    entry = node.entry(partition_id, b"a", b"b", b"c", index=1)
    node.append([entry])
    records = [PartitionEntry(partition_id, at, 1, node.clock.now_ns(), b"abc"[at - 1 : at]) for at in (1, 2, 3)]
    node.machine.prepare({partition_id: 1})
    node.roster[partition_id].place(records[:held])  # As a cut in the middle of it leaves it.
    node.close()
    fs = node.fs
    with SegmentedLogStore.open(ROOT / "parent", SMALL, fs=fs, clock=node.clock, background=False) as store:
        store.set_hard_state(HardState(1, 1, 1))
    again = Node(fs)
    again.work()
    assert rows(again.contents()) == projection([entry])
    assert again.marks.applied_floor() == 1
    again.write(partition_id, b"d")
    assert again.marks[partition_id].applied_index == 4
    again.close()


def forgetful(fs: MemFS) -> Node:
    """A node that forgets, when it stops, that its last entry is committed; a partition has it."""
    node = Node(fs)
    node.write(1, b"a")
    node.append([node.entry(1, b"b"), node.entry(3, b"uncommitted", index=3)])
    node.store.sync()
    node.roster[1].place([PartitionEntry(1, 2, 2, node.clock.now_ns(), b"b")])
    node.close()
    return node


def test_what_a_partition_holds_is_known_to_be_committed() -> None:
    again = Node(forgetful(MemFS()).fs)
    assert (again.node.applied, again.store.commit_index) == (2, 2)
    again.close()
    assert Node(again.fs).store.commit_index == 2


def test_entries_that_a_partition_holds_are_not_overwritten() -> None:
    """Only nodes that have lost what they acknowledged elect a leader that wants that: nobody follows it."""
    again = Node(forgetful(MemFS()).fs)
    with pytest.raises(Diverged, match="would overwrite entries up to 2"):
        again.store.append([Entry(2, 2, EntryKind.NORMAL, b"")])
    again.store.append([Entry(3, 2, EntryKind.NORMAL, b"")])
    again.close()


def test_uncommitted_entries_reach_no_partition() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(1, b"committed")
    node.append([node.entry(1, b"not yet")])
    node.store.sync()
    node.close()
    again = Node(fs)
    assert [one.payload for one in again.contents()[1]] == [b"committed"]
    again.close()


def test_a_new_leader_counts_uncommitted_entries_too() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(1, b"a")
    node.append([node.entry(1, b"b"), node.entry(4, b"c", index=3), node.entry(1, b"d", index=4)])
    node.append([Entry(5, 1, EntryKind.NORMAL, b"")])
    node.store.sync()
    assert following_indices(node.store, node.machine) == Following({1: 4, 4: 2})
    node.close()


def test_machines_begin_behind_their_snapshot() -> None:
    fs, applied = MemFS(), list[int]()

    def counting(partition_id: int) -> object:
        user = tally_or_log(partition_id)
        real = user.apply
        user.apply = lambda entry: (applied.append(entry.index), real(entry))  # type: ignore[method-assign,assignment,func-returns-value]
        return user

    node = Node(fs)
    node.write(2, *[b"%d" % at for at in range(30)])
    node.snapshot()
    node.write(2, b"after")
    tallies = node.tallies()
    node.close()
    again = Node(fs, counting)  # type: ignore[arg-type]
    again.work()
    assert applied == [31]
    assert again.tallies() == tallies
    again.close()


def test_a_failed_placement_is_repeated_without_loss_or_double() -> None:
    fs = MemFS()
    node = Node(fs)
    node.write(2, b"first")
    fs.fail("open", "4-3/wake", DiskFull("no room"))
    node.append([node.entry(2, b"second"), node.entry(4, b"third", index=3)])
    with pytest.raises(DiskFull):
        node.commit()
    fs.heal()
    node.commit()
    assert {key: count for key, (count, _) in node.tallies().items()} == {2: 2, 4: 1}
    node.close()


def test_planted_roll_back_recovery_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old plan: drop parent entries above what the partitions hold."""

    def rolling_back(fs: CrashFS) -> None:
        with suppress(Exception):
            node = Node(fs)
            top = max([one.global_index for found in node.contents().values() for one in found], default=0)
            node.store._state.hard_state = HardState(1, 1, 0)
            node.store.append([Entry(top + 1, 1, EntryKind.NORMAL, b"")])
            node.store.sync()
            node.close()

    fs = CrashFS(tear_bytes=4096)
    teller = Teller(fs)
    teller.write(1, b"a")
    teller.node.machine.flush()
    monkeypatch.setattr(type(teller.node.machine), "commit", lambda *_: None)
    teller.write(1, b"b")
    monkeypatch.undo()
    check(fs.after_power_cut())
    survivor = fs.after_power_cut()
    monkeypatch.setattr("latewood.replica.recovery._replay", lambda *_: None)
    rolling_back(survivor)
    monkeypatch.undo()
    with pytest.raises((AssertionError, Diverged)):
        check(survivor)


def test_planted_compaction_to_what_is_applied_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition must keep what no snapshot holds: its machine begins behind one."""
    monkeypatch.setattr(
        "latewood.replica.retention.drop_below", lambda partition, *_: partition.compact(partition.next_index - 1)
    )
    fs = CrashFS(tear_bytes=4096)
    teller = Teller(fs)
    teller.write(2, *[b"%d" % at for at in range(4)])
    teller.node.snapshot()
    teller.write(2, *[b"%d" % at for at in range(16)])
    teller.node.compact_partitions()
    monkeypatch.undo()
    with pytest.raises(Diverged, match="no snapshot holds them"):
        check(fs.after_power_cut())


def test_planted_forwarding_at_sync_is_caught() -> None:
    """Entries that reach a partition before they are committed are found out when others are committed there."""
    fs = MemFS()
    node = Node(fs)
    node.write(1, b"a")
    forged = Entry(2, 1, EntryKind.NORMAL, encode_command(Command(1, 2, [b"uncommitted"])))
    node.append([forged])
    node.store.sync()
    node.machine.commit([forged], node.store.durable_index)
    node.close()
    again = Node(fs)
    real = Entry(2, 2, EntryKind.NORMAL, encode_command(Command(1, 2, [b"committed"])))
    with pytest.raises(Diverged):
        again.store.append([real])


@pytest.mark.parametrize("partition_id", [1, 2])
def test_a_partition_that_was_torn_down_behind_the_base_needs_no_records(partition_id: int) -> None:
    """Its files went with the teardown, and its entries behind the base are replayed after that."""
    fs = MemFS()
    node = Node(fs)
    node.write(partition_id, b"a", b"b")
    node.snapshot()
    node.write(partition_id, b"c")
    node.tear_down(partition_id)
    node.write(3, b"other")
    expected = rows(node.contents())
    node.close()
    again = Node(fs)
    again.work()
    assert rows(again.contents()) == expected == {3: [(1, 5, b"other")]}
    again.write(partition_id, b"next life")
    assert rows(again.contents())[partition_id] == [(1, 6, b"next life")]
    again.close()


def test_a_node_on_a_real_disk(tmp_path: Path) -> None:
    from latewood.fs import PosixFS  # noqa: PLC0415 - the one test on a real disk

    fs = PosixFS()
    node = Node(fs, root=tmp_path / "node")
    node.write(1, b"a", b"b")
    node.write(2, b"c")
    node.snapshot()
    node.close()
    again = Node(fs, root=tmp_path / "node")
    assert [one.payload for one in again.contents()[1]] == [b"a", b"b"]
    assert again.tallies()[2][0] == 1
    again.close()
