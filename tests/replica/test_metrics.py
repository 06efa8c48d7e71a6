"""What a node tells a monitor agrees with what it tells a person."""

import asyncio
from pathlib import Path

import pytest

import latewood
from latewood.replica.metrics import metrics_text
from tests.replica.test_keeping import core_of, running

pytestmark = pytest.mark.needs("native")


def test_the_clusters_own_partition_is_not_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as node, await latewood.connect_async([node.config.listen]) as client:
            await client.partition(7).append(b"a")
            await client.partition(7).store_cursor("billing", 1)  # The cluster's own partition keeps that.
            assert len(core_of(node).parts.roster) == 2
            assert (await client.status()).partition_count == len(await client.partitions()) == 1
            assert "latewood_partitions 1\n" in metrics_text(node)

    asyncio.run(story())
