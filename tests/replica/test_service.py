"""What a node answers that has nobody to elect it."""

import asyncio
from pathlib import Path

import pytest

import latewood
from latewood.clock import SystemClock
from latewood.errors import ClusterUnavailable
from latewood.fs import PosixFS
from latewood.replica.config import load_config
from latewood.replica.founding import found_node
from latewood.replica.node import Node
from tests.replica.processes import free_ports

pytestmark = pytest.mark.needs("native")


def test_a_node_that_does_not_lead_answers_for_itself_alone(tmp_path: Path) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    peers = "\n".join(f'{node} = "{address}"' for node, address in enumerate(addresses, 1))
    path = tmp_path / "node.toml"
    path.write_text(f'cluster_id = "trial"\nnode_id = 1\nlisten = "{addresses[0]}"\n[peers]\n{peers}\n')
    config = load_config(path)
    found_node(config, PosixFS(), SystemClock())

    async def story() -> None:
        node = Node(config)
        await node.start()
        try:
            async with await latewood.connect_async(addresses[:1], timeout_ms=1_000) as hasty:
                with pytest.raises(ClusterUnavailable, match="no node leads now"):
                    await hasty.partitions()
            async with await latewood.connect_async(addresses[:1]) as client:
                assert await client.partitions(address=addresses[0]) == []
        finally:
            await node.close()

    asyncio.run(story())
