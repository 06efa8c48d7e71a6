"""What a follower leaves for later: nobody who asks can tell, and whoever waits does not wait for it.

In these tests, but for one, the time for it never comes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood.clock import SystemClock
from latewood.fs import PosixFS
from latewood.replica import core as core_module
from latewood.replica.client.asynchronous import AsyncClient
from latewood.replica.config import load_config
from latewood.replica.core import Core
from latewood.replica.founding import found_node
from latewood.replica.node import Node
from tests.replica.processes import free_ports

pytestmark = pytest.mark.needs("native")

PATIENCE_S: Final = 60.0
NODES: Final = (1, 2, 3)


class Cluster:
    """Three nodes in this process, and a client."""

    def __init__(self, nodes: list[Node], client: AsyncClient) -> None:
        self.nodes, self.client = nodes, client

    async def leader(self) -> Node:
        await until(lambda: any(core_of(node).is_leading for node in self.nodes))
        return next(node for node in self.nodes if core_of(node).is_leading)

    @property
    def follower(self) -> Node:
        return next(node for node in self.nodes if core_of(node).leader != node.config.node_id)

    async def append(self, count: int = 1, size: int = 10) -> None:
        """Append records, and return when every node knows that they are committed."""
        for _ in range(count):
            await self.client.partition(1).append(bytes(size))
        committed = max(core_of(node).engine.status().commit for node in self.nodes)
        await until(lambda: all(core_of(node).engine.status().applied >= committed for node in self.nodes))

    def is_behind(self, node: Node) -> bool:
        return core_of(node).parts.watermarks.routed < core_of(node).engine.status().applied


def core_of(node: Node) -> Core:
    assert node.core is not None
    return node.core


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the nodes say nothing
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[Cluster]:
    ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
    peers = "\n".join(f'{node} = "127.0.0.1:{port}"' for node, port in ports.items())
    async with AsyncExitStack() as stack:
        nodes = []
        for number, port in ports.items():
            path = root / f"{number}.toml"
            own = f'cluster_id = "later"\nnode_id = {number}\ndata = "data-{number}"\nlisten = "127.0.0.1:{port}"'
            path.write_text(f"{own}\n[raft]\ntick_ms = 10\n[peers]\n{peers}\n")
            config = load_config(path)
            found_node(config, PosixFS(), SystemClock())
            nodes.append(Node(config))
            stack.push_async_callback(nodes[-1].close)
            await nodes[-1].start()
        client = await latewood.connect_async([f"127.0.0.1:{port}" for port in ports.values()])
        stack.push_async_callback(client.close)
        cluster = Cluster(nodes, client)
        await cluster.append()
        for node in nodes:
            await core_of(node).ours()
        yield cluster


def play(root: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[Cluster], Awaitable[None]]) -> None:
    monkeypatch.setattr(core_module, "_LATER_S", 1_000.0)
    asyncio.run(told(root, story))


async def told(root: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async with running(root) as cluster:
        await story(cluster)


def test_what_is_left_for_later_is_there_a_moment_later_though_nobody_asks(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(3)
        await until(lambda: not any(cluster.is_behind(node) for node in cluster.nodes))

    asyncio.run(told(tmp_path, story))


def test_a_follower_leaves_a_little_for_later_and_has_it_when_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(3)
        follower = cluster.follower
        assert cluster.is_behind(follower), "else these tests show nothing"
        assert not cluster.is_behind(await cluster.leader())
        status = await cluster.client.status(follower.config.listen)
        assert status.routed == status.committed

    play(tmp_path, monkeypatch, story)


def test_much_is_not_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(1, 20_000)
        await until(lambda: not cluster.is_behind(cluster.follower))

    play(tmp_path, monkeypatch, story)


def test_whoever_waits_at_a_follower_hurries_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        follower = cluster.follower
        core, address = core_of(follower), follower.config.listen
        target = core_of(await cluster.leader()).parts.watermarks.routed + 2
        waiting = asyncio.create_task(cluster.client.barrier(target, [1], timeout=PATIENCE_S, address=address))
        await until(lambda: core.barriers.is_waiting)
        await cluster.append(2)
        assert await waiting == target

    play(tmp_path, monkeypatch, story)


def test_a_stale_reader_at_a_follower_is_woken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        follower = cluster.follower
        async with await latewood.connect_async([follower.config.listen]) as client:
            end = (await client.partition(1).page(0, 10, stale=True)).next_sequence
            waiting = asyncio.create_task(client.partition(1).page(end, 1, wait_s=PATIENCE_S, stale=True))
            await until(lambda: follower.is_watched)
            await cluster.append()
            assert not cluster.is_behind(follower), "it is there before the reader's patience ends"
            assert len((await waiting).records) == 1

    play(tmp_path, monkeypatch, story)


def test_a_follower_that_comes_to_lead_has_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.append(5)
        heir = cluster.follower
        assert cluster.is_behind(heir)
        await cluster.client.transfer_leader(heir.config.node_id)
        await until(lambda: core_of(heir).is_leading)
        assert await cluster.client.partition(1).append(b"next") == 6
        assert len([record async for record in cluster.client.partition(1).scan()]) == 7

    play(tmp_path, monkeypatch, story)


def test_what_is_left_for_later_does_not_keep_a_follower_from_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        follower = cluster.follower
        keeper = follower.keeper
        assert keeper is not None
        lent = list[int]()
        lend = Core.lend

        async def counted(core: Core, work: Callable[[], None]) -> None:
            lent.append(core.node_id)
            await lend(core, work)

        monkeypatch.setattr(Core, "lend", counted)
        await cluster.append(3)
        assert cluster.is_behind(follower)
        keeper.want()
        await until(lambda: keeper.newest is not None)
        assert lent.count(follower.config.node_id) == 1, "at the first attempt"

    play(tmp_path, monkeypatch, story)
