"""Retention on real nodes: what every reader has passed goes everywhere, what one wants stays everywhere."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

import latewood
from tests.replica.processes import ClusterProcesses, first_sequence
from tests.replica.test_cluster import PARTITION, caught_up, status_when, until
from tests.replica.test_cluster_changes import fill
from tests.replica.test_cluster_machines import SMALL

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

TABLE: Final = f"{SMALL}[retention]\ncheck_ms = 100\n"


def firsts(root: Path, nodes: Any, partition: int = PARTITION) -> list[int]:
    """Return the oldest record of each node's files."""
    return [first_sequence(root, node, partition) for node in nodes]


async def stale_from(address: str, start: int, partition: int = PARTITION) -> list[bytes]:
    async with await latewood.connect_async([address]) as client:
        return [record.payload async for record in client.partition(partition).scan(start, stale=True)]


def test_what_every_reader_has_passed_goes_on_all_nodes_and_what_one_wants_stays(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            events = client.partition(PARTITION)
            await fill(client, 800)
            slow, fast = await events.reader("slow"), await events.reader("fast", start=800)
            await fill(client, 800, PARTITION + 2)  # Of a partition that nobody reads: it stays.
            await slow.seek(sequence=500)
            await slow.commit()
            await until(lambda: min(firsts(tmp_path, cluster.nodes)) > 0)
            first = (await events.info()).first_sequence
            assert max(firsts(tmp_path, cluster.nodes)) <= first <= 500
            assert firsts(tmp_path, cluster.nodes, PARTITION + 2) == [0, 0, 0]
            assert (await slow.next()).sequence == 500  # type: ignore[union-attr]
            with pytest.raises(latewood.DataLost) as lost:
                await events.read(0)
            assert (lost.value.start, lost.value.stop) == (0, first)
            kept = [record.payload async for record in events.scan(first)]
            assert len(kept) == 800 - first
            for address in cluster.seeds:
                assert await stale_from(address, first) == kept
                with pytest.raises(latewood.DataLost):
                    await stale_from(address, first - 1)
            for node in cluster.nodes.values():
                node.kill()
            for node in cluster.nodes.values():
                node.start()
            assert (await events.info()).first_sequence == first
            assert [record.payload async for record in events.scan(first)] == kept
            fast.close()

    with ClusterProcesses(tmp_path, extra=TABLE) as cluster:
        asyncio.run(story(cluster))


def test_a_node_that_was_away_begins_behind_what_went_meanwhile(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await fill(client, 100)
            before = await client.status()
            away = next(node for node in cluster.nodes if node != before.leader)
            cluster.nodes[away].kill()
            others = [node for node in cluster.nodes if node != away]
            for _ in range(4):
                await fill(client, 300)
                await asyncio.sleep(0.5)
            for node in others:
                await status_when(client, cluster.addresses[node], lambda one: one.first_index > before.last_index + 1)
            await until(lambda: min(firsts(tmp_path, others)) > 400)
            cluster.nodes[away].start()
            await caught_up(client, cluster.addresses[away])
            first = (await client.partition(PARTITION).info()).first_sequence
            assert firsts(tmp_path, [away])[0] > 100
            kept = [record.payload async for record in client.partition(PARTITION).scan(first)]
            assert await stale_from(cluster.addresses[away], first) == kept
            await client.transfer_leader(away)
            assert await client.partition(PARTITION).append(b"x") == 1_300

    with ClusterProcesses(tmp_path, extra=f"{TABLE}max_bytes = 100000\n") as cluster:
        asyncio.run(story(cluster))
