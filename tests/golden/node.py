"""The golden nodes: how they were written, and what is to be seen in them.

The committed ones, in `v1/node` and `v2/node`, are never written again.  Each is the folder of the only node of a
cluster: its `node.toml` and its data.  `stopped` was stopped in good order; `killed` is the same node a moment earlier,
as a killed process leaves it.  Odd partitions are logs, partition 8 is a machine of a user.  A copy gets an address of
its own before it is opened.

Ids of clients are drawn at random, so the same program does not write the same bytes twice.

    python -m tests.golden.node freeze DIRECTORY    the nodes and expected.json, in a folder that is not there yet
"""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

import latewood
from latewood.fs import PosixFS
from latewood.log import LogOptions
from latewood.replica import keeping
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.config import load_config
from latewood.replica.core import Core
from latewood.replica.founding import found_node
from latewood.replica.node import Node
from latewood.replica.snapshot import begin_snapshot
from latewood.testing import FakeClock
from tests.golden.make import EXPECTED, SHOWN_AT_NS, Shown, is_of_a_format, shown_record
from tests.replica.node import Tally, tally_or_log
from tests.replica.processes import free_ports

NODES: Final = ("stopped", "killed")
LOGS: Final = (3, 5, 7)
MACHINE: Final = 8
PARTITIONS: Final = (*LOGS, MACHINE)
READERS: Final = {3: {"billing": 12, "audit": 0}, 7: {"billing": 30}}
PATIENCE_S: Final = 60.0
_PORT: Final = "7301"
"""In a frozen `node.toml`; nothing listens there."""
_TOML: Final = f"""\
cluster_id = "golden"
node_id = 1
listen = "127.0.0.1:{_PORT}"
machine = "tests.replica.node:tally_or_log"

[peers]
1 = "127.0.0.1:{_PORT}"

[raft]
tick_ms = 5

[limits]
payload_bytes_max = 1024

[storage]
parent_segment_bytes = 524288
partition_segment_bytes = 65536
"""
_SMALL: Final = {"parent_segment_bytes": 16384, "partition_segment_bytes": 2048}
"""Segments of the frozen nodes: smaller than a configuration may have them, so that the files are small."""
_SMALL_SNAPSHOT: Final = LogOptions(segment_bytes_max=8192)


@asynccontextmanager
async def running(
    home: Path, clock: FakeClock, storage: Mapping[str, int] = {}
) -> AsyncIterator[tuple[Node, AsyncClient]]:
    """Run a node on an address that is free, and a client of it."""
    path, (port,) = home / "node.toml", free_ports(1)
    address = f"127.0.0.1:{port}"
    config = load_config(path, {"listen": address, "peers": {"1": address}})
    config = replace(config, storage=replace(config.storage, **storage))
    if not config.data.exists():
        found_node(config, PosixFS(), clock)
    node = Node(config, tally_or_log, clock=clock)
    try:
        await node.start()
        await until(lambda: node.core is not None and node.core.is_leading)
        async with await latewood.connect_async([address]) as client:
            yield node, client
    finally:
        await node.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - threads make it true
            await asyncio.sleep(0.005)


def core_of(node: Node) -> Core:
    assert node.core is not None
    return node.core


# -- writing ----------------------------------------------------------------------------------------------


