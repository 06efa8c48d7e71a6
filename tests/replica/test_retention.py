"""What partitions may forget: decided once, in the order of the log, and never what a reader wants."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, DataLost, UsageError
from latewood.fs import replace_file
from latewood.queue.queue import open_queue
from latewood.queue.retention import RetentionPolicy
from latewood.replica.config import load_config
from latewood.replica.directory import Change, DirectoryMachine, LowMark, ReaderPosition, encode_change
from latewood.replica.machine import PartitionEntry
from latewood.replica.partition import PartitionLogStore
from latewood.replica.retention import drop_below, log_partitions, outdated, proposals
from latewood.testing import CrashFS, MemFS
from tests.replica.node import Node

BORN: Final = 1
COUNT: Final = 80
S: Final = 1_000_000_000


class Directory:
    """A directory, and what it was told."""

    def __init__(self) -> None:
        self.machine, self._count = DirectoryMachine(), 0

    def tell(self, change: Change, at_ns: int = 0) -> None:
        self._count += 1
        self.machine.apply(PartitionEntry(0, self._count, self._count, at_ns, encode_change(change)))


def log_with(count: int, fs: MemFS | None = None) -> Node:
    """A node with one partition that is a log; each record is a second younger than the one before."""
    node = Node(fs or MemFS())
    for number in range(count):
        node.clock.advance(seconds=1)
        node.write(1, b"%d" % number)
    return node


def partition_of(node: Node) -> PartitionLogStore:
    partition = node.roster.get(1)
    assert partition is not None
    return partition


def proposed(node: Node, directory: Directory, **policy: int) -> int:
    """Return from where on the partition would be kept; 0 if nothing may go."""
    marks = proposals(log_partitions(node.machine), directory.machine, RetentionPolicy(**policy), node.clock.now_ns())
    assert len(marks) <= 1
    return marks[0].first_sequence if marks else 0


def ends(node: Node) -> list[int]:
    return [part.end_sequence for part in partition_of(node).sealed(with_times=False)]


# -- what a leader proposes -----------------------------------------------------------------------------------


@pytest.mark.needs("native")
def test_without_readers_and_without_a_bound_nothing_goes() -> None:
    assert proposed(log_with(COUNT), Directory()) == 0


@pytest.mark.needs("native")
def test_what_all_readers_have_passed_goes() -> None:
    node, directory = log_with(COUNT), Directory()
    first, second, *_ = ends(node)
    directory.tell(ReaderPosition(1, "a", COUNT, BORN))
    directory.tell(ReaderPosition(1, "b", second, BORN))
    directory.tell(ReaderPosition(3, "of another partition", 0, BORN))
    assert proposed(node, directory) == first + 1
    directory.tell(ReaderPosition(1, "b", second + 1, BORN))
    assert proposed(node, directory) == second + 1
    directory.tell(ReaderPosition(1, "b", -1))
    assert proposed(node, directory) == ends(node)[-1] + 1


@pytest.mark.needs("native")
def test_a_bound_overrides_no_reader() -> None:
    node, directory = log_with(COUNT), Directory()
    directory.tell(ReaderPosition(1, "a", 0, BORN))
    assert proposed(node, directory, max_bytes=0, max_age_ms=0) == 0


@pytest.mark.needs("native")
def test_a_reader_of_another_life_may_want_anything() -> None:
    node, directory = log_with(COUNT), Directory()
    directory.tell(ReaderPosition(1, "a", COUNT, BORN + 1))
    assert proposed(node, directory, max_bytes=0) == 0


@pytest.mark.needs("native")
def test_a_silent_reader_is_left_out_if_the_policy_says_so() -> None:
    node, directory = log_with(COUNT), Directory()
    directory.tell(ReaderPosition(1, "a", COUNT, BORN), node.clock.now_ns())
    directory.tell(ReaderPosition(1, "gone", 0, BORN), node.clock.now_ns() - 20 * S)
    assert proposed(node, directory) == 0
    assert proposed(node, directory, ignore_readers_silent_ms=30_000) == 0
    assert proposed(node, directory, ignore_readers_silent_ms=10_000) == ends(node)[-1] + 1


@pytest.mark.needs("native")
def test_size_and_age_count_where_nobody_reads() -> None:
    node = log_with(COUNT)
    sealed = list(partition_of(node).sealed(with_times=True))
    assert len(sealed) > 3
    assert proposed(node, Directory(), max_bytes=sum(part.size for part in sealed[1:])) == sealed[0].end_sequence + 1
    age_ms = (node.clock.now_ns() - sealed[1].newest_ns) // 1_000_000
    assert proposed(node, Directory(), max_age_ms=age_ms) == sealed[0].end_sequence + 1
    assert proposed(node, Directory(), max_age_ms=age_ms - 1) == sealed[1].end_sequence + 1


@pytest.mark.needs("native")
def test_the_newest_record_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that comes later begins with the first record that others have."""
    node, last = log_with(COUNT), 0
    partition = partition_of(node)
    last = ends(node)[-1]
    monkeypatch.setattr(PartitionLogStore, "next_index", property(lambda _: last + 2))
    assert proposed(node, Directory(), max_bytes=0) == last
    assert partition.first_index == 1


