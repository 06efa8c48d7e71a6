"""Real processes on loopback: writers go on while nodes are killed, and nothing that was acknowledged is lost."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.replies import StatusReply
from latewood.replica.requests import Append
from tests.replica.processes import ClusterProcesses

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]

PARTITION: Final = 7
PATIENCE_S: Final = 60.0


class Told:
    """What a writer was told: payload by sequence."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.is_over = False

    async def write(self, client: AsyncClient, name: str, partition: int = PARTITION) -> None:
        number = 0
        while not self.is_over:
            payload = f"{name}-{number}".encode()
            sequence = await client.partition(partition).append(payload)
            assert sequence not in self.acknowledged, "no two records have one number"
            self.acknowledged[sequence] = payload
            number += 1

    async def grows_by(self, count: int) -> None:
        target = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= target)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it happens in other processes
            await asyncio.sleep(0.01)


async def status_when(client: AsyncClient, address: str, holds: Callable[[StatusReply], bool]) -> StatusReply:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                status = await client.status(address)
                if holds(status):
                    return status
            except latewood.UnavailableError:
                pass
            await asyncio.sleep(0.02)


async def caught_up(client: AsyncClient, address: str) -> None:
    """Wait until a node has what is committed: the leader knows of it first, a node that was restarted last."""
    end = await client.barrier()
    await status_when(client, address, lambda one: one.applied >= end)


async def records(client: AsyncClient, partition: int = PARTITION) -> list[bytes]:
    return [record.payload async for record in client.partition(partition).scan()]


async def stale(address: str, partition: int = PARTITION) -> list[bytes]:
    """Return what one node has."""
    async with await latewood.connect_async([address]) as client:
        return [record.payload async for record in client.partition(partition).scan(stale=True)]


def check(told: Told, found: list[bytes]) -> None:
    """Everything acknowledged is where it was said to be, and nothing is there twice."""
    for sequence, payload in told.acknowledged.items():
        assert found[sequence] == payload
    assert len(set(found)) == len(found)


def test_a_killed_leader_loses_nothing_and_a_writer_goes_on(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        told = Told()
        async with await latewood.connect_async(cluster.seeds) as client:
            writers = [asyncio.create_task(told.write(client, f"w{number}")) for number in range(8)]
            await told.grows_by(200)
            killed = (await client.status()).leader
            cluster.nodes[killed].kill()
            await told.grows_by(200)
            status = await client.status()
            assert status.leader not in (0, killed)
            cluster.nodes[killed].start()
            await told.grows_by(200)
            told.is_over = True
            await asyncio.gather(*writers)
            found = await records(client)
            check(told, found)
            await caught_up(client, cluster.addresses[killed])
            assert await stale(cluster.addresses[killed]) == found

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_all_nodes_killed_at_once_come_back_with_everything(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        told = Told()
        async with await latewood.connect_async(cluster.seeds) as client:
            writers = [
                asyncio.create_task(told.write(client, f"w{number}", partition))
                for number, partition in enumerate((7, 7))
            ]
            await told.grows_by(100)
            for node in cluster.nodes.values():
                node.kill()
            for node in cluster.nodes.values():
                node.start()
            await told.grows_by(100)
            told.is_over = True
            await asyncio.gather(*writers)
            check(told, await records(client))

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_a_paused_leader_is_replaced_and_comes_back_as_a_follower(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        told = Told()
        async with await latewood.connect_async(cluster.seeds) as client:
            writers = [asyncio.create_task(told.write(client, f"w{number}")) for number in range(4)]
            await told.grows_by(50)
            paused = (await client.status()).leader
            cluster.nodes[paused].send(signal.SIGSTOP)
            await told.grows_by(50)
            cluster.nodes[paused].send(signal.SIGCONT)
            await told.grows_by(50)
            told.is_over = True
            await asyncio.gather(*writers)
            await status_when(client, cluster.addresses[paused], lambda one: one.leader not in (0, paused))
            check(told, await records(client))

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_a_repeated_request_is_answered_and_not_done_again(tmp_path: Path) -> None:
    """Across a change of leader and a restart of all: the answers are part of the partition."""
    from latewood.replica.client.link import open_link  # noqa: PLC0415 - one test speaks for itself

    async def append(cluster: ClusterProcesses, client: AsyncClient, number: int, payloads: list[bytes]) -> list[int]:
        leader = (await status_when(client, next(iter(cluster.seeds)), lambda one: one.leader != 0)).leader
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for address in [cluster.addresses[leader], *cluster.seeds]:
                    with closing(await open_link(address, "trial", None, 5.0)) as link:
                        reply = await link.send(Append(0, PARTITION, b"c" * 16, number, payloads))
                    if type(reply).__name__ == "Appended":
                        return list(reply.sequences)  # type: ignore[union-attr]
                await asyncio.sleep(0.05)

    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            first = await append(cluster, client, 1, [b"a", b"b"])
            assert await append(cluster, client, 1, [b"a", b"b"]) == first
            for node in cluster.nodes.values():
                node.kill()
            for node in cluster.nodes.values():
                node.start()
            assert await append(cluster, client, 1, [b"a", b"b"]) == first == [0, 1]
            assert await append(cluster, client, 2, [b"c"]) == [2]
            assert await records(client) == [b"a", b"b", b"c"]

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_requests_in_groups_are_done_once_though_their_leader_is_killed(tmp_path: Path) -> None:
    count = 40

    async def story(cluster: ClusterProcesses) -> None:
        everything = {partition: Told() for partition in range(count)}

        def acknowledged() -> int:
            return sum(len(told.acknowledged) for told in everything.values())

        async with await latewood.connect_async(cluster.seeds) as client:
            writers = [
                asyncio.create_task(told.write(client, f"w{partition}", partition))
                for partition, told in everything.items()
            ]
            await until(lambda: acknowledged() >= 5 * count)
            killed, before = (await client.status()).leader, acknowledged()
            cluster.nodes[killed].kill()
            await until(lambda: acknowledged() >= before + 5 * count)
            for told in everything.values():
                told.is_over = True
            await asyncio.gather(*writers)
            for partition, told in everything.items():
                found = await records(client, partition)
                check(told, found)
                assert len(found) == len(told.acknowledged)

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_readers_are_listed_and_go_to_a_time(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            partition = client.partition(PARTITION)
            assert await partition.readers() == []
            assert await partition.find_timestamp(0) == 0
            for payload in (b"a", b"b", b"c"):
                await partition.append(payload)
            reader = await partition.reader("billing")
            times = [record.timestamp_ns async for record in partition.scan()]
            assert [await partition.find_timestamp(one) for one in times] == [0, 1, 2]
            await reader.seek(timestamp=times[1] + 1)
            assert [record.payload for record in await reader.poll()] == [b"c"]
            await reader.seek(timestamp=times[2] + 1)
            assert await reader.next() is None
            await reader.seek(timestamp=times[1])
            await reader.commit()
            await client.partition(8).reader("other")
            assert await partition.readers() == [("billing", 1, 2)]

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))


def test_a_graceful_stop_hands_over(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await client.partition(PARTITION).append(b"x")
            leader = (await client.status()).leader
            assert cluster.nodes[leader].end() == 0
            assert await client.partition(PARTITION).append(b"y") == 1

    with ClusterProcesses(tmp_path) as cluster:
        asyncio.run(story(cluster))