class Scribe:
    """Writes one node, and keeps account of every record by itself: the node is not asked what it holds."""

    def __init__(self, home: Path) -> None:
        self._home, self._clock = home, FakeClock()
        self.records: dict[int, list[bytes]] = {partition: [] for partition in PARTITIONS}

    async def write(self, killed: Path) -> None:
        """Write partitions, readers and two snapshots, and a copy of the folder in `killed` while the node runs."""
        self._home.mkdir(exist_ok=True)
        (self._home / "node.toml").write_text(_TOML)
        begin_small = partial(begin_snapshot, options=_SMALL_SNAPSHOT)
        with patch.object(keeping, "begin_snapshot", begin_small):
            async with running(self._home, self._clock, _SMALL) as (node, client):
                await self._write(node, client)
                copy_node(self._home, killed)

    async def _write(self, node: Node, client: AsyncClient) -> None:
        await client.partition(5).append_many([b"of the first life %d" % number for number in range(20)])
        await client.tear_down(5)
        await self._fill(client, 50)
        await self._take_snapshot(node)
        await self._fill(client, 30)
        await self._take_snapshot(node)
        core = core_of(node)
        machine_log = core.parts.roster.get(MACHINE)
        assert machine_log is not None
        await until(lambda: core.store.first_index > 2 and machine_log.first_index > 1)
        for partition, readers in READERS.items():
            for name, sequence in readers.items():
                self._clock.advance(ms=1)
                await client.partition(partition).store_cursor(name, sequence)
        await self._fill(client, 10)
        await client.barrier(partitions=PARTITIONS)

    async def _fill(self, client: AsyncClient, count: int) -> None:
        for partition, known in self.records.items():
            self._clock.advance(ms=1)
            batch = [b"record %d of %d" % (len(known) + number, partition) for number in range(count)]
            await client.partition(partition).append_many(batch)
            known.extend(batch)

    async def _take_snapshot(self, node: Node) -> None:
        keeper = node.keeper
        assert keeper is not None
        before = keeper.newest
        keeper.want()
        await until(lambda: keeper.newest not in (None, before))


def copy_node(home: Path, target: Path) -> None:
    """Copy the files of a node that are of a format."""
    for path in home.rglob("*"):
        if path.is_file() and is_of_a_format(path):
            (target / path.relative_to(home)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.relative_to(home))


# -- reading ----------------------------------------------------------------------------------------------


async def show(home: Path) -> Shown:
    """Return what is to be seen in a node, once it has started."""
    async with running(home, FakeClock(SHOWN_AT_NS)) as (node, client):
        await client.barrier(partitions=PARTITIONS)
        status = await client.status()
        machine = core_of(node).parts.applier.machine(MACHINE)
        assert isinstance(machine, Tally)
        return {
            "cluster_id": status.cluster_id,
            "node_id": status.node_id,
            "partitions": {str(partition): await _partition(client, partition) for partition in PARTITIONS},
            "machine": {"count": machine.count, "digest": machine.digest.hex()},
        }


async def _partition(client: AsyncClient, number: int) -> Shown:
    partition = client.partition(number)
    info = await partition.info()
    return {
        "born": info.born,
        "first_sequence": info.first_sequence,
        "next_sequence": info.next_sequence,
        "readers": [reader._asdict() for reader in await partition.readers()],
        "records": [shown_record(*record) async for record in partition.scan(info.first_sequence)],
    }


# -- freezing ---------------------------------------------------------------------------------------------


def freeze(directory: Path) -> None:
    """Write the nodes of a new version, and what is to be seen in them."""
    directory.mkdir(parents=True)  # It is an error if it is there: what is frozen stays.
    with TemporaryDirectory() as home:
        scribe = Scribe(Path(home))
        asyncio.run(scribe.write(directory / "killed"))
        copy_node(Path(home), directory / "stopped")
    found: list[dict[str, Any]] = []
    for node in NODES:
        with TemporaryDirectory() as copy:
            shutil.copytree(directory / node, copy, dirs_exist_ok=True)
            found.append(asyncio.run(show(Path(copy))))
    assert found[0] == found[1]
    for partition, payloads in scribe.records.items():
        shown = found[0]["partitions"][str(partition)]
        kept = [bytes.fromhex(record["payload"]) for record in shown["records"]]
        assert kept == payloads[shown["first_sequence"] :]
    (directory / EXPECTED).write_text(json.dumps(found[0], indent=1) + "\n")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["freeze", directory]:
            freeze(Path(directory))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
