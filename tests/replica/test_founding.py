"""Whose directory it is, and that a node which lost what it had promised does not start."""

from pathlib import Path

import pytest

from latewood.cli.place import check_rebuildable
from latewood.clock import SystemClock
from latewood.errors import CorruptError, UnsupportedVersion, UsageError
from latewood.fs import PosixFS
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.founding import check_owner, check_unowned, found_node, join_node
from latewood.replica.recovery import NodeLayout
from latewood.replica.repair import repair_node


def config_of(root: Path) -> NodeConfig:
    path = root / "node.toml"
    path.write_text(
        'cluster_id = "c"\nnode_id = 1\ndata = "data"\nlisten = "127.0.0.1:7999"\n[peers]\n1 = "127.0.0.1:7999"\n'
    )
    return load_config(path)


@pytest.mark.parametrize("make", [found_node, join_node])
@pytest.mark.parametrize("whole", [True, False])
def test_a_node_without_its_parent_log_does_not_start(tmp_path: Path, make: object, whole: bool) -> None:  # noqa: FBT001
    config, fs = config_of(tmp_path), PosixFS()
    (found_node if make is found_node else join_node)(config, fs, SystemClock())
    check_owner(config, fs)
    parent = NodeLayout(config.data).parent
    fs.remove_tree(parent)
    if not whole:
        parent.mkdir()
    with pytest.raises(CorruptError, match=r"parent log of this node is gone.*replaced, not mended"):
        check_owner(config, fs)
    with pytest.raises(CorruptError, match="replaced, not mended"):
        repair_node(config, fs, SystemClock())


def test_nobody_rebuilds_a_log_of_a_node(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    found_node(config, PosixFS(), SystemClock())
    with pytest.raises(UsageError, match="latewood cluster repair"):
        check_rebuildable(NodeLayout(config.data).parent, is_catalog=False)
    with pytest.raises(UsageError, match="latewood cluster repair"):
        check_rebuildable(NodeLayout(config.data).partitions / "7-3", is_catalog=False)


@pytest.mark.parametrize("damage", [b"", b"\xff\xff", b'{"cluster_id":"c"}', b'{"cluster_id":"c","node_id":"x"}'])
def test_a_damaged_node_json_says_what_was_in_it(tmp_path: Path, damage: bytes) -> None:
    """No program writes it again: it guards against a configuration that names the data of another node."""
    config, fs = config_of(tmp_path), PosixFS()
    found_node(config, fs, SystemClock())
    path = config.data / "node.json"
    before = path.read_text()
    path.write_bytes(damage)
    for look in (lambda: check_owner(config, fs), lambda: repair_node(config, fs, SystemClock())):
        with pytest.raises(CorruptError, match="if you are sure") as refused:
            look()
        assert str(refused.value).endswith(before.strip())


def test_a_directory_that_a_later_program_made_is_neither_started_repaired_nor_taken(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    found_node(config, PosixFS(), SystemClock())
    path = config.data / "node.json"
    newer = path.read_bytes().replace(b'"version":1', b'"version":2')
    path.write_bytes(newer)
    for refused in (check_owner, check_unowned, found_node, join_node, repair_node):
        with pytest.raises(UnsupportedVersion, match=r"node.json version 2 is not known to this Latewood; upgrade"):
            refused(config, PosixFS(), *[SystemClock()] * (refused not in (check_owner, check_unowned)))
    assert path.read_bytes() == newer


def test_a_directory_of_the_first_programs_is_of_version_1(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    found_node(config, PosixFS(), SystemClock())
    (config.data / "node.json").write_bytes(b'{"cluster_id":"%s","node_id":1}\n' % config.cluster_id.encode())
    check_owner(config, PosixFS())
