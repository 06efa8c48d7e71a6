"""A node's logs are its own: nobody else appends to them, and no other log is taken for one of them."""

import shutil
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.clock import SystemClock
from latewood.errors import Owned, StrayLog
from latewood.format.identity import Mark, Owner
from latewood.fs import FileSystem, PosixFS
from latewood.log import Log
from latewood.log.head import identity_of
from latewood.replica.births import Births
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.founding import found_node
from latewood.replica.recovery import NodeLayout, install_snapshot
from latewood.replica.repair import repair_node
from latewood.replica.snapshot import SnapshotReader
from latewood.testing import MemFS
from tests.cli.shell import complaint
from tests.replica.node import BIRTHS, ROOT, Node
from tests.replica.test_snapshot import pull_from, transfer
from tests.replica.test_stray import append_stray, mend

GOLDEN: Final = Path(__file__).parents[1] / "golden"
OTHER_CLUSTER: Final = Births("another", 1)


def mark_of(fs: FileSystem, name: str) -> Mark:
    identity = identity_of(fs, ROOT / "partitions" / name)
    assert identity is not None
    return identity.mark


def test_a_partitions_identity_is_a_digest_of_cluster_number_and_birth() -> None:
    said = struct.pack("<I", 6) + b"orders" + struct.pack("<QQ", 7, 12)
    expected = blake2b(said, digest_size=16, person=b"lw partition").digest()
    assert Births("orders", 1).partition(7, 12) == Births("orders", 2).partition(7, 12) == expected
    others = [Births("order", 1).partition(7, 12), BIRTHS.partition(7, 12), Births("orders", 1).partition(12, 7)]
    assert expected not in [*others, Births("orders", 7).parent()]
    assert Births("orders", 1).parent() != Births("orders", 2).parent()


@pytest.mark.needs("native")
@pytest.mark.parametrize("name", ["1-1", "2-21"])
def test_a_partition_has_the_same_identity_on_all_nodes_however_it_came_there(name: str) -> None:
    nodes = [Node(MemFS()), Node(MemFS())]
    for node in nodes:
        node.write(1, *[b"log %d" % at for at in range(20)])
        node.write(2, *[b"state %d" % at for at in range(20)])
    leader, follower = nodes
    leader.snapshot()
    fs = MemFS()
    fresh = Node(fs)
    with SnapshotReader.open(leader.fs, ROOT / "snapshots" / "40-1") as source:
        transfer(source, fs)
        with SnapshotReader.open(fs, ROOT / "snapshots" / "40-1") as reader:
            install_snapshot(fresh.node, reader, pull_from(leader))
    fresh.close()
    Node(fs, pull=pull_from(leader)).close()
    follower.close()
    append_stray(follower.fs, name)
    mend(follower, follower.fs)
    (mark,) = {mark_of(one, name) for one in (leader.fs, follower.fs, fs)}
    assert mark.identity == BIRTHS.partition(*map(int, name.split("-")))


@pytest.mark.needs("native")
def test_the_next_life_of_a_partition_is_another_log() -> None:
    node = Node(MemFS())
    node.write(1, b"a")
    before = mark_of(node.fs, "1-1")
    node.tear_down(1)
    node.write(1, b"b")
    assert mark_of(node.fs, "1-3").identity != before.identity
    node.close()


# -- strangers --------------------------------------------------------------------------------------------


def a_node(root: Path) -> Path:
    node = Node(PosixFS(), root=root)
    node.write(1, b"a", b"b")
    node.write(2, b"c")
    node.snapshot()
    node.write(3, b"d")
    node.close()
    return root


