"""A node with a file of a later program does not start, and is not repaired: its files stay as they are."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from latewood.clock import SystemClock
from latewood.errors import UnsupportedVersion
from latewood.format import entry as entry_format
from latewood.format.entry import Command, encode_command, encode_record
from latewood.format.identity import Owner
from latewood.fs import PosixFS
from latewood.log import Log
from latewood.replica.config import NodeConfig, load_config
from latewood.replica.engine import Entry, EntryKind, HardState
from latewood.replica.markers import entry_record, hard_state_record
from latewood.replica.node import Node
from latewood.replica.repair import repair_node
from tests.cli.shell import run
from tests.cli.test_later_versions import files_of, raised, segments, slot
from tests.replica.node import tally_or_log
from tests.replica.processes import free_ports

pytestmark = pytest.mark.needs("native")

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "v2" / "node" / "stopped"
LATER: Final = entry_format.VERSION + 1


def partition(data: Path) -> Path:
    return next((data / "partitions").glob("7-*"))


def snapshot(data: Path) -> Path:
    """The newest."""
    return max((data / "snapshots").iterdir(), key=lambda path: int(path.name.partition("-")[0]))


def appended(data: Path, payload: bytes) -> Path:
    """Append a record to the parent log, as the node would."""
    with Log.open(data / "parent", background=False, owner=Owner.NODE) as log:
        log.append(payload, ext_id=last_entry(data) + 1)
    return data / "parent"


def last_entry(data: Path) -> int:
    with Log.open(data / "parent", mode="r") as log:
        return max(record.ext_id for record in log.scan())


def later_entry(data: Path) -> Path:
    whole = encode_record(entry_record(Entry(last_entry(data) + 1, 99, EntryKind.NORMAL, b"")))
    return appended(data, bytes([LATER]) + whole[1:])


def later_hard_state(data: Path) -> Path:
    whole = encode_record(hard_state_record(HardState(99, 0, 2)))
    return appended(data, bytes([LATER]) + whole[1:])


def later_command(data: Path) -> Path:
    command = encode_command(Command(7, 1_000, [b"x"], 5))
    data_of_it = bytes([LATER]) + command[1:]
    return appended(data, encode_record(entry_record(Entry(last_entry(data) + 1, 99, EntryKind.NORMAL, data_of_it))))


def later_chunk(data: Path) -> Path:
    """Write the newest snapshot again, with a chunk of a later version."""
    path = snapshot(data)
    with Log.open(path, mode="r") as log:
        chunks = [record.payload for record in log.scan()]
    shutil.rmtree(path)
    with Log.open(path, background=False, owner=Owner.NODE) as log:
        log.append_many([chunks[0], bytes([LATER]) + chunks[1][1:], *chunks[2:]])
    return path


def later_owner(data: Path) -> Path:
    path = data / "node.json"
    path.write_text('{"version":2,"cluster_id":["golden"]}')
    return path


FILES: Final[dict[str, Callable[[Path], Path]]] = {
    "node.json": later_owner,
    "manifest of the parent log": lambda data: raised(slot(data / "parent"), 4),
    "identity of the parent log": lambda data: raised(data / "parent" / "identity", 8),
    "segment of the parent log": lambda data: raised(segments(data / "parent")[-1], 8),
    "entry": later_entry,
    "command in an entry": later_command,
    "hard state": later_hard_state,
    "manifest of a partition": lambda data: raised(slot(partition(data)), 4),
    "identity of a partition": lambda data: raised(partition(data) / "identity", 8),
    "segment of a partition": lambda data: raised(segments(partition(data))[-1], 8),
    "checkpoint of a partition": lambda data: raised(partition(data) / "index.meta", 8),
    "manifest of a snapshot": lambda data: raised(slot(snapshot(data)), 4),
    "segment of a snapshot": lambda data: raised(segments(snapshot(data))[-1], 8),
    "chunk of a snapshot": later_chunk,
}


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    home = shutil.copytree(GOLDEN, tmp_path / "node")
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    return load_config(home / "node.toml", {"listen": address, "peers": {"1": address}})


@pytest.mark.parametrize("file", FILES)
def test_a_node_with_a_later_file_neither_starts_nor_is_repaired_nor_called_damaged(
    config: NodeConfig, file: str
) -> None:
    newer = FILES[file](config.data)
    before = files_of(config.data)

    async def start() -> None:
        node = Node(config, tally_or_log)
        try:
            await node.start()
        finally:
            await node.close()

    with pytest.raises(UnsupportedVersion):
        repair_node(config, PosixFS(), SystemClock())
    assert files_of(config.data) == before
    with pytest.raises(UnsupportedVersion):
        asyncio.run(start())
    assert files_of(config.data) == before
    for log in (path for path in (newer, *newer.parents) if (path / "manifest.current").exists()):
        assert run("verify", log).exit_code in (0, 1), "a log of soundly stored records, or of a later version"
