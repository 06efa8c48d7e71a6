"""Repair of one node's files, and whom it asks for what it misses."""

import asyncio
from pathlib import Path

import pytest

from latewood.clock import SystemClock
from latewood.errors import CorruptError, Diverged, NotFoundError, UnsupportedVersion
from latewood.format.entry import Command, encode_command
from latewood.fs import PosixFS
from latewood.replica.births import Births
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.engine import ConfState, Entry, EntryKind, HardState, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.founding import found_node, parent_options
from latewood.replica.machine import PartitionEntry
from latewood.replica.node import Node
from latewood.replica.partition import PartitionLogStore
from latewood.replica.repair import repair_node
from tests.replica.processes import flip_a_bit


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    path = tmp_path / "node.toml"
    peers = "\n".join(f'{node} = "127.0.0.1:{node}"' for node in (1, 2, 3))
    path.write_text(f'cluster_id = "trial"\nnode_id = 1\nlisten = "127.0.0.1:1"\n[peers]\n{peers}\n')
    found = load_config(path)
    found_node(found, PosixFS(), SystemClock())
    with SegmentedLogStore.open(found.data / "parent", parent_options(found), background=False) as store:
        store.append([Entry(1 + at, 1, EntryKind.NORMAL, data_of(at)) for at in range(1, 101)], HardState(1, 0, 101))
        store.sync()
    return found


def data_of(at: int) -> bytes:
    """A record for each of two partitions."""
    return b"".join(encode_command(Command(partition, at, [bytes(500)], 5)) for partition in (7, 8))


def fill(config: NodeConfig, partition: int) -> Path:
    """Write a partition's log, as a node does."""
    path = config.data / "partitions" / f"{partition}-2"
    log = PartitionLogStore.open(path, partition, 2, birth=Births("trial", 1).partition(partition, 2))
    log.place([PartitionEntry(partition, at, 1 + at, 5, bytes(500)) for at in range(1, 101)])
    log.close()
    return path


def test_only_what_is_damaged_is_set_aside(config: NodeConfig) -> None:
    sound, damaged = fill(config, 7), fill(config, 8)
    flip_a_bit(damaged)
    repair = repair_node(config, PosixFS(), SystemClock())
    (aside,) = repair.set_aside
    assert (aside.what, aside.path) == ("partition", config.data / "damaged" / "partitions-8-2")
    assert "at byte" in aside.problem
    assert (sound.is_dir(), damaged.exists(), aside.path.is_dir()) == (True, False, True)
    assert repair_node(config, PosixFS(), SystemClock()).set_aside == []


def test_what_was_set_aside_before_is_kept(config: NodeConfig) -> None:
    for expected in ("partitions-8-2", "partitions-8-2.1"):
        flip_a_bit(fill(config, 8))
        (aside,) = repair_node(config, PosixFS(), SystemClock()).set_aside
        assert aside.path.name == expected
    assert sorted(path.name for path in (config.data / "damaged").iterdir()) == ["partitions-8-2", "partitions-8-2.1"]


@pytest.mark.parametrize("kind", ["manifest", "segment"])
def test_a_partition_of_a_later_program_is_not_set_aside(config: NodeConfig, kind: str) -> None:
    newer, damaged = fill(config, 7), fill(config, 8)
    flip_a_bit(damaged)
    slot = (newer / "manifest.current").read_bytes()[0]
    path, at = (newer / f"manifest.{slot}", 4) if kind == "manifest" else (next(newer.rglob("*.q")), 8)
    data = bytearray(path.read_bytes())
    data[at] = 99
    path.write_bytes(data)
    with pytest.raises(UnsupportedVersion, match="version 99"):
        repair_node(config, PosixFS(), SystemClock())
    assert newer.is_dir()
    assert damaged.is_dir()
    assert path.read_bytes() == bytes(data)


def test_a_damaged_parent_log_is_left_alone_and_so_is_everything_else(config: NodeConfig) -> None:
    damaged = fill(config, 8)
    flip_a_bit(damaged)
    flip_a_bit(config.data / "parent", 100)
    with pytest.raises(CorruptError) as refused:
        repair_node(config, PosixFS(), SystemClock())
    assert "`latewood cluster remove CLUSTER 1`" in refused.value.__notes__[0]
    assert damaged.is_dir()


def test_a_directory_that_is_no_nodes_is_not_repaired(config: NodeConfig) -> None:
    (config.data / "node.json").unlink()
    with pytest.raises(NotFoundError):
        repair_node(config, PosixFS(), SystemClock())


def test_nodes_that_can_be_reached_are_asked_before_those_that_cannot(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was replaced stays in the configuration of others; each request to it would be waited for in vain."""

    async def story() -> None:
        node = Node(config)
        monkeypatch.setattr(node.transport, "is_connected", lambda one: one == 3)
        assert node._others() == [3]
        monkeypatch.setattr(node.transport, "is_connected", lambda _: False)
        assert node._others() == [2, 3]

    asyncio.run(story())


def test_a_record_that_was_not_flushed_and_is_damaged_is_no_end(config: NodeConfig) -> None:
    """A log takes it for a torn end; a partition knows what was placed, and serves no part as if it were all."""
    path = config.data / "partitions" / "7-2"
    log = PartitionLogStore.open(path, 7, 2)
    log.place([PartitionEntry(7, at, 1 + at, 5, bytes(500)) for at in range(1, 101)])
    flip_a_bit(path)
    with pytest.raises(CorruptError, match=r"at byte 4\d\d\d: entry 10 was placed"):
        list(log.read(1, 101))
    assert len(list(log.read(1, 10))) == 9
    log.close()


def test_a_node_whose_parent_log_begins_behind_a_snapshot_that_is_gone_is_left_alone(config: NodeConfig) -> None:
    damaged = fill(config, 8)
    flip_a_bit(damaged)
    parent = config.data / "parent"
    with SegmentedLogStore.open(parent, parent_options(config), background=False) as store:
        store.install(Snapshot(109, 1, ConfState((1, 2, 3)), b"109-1"))
        store.sync()
    with pytest.raises(Diverged, match=r"109-1 .* is gone; .*`latewood cluster remove CLUSTER 1`"):
        repair_node(config, PosixFS(), SystemClock())
    assert damaged.is_dir()