@pytest.mark.needs("native")
def test_what_was_decided_is_not_proposed_again_and_is_forgotten_with_its_partition() -> None:
    node, directory = log_with(COUNT), Directory()
    first = proposed(node, directory, max_bytes=0)
    directory.tell(LowMark(1, BORN, first))
    assert proposed(node, directory, max_bytes=0) == 0
    assert outdated(node.machine, directory.machine) == []
    node.tear_down(1)
    (gone,) = outdated(node.machine, directory.machine)
    directory.tell(gone)
    assert directory.machine.marks == {}
    node.write(1, b"next life")
    assert directory.machine.first_sequence(1, partition_of(node).born) == 0


# -- what is decided ------------------------------------------------------------------------------------------

POSITIONS = st.builds(
    ReaderPosition, st.integers(1, 2), st.sampled_from("ab"), st.integers(-1, 9), st.integers(BORN, BORN + 1)
)
MARKS = st.builds(LowMark, st.integers(1, 2), st.integers(BORN, BORN + 1), st.integers(-1, 9), st.integers(0, 9))


@given(st.lists(st.one_of(POSITIONS, MARKS)))
def test_no_mark_passes_a_reader_that_came_before_it(changes: list[Change]) -> None:
    directory = Directory()
    positions: dict[tuple[int, str], tuple[ReaderPosition, int]] = {}
    marks: dict[int, tuple[int, int]] = {}
    for at, change in enumerate(changes, 1):
        directory.tell(change, at)
        if isinstance(change, ReaderPosition):
            positions[change.partition, change.name] = (change, at)
            continue
        assert isinstance(change, LowMark)
        held = [
            position.sequence if position.born == change.born else 0
            for position, committed_at in positions.values()
            if position.partition == change.partition
            and position.sequence >= 0
            and committed_at >= change.silent_before_ns
        ]
        born, before = marks.get(change.partition, (0, 0))
        if change.born >= born:
            first = min([change.first_sequence, *held])
            marks[change.partition] = (change.born, max(first, before if change.born == born else 0))
            if change.first_sequence < 0:
                del marks[change.partition]
        found = {key: (mark.born, mark.first_sequence) for key, mark in directory.machine.marks.items()}
        assert found == marks
    again = DirectoryMachine()
    again.restore(directory.machine.snapshot())
    assert (again.readers, again.marks) == (directory.machine.readers, directory.machine.marks)


def test_positions_of_an_older_program_are_read_and_hold_everything() -> None:
    import msgspec  # noqa: PLC0415 - the bytes of an older program

    machine = DirectoryMachine()
    machine.restore([msgspec.msgpack.encode([[1, 7, "a:1"], [2, 1, "reader", 30]])])
    assert machine.addresses == {7: "a:1"}
    assert machine.readers[1, "reader"].sequence == 30
    assert machine.wanted(1, BORN, silent_before_ns=1 << 62) == 0


# -- what is dropped ------------------------------------------------------------------------------------------