def replace(target: Path, source: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


@pytest.mark.needs("native")
@pytest.mark.parametrize("name", ["1-1", "3-4", "7-2"], ids=["before the base", "behind it", "of no partition"])
def test_a_directory_copied_from_another_partition_is_refused_and_nothing_is_removed(tmp_path: Path, name: str) -> None:
    root = a_node(tmp_path / "node")
    replace(root / "partitions" / name, root / "partitions" / "2-3")
    held = sorted(path for path in root.rglob("*") if path.suffix == ".q")
    with pytest.raises(StrayLog, match=BIRTHS.partition(2, 3).hex()) as refused:
        Node(PosixFS(), root=root)
    assert refused.value.path == root / "partitions" / name
    assert held == sorted(path for path in root.rglob("*") if path.suffix == ".q")


@pytest.mark.needs("native")
def test_a_directory_of_another_cluster_is_refused_and_set_aside_by_a_repair(tmp_path: Path) -> None:
    fs, root = PosixFS(), a_node(tmp_path / "node")
    path = root / "partitions" / "3-4"
    shutil.rmtree(path)
    Log.open(path, birth=OTHER_CLUSTER.partition(3, 4)).close()
    with pytest.raises(StrayLog, match="`latewood cluster repair"):
        Node(fs, root=root)
    node = Node(MemFS())
    node.close()
    node.site = node.site._replace(layout=NodeLayout(root))
    (aside,) = mend(node, fs).set_aside
    assert (aside.path, aside.kept) == (root / "damaged" / "partitions-3-4", 0)
    again = Node(fs, root=root)
    assert [one.payload for one in again.contents()[3]] == [b"d"]
    again.close()


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    path = tmp_path / "node.toml"
    path.write_text('cluster_id = "trial"\nnode_id = 1\nlisten = "127.0.0.1:1"\n[peers]\n1 = "127.0.0.1:1"\n')
    found = load_config(path)
    found_node(found, PosixFS(), SystemClock())
    return found


def test_a_parent_log_of_another_node_is_refused_and_the_node_is_to_be_replaced(config: NodeConfig) -> None:
    other = Births(config.cluster_id, 2).parent()
    shutil.rmtree(config.data / "parent")
    Log.open(config.data / "parent", owner=Owner.NODE, birth=other).close()
    with pytest.raises(StrayLog, match=other.hex()) as refused:
        repair_node(config, PosixFS(), SystemClock())
    assert "`latewood cluster remove CLUSTER 1`" in refused.value.__notes__[0]


# -- other openers ----------------------------------------------------------------------------------------


@pytest.mark.needs("native")
@pytest.mark.parametrize("name", ["parent", "partitions/1-1", "partitions/2-3", "snapshots/3-1"])
def test_no_log_of_a_node_can_be_opened_to_append(tmp_path: Path, name: str) -> None:
    path = a_node(tmp_path / "node") / name
    before = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    with pytest.raises(Owned, match=r"node/.* is kept by a node of a cluster; append through the cluster"):
        latewood.open(path)
    assert before == {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


@pytest.mark.parametrize("name", ["parent", "partitions/7-7", "snapshots/12-2", "partitions/9-99"])
def test_no_log_in_a_node_can_be_opened_or_made_before_it_is_marked_as_the_nodes(tmp_path: Path, name: str) -> None:
    """An older program wrote it, without a mark, or it is not there: it would get an identity of its own."""
    root = tmp_path / "data"
    shutil.copytree(GOLDEN / "v1" / "node" / "stopped" / "data", root)
    before = {one: one.read_bytes() for one in root.rglob("*") if one.is_file()}
    with pytest.raises(Owned, match="is kept by a node of a cluster; append through the cluster"):
        latewood.open(root / name)
    assert before == {one: one.read_bytes() for one in root.rglob("*") if one.is_file()}


@pytest.mark.parametrize(
    "line",
    [["info"], ["verify"], ["cat"], ["cleanup", "--yes"], ["seal"], ["flush"], ["retain", "--yes"], ["status"]],
    ids=" ".join,
)
def test_commands_for_a_log_or_a_store_say_that_they_were_given_a_node(config: NodeConfig, line: list[str]) -> None:
    before = {one: one.read_bytes() for one in config.data.rglob("*") if one.is_file()}
    assert "is the directory of a node of a cluster" in complaint(line[0], config.data, *line[1:], code=3)
    assert before == {one: one.read_bytes() for one in config.data.rglob("*") if one.is_file()}


def test_a_log_beside_a_file_that_is_called_as_that_of_a_node_is_anybodys(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{}")
    for name in ("events", "partitions/deeper/events"):
        latewood.open(tmp_path / name).close()


@pytest.mark.needs("native")
def test_a_partition_can_be_read_with_a_named_reader_beside_the_cluster(tmp_path: Path) -> None:
    root = a_node(tmp_path / "node")
    with latewood.open(root / "partitions" / "1-1", mode="r") as log, log.reader("audit") as reader:
        assert reader.next() is not None
        reader.commit()
    node = Node(PosixFS(), root=root)
    assert len(node.contents()[1]) == 2
    node.close()
