"""Nodes come and go, lag and catch up by snapshots: in real processes."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.replica.client.asynchronous import AsyncClient
from tests.replica.processes import TICK_MS, ClusterProcesses
from tests.replica.test_cluster import PARTITION, caught_up, stale, status_when

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

SMALL: Final = "[storage]\nsnapshot_bytes = 65536\nparent_segment_bytes = 524288\n[limits]\npayload_bytes_max = 65536\n"


async def fill(client: AsyncClient, count: int, partition: int = PARTITION) -> None:
    handle = client.partition(partition)
    for start in range(0, count, 100):
        await handle.append_many([b"%d" % number + bytes(500) for number in range(start, start + 100)])


def test_a_node_that_lags_behind_the_log_catches_up_by_a_snapshot(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await fill(client, 100)
            before = await client.status()
            leader, killed_at = before.leader, before.last_index
            lagging = next(node for node in cluster.nodes if node != leader)
            cluster.nodes[lagging].kill()
            others = [node for node in cluster.nodes if node != lagging]
            await client.partition(9).append(b"of another partition")
            for _ in range(4):
                await fill(client, 300)
                await asyncio.sleep(0.5)
            for node in others:
                await status_when(client, cluster.addresses[node], lambda one: one.first_index > killed_at + 1)
            cluster.nodes[lagging].start()
            await caught_up(client, cluster.addresses[lagging])
            expected = [record.payload async for record in client.partition(PARTITION).scan()]
            assert len(expected) == 1_300
            assert await stale(cluster.addresses[lagging]) == expected
            assert await stale(cluster.addresses[lagging], 9) == [b"of another partition"]
            assert "a snapshot is installed" in cluster.nodes[lagging].log.read_text()
            await fill(client, 100)
            # It can lead: it has everything.
            await client.transfer_leader(lagging)
            await client.partition(PARTITION).append(b"x")
            assert (await client.status(cluster.addresses[lagging])).leader == lagging

    with ClusterProcesses(tmp_path, extra=SMALL) as cluster:
        asyncio.run(story(cluster))


def test_a_node_is_added_and_another_removed(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await fill(client, 300)
            cluster.nodes[4].start("--join")
            members = await client.add_node(4, cluster.addresses[4])
            assert sorted(members.voters) == [1, 2, 3, 4]
            leader = (await client.status()).leader
            members = await client.remove_node(leader)
            assert sorted(members.voters) == sorted({1, 2, 3, 4} - {leader})
            cluster.nodes[leader].kill()
            await fill(client, 100)
            await caught_up(client, cluster.addresses[4])
            assert len(await stale(cluster.addresses[4])) == 400
            assert 4 in {one.node_id for one in (await client.status()).nodes}

    with ClusterProcesses(tmp_path, spare=1, extra=SMALL) as cluster:
        asyncio.run(story(cluster))


@pytest.mark.parametrize("is_up", [True, False])
def test_a_removed_node_says_so_and_can_be_taken_back(tmp_path: Path, is_up: bool) -> None:  # noqa: FBT001 - a parameter
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await fill(client, 100)
            leader = (await client.status()).leader
            removed = next(node for node in cluster.nodes if node != leader)
            process, address = cluster.nodes[removed], cluster.addresses[removed]
            if not is_up:
                process.kill()
            await client.remove_node(removed)
            if not is_up:
                process.start()
            said = f"WARNING latewood.replica.standing: node {removed} is no longer a member of cluster 'trial'"
            async with asyncio.timeout(60):
                while said not in process.log.read_text():  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(0.05)
            await asyncio.sleep(50 * TICK_MS / 1000)
            assert process.log.read_text().count(said) == 1
            await client.add_node(removed, address)
            await fill(client, 100)
            await caught_up(client, address)
            assert len(await stale(address)) == 200

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_a_partition_is_removed_and_begins_anew(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await fill(client, 100)
            await client.tear_down(PARTITION)
            assert await client.partitions() == []
            assert await client.partition(PARTITION).append(b"anew") == 0
            assert [record.payload async for record in client.partition(PARTITION).scan()] == [b"anew"]

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_a_named_reader_goes_on_where_it_was_on_any_node(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            handle = client.partition(PARTITION)
            await handle.append_many([b"a", b"b", b"c"])
            async with await handle.reader("billing") as reader:
                assert (await reader.next()).payload == b"a"  # type: ignore[union-attr]
                await reader.commit()
            cluster.nodes[(await client.status()).leader].kill()
            async with await handle.reader("billing") as reader:
                assert (await reader.next()).payload == b"b"  # type: ignore[union-attr]

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_a_reader_of_a_partition_that_was_torn_down_begins_with_what_is_written_anew(tmp_path: Path) -> None:
    """Else it would skip the first records of the new life without a word."""

    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            handle = client.partition(PARTITION)
            await handle.append_many([b"old"] * 5)
            reader = await handle.reader("billing")
            await reader.poll(3)
            await reader.commit()
            await client.tear_down(PARTITION)
            assert (await reader.next()).payload == b"old"  # type: ignore[union-attr]
            await handle.append_many([b"%d" % number for number in range(10)])
            with pytest.raises(latewood.NotFoundError, match="torn down since"):
                await reader.commit()
            with pytest.raises(latewood.NotFoundError, match="torn down since"):
                await reader.lag()
            assert [one.payload for one in await reader.poll()] == [b"old"]  # It was fetched before.
            with pytest.raises(latewood.NotFoundError, match="torn down since"):
                await reader.next()
            reader.close()
            assert [(one.name, one.sequence) for one in await handle.readers()] == [("billing", 0)]
            async with await handle.reader("billing") as reader:
                assert (await reader.next()).payload == b"0"  # type: ignore[union-attr]

    with ClusterProcesses(tmp_path, 1) as cluster:
        asyncio.run(story(cluster))


def test_what_a_node_has_can_be_read_though_nobody_leads(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await client.partition(PARTITION).append_many([b"a", b"b"])
            leader = (await client.status()).leader
            for node in {1, 2, 3} - {leader}:
                cluster.nodes[node].kill()
            await status_when(client, cluster.addresses[leader], lambda one: one.role != "leader")
            assert await stale(cluster.addresses[leader]) == [b"a", b"b"]

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_a_lone_node_forgets_no_teardown_though_it_is_killed(tmp_path: Path) -> None:
    """The files are gone, and nobody else has them: what was committed must be known after the kill."""

    async def story(cluster: ClusterProcesses) -> None:
        (address,) = cluster.seeds
        async with await latewood.connect_async(cluster.seeds) as client:
            await client.partition(9).append_many([bytes(1_000)] * 50)
            while (await client.status(address)).first_index < 4:  # Until it begins behind a snapshot that knows it.
                await fill(client, 100)
                await asyncio.sleep(0.1)
            await client.tear_down(9)
            await status_when(client, address, lambda one: one.partition_count == 1)
            cluster.nodes[1].kill()
            cluster.nodes[1].start()
            await status_when(client, address, lambda one: one.leader == 1)
            assert await client.partition(9).append(b"next life") == 0

    with ClusterProcesses(tmp_path, 1, extra=SMALL) as cluster:
        asyncio.run(story(cluster))