@pytest.mark.needs("native")
def test_whole_segments_below_a_mark_go_and_reading_them_says_so() -> None:
    node = log_with(COUNT)
    partition, (first, second, *_) = partition_of(node), ends(node)
    assert drop_below(partition, second, node.fs) is None
    assert partition.first_index == first + 2
    with pytest.raises(DataLost):
        list(partition.read(1, 3))
    node.close()
    again = Node(node.fs)
    assert partition_of(again).first_index == first + 2
    again.write(1, b"goes on")
    assert again.contents()[1][-1].payload == b"goes on"


@pytest.mark.needs("native")
def test_a_reader_of_the_files_of_a_node_holds_what_it_wants_there() -> None:
    node = log_with(COUNT)
    partition, (first, *_, last) = partition_of(node), ends(node)
    node.machine.flush()
    with open_queue(partition.path, mode="r", fs=node.fs, clock=node.clock) as queue:
        with queue.reader("beside", start=first + 1) as reader:
            reader.commit()
        assert drop_below(partition, last, node.fs) == first + 1
        assert partition.first_index == first + 2
        node.clock.advance(seconds=60)
        silent_ns = node.clock.now_ns() - S
        assert drop_below(partition, last, node.fs, silent_ns) is None
        assert partition.first_index > first + 2


@pytest.mark.needs("native")
def test_a_damaged_reader_beside_the_cluster_stops_deletion() -> None:
    node = log_with(COUNT)
    partition = partition_of(node)
    node.fs.make_directory(partition.path / "readers")
    replace_file(node.fs, partition.path / "readers" / "bad.meta", b"nonsense" * 32)
    with pytest.raises(CorruptError):
        drop_below(partition, COUNT - 1, node.fs)
    assert partition.first_index == 1


@pytest.mark.needs("native")
@pytest.mark.slow
def test_a_power_cut_while_records_are_dropped_loses_none_that_stay() -> None:
    fs = CrashFS(tear_bytes=4096)
    node = log_with(40, fs)
    node.machine.flush()
    partition, first = partition_of(node), ends(node)[1] + 1
    expected = {one.index: one for one in node.contents()[1]}
    count, outcomes = 0, set()
    for _, survivor in fs.cuts_during(lambda disk: drop_below(partition, first, disk), 20):
        count += 1
        again = Node(survivor)
        found = again.contents()[1]
        assert [one.index for one in found] == list(range(found[0].index, 41))
        assert all(one == expected[one.index] for one in found)
        assert found[0].index - 1 <= first
        outcomes.add(found[0].index)
        drop_below(partition_of(again), first, survivor)
        assert partition_of(again).first_index == first + 1
        again.close()
    assert count > 5
    assert outcomes == {1, first + 1}


# -- how it is told -------------------------------------------------------------------------------------------


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(f'cluster_id = "c"\nnode_id = 1\nlisten = "127.0.0.1:1"\n{text}\n')
    return path


def test_retention_is_off_unless_there_is_a_table_of_it(tmp_path: Path) -> None:
    assert load_config(config(tmp_path, "")).retention is None
    found = load_config(config(tmp_path, "[retention]\nmax_bytes = 5\nignore_readers_silent_ms = 7")).retention
    assert found is not None
    assert found.policy == RetentionPolicy(max_bytes=5, ignore_readers_silent_ms=7)
    assert load_config(config(tmp_path, "[retention]")).retention is not None


def test_flags_count_key_by_key(tmp_path: Path) -> None:
    path = config(tmp_path, "[retention]\nmax_bytes = 5\nmax_age_ms = 6")
    found = load_config(path, {"retention": {"max_bytes": 9}}).retention
    assert found is not None
    assert (found.max_bytes, found.max_age_ms) == (9, 6)
    assert load_config(config(tmp_path, ""), {"retention": {"max_bytes": 9}}).retention is not None


@pytest.mark.parametrize("text", ["max_bytes = -1", "check_ms = 0", "max_age = 3", 'max_bytes = "1 GB"'])
def test_what_cannot_be_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"node\.toml"):
        load_config(config(tmp_path, f"[retention]\n{text}"))
