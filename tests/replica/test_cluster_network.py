"""A network that is cut between real nodes: a majority goes on, a minority acknowledges nothing, then all agree."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

import latewood
from latewood import AsyncClient
from tests.replica.checking import Account, Writers, WrongError, check, compare, converged, leader_among
from tests.replica.network import CLIENT, Mode, Network
from tests.replica.processes import ClusterProcesses

pytestmark = pytest.mark.slow

SOME: Final = 60
"""Records that show that writers go on."""


class Scene:
    """A cluster with writers at work."""

    def __init__(self, cluster: ClusterProcesses, network: Network, client: AsyncClient, writers: Writers) -> None:
        self.cluster, self.network, self.client, self.writers = cluster, network, client, writers

    async def leader(self) -> int:
        return await leader_among(self.client, self.cluster, self.cluster.nodes)

    def others(self, node: int) -> list[int]:
        return [other for other in self.cluster.nodes if other != node]

    async def goes_on(self) -> None:
        await self.writers.grow_by(SOME)


def run(root: Path, story: Callable[[Scene], Awaitable[None]]) -> None:
    """Have writers at work during a story, then heal the network and compare all nodes with what writers were told."""

    async def work(cluster: ClusterProcesses, network: Network) -> None:
        accounts = [Account(partition) for partition in (1, 2)]
        writers = Writers(accounts)
        async with await latewood.connect_async(cluster.seeds) as client:
            try:
                writers.start(client)
                await writers.grow_by(SOME)
                await story(Scene(cluster, network, client, writers))
                network.heal()
                await writers.grow_by(SOME)
                await writers.stop()
                await check(client, cluster, accounts, cluster.nodes, {})
            finally:
                writers.abandon()

    with Network() as network, ClusterProcesses(root, network=network) as cluster:
        try:
            asyncio.run(work(cluster, network))
        except BaseException:
            print(cluster.logs())
            raise


@pytest.mark.needs("native")
def test_a_leader_that_is_cut_off_acknowledges_nothing_and_another_leads(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        old = await scene.leader()
        scene.network.cut(old, scene.others(old))
        account = Account(3)
        async with await latewood.connect_async([scene.cluster.addresses[old]], timeout_ms=2_000) as lonely:
            with pytest.raises((latewood.UnavailableError, latewood.OutcomeUnknown)) as failed:
                await lonely.partition(3).append(account.payload("w", 0))
            assert await leader_among(scene.client, scene.cluster, scene.others(old)) != old
            await scene.goes_on()
            scene.network.heal()
            await converged(scene.client, scene.cluster, [old])
            if isinstance(failed.value, latewood.OutcomeUnknown):
                account.tell("w", 0, await lonely.resolve(failed.value))
        await check(scene.client, scene.cluster, [account], scene.cluster.nodes, {})

    run(tmp_path, story)


@pytest.mark.needs("native")
@pytest.mark.parametrize("outward", [True, False])
def test_a_leader_that_is_cut_one_way_is_replaced(tmp_path: Path, *, outward: bool) -> None:
    """Outward nobody hears it.  Inward everybody hears it, and it hears nobody: it must give way by itself."""

    async def story(scene: Scene) -> None:
        old = await scene.leader()
        for other in scene.others(old):
            scene.network.set(*((old, other) if outward else (other, old)), Mode.HOLDS)
        await leader_among(scene.client, scene.cluster, scene.others(old))
        await scene.goes_on()

    run(tmp_path, story)


@pytest.mark.needs("native")
def test_a_follower_that_is_cut_off_does_not_depose_the_leader(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        leader = await scene.leader()
        lonely = scene.others(leader)[0]
        scene.network.cut(lonely, scene.others(lonely))
        await scene.goes_on()
        await asyncio.sleep(1.5)  # Some elections that it cannot win.
        leader = await scene.leader()  # A machine that stands still for a moment may have brought about another.
        term = (await scene.client.status(scene.cluster.addresses[leader])).term
        scene.network.heal()
        await converged(scene.client, scene.cluster, [lonely])
        after = await scene.client.status(scene.cluster.addresses[lonely])
        assert (after.term, after.leader) == (term, leader)

    run(tmp_path, story)


@pytest.mark.needs("native")
def test_two_nodes_that_do_not_hear_each_other_are_no_trouble(tmp_path: Path) -> None:
    """Neither leader and follower, nor two followers: the third hears both."""

    async def story(scene: Scene) -> None:
        leader = await scene.leader()
        first, second = scene.others(leader)
        for one, other in ((leader, first), (first, second)):
            scene.network.cut(one, [other])
            await scene.goes_on()
            await asyncio.sleep(1.0)
            await scene.goes_on()
            scene.network.heal()
            await converged(scene.client, scene.cluster, scene.cluster.nodes)

    run(tmp_path, story)


@pytest.mark.needs("native")
def test_a_network_that_flaps_resets_and_delays_loses_nothing(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for turn in range(12):
            node = 1 + turn % 3
            match turn % 4:
                case 0:
                    scene.network.cut(node, scene.others(node))
                case 1:
                    for other in [*scene.others(node), CLIENT]:
                        scene.network.reset(node, other)
                case 2:
                    for other in scene.others(node):
                        scene.network.set(node, other, Mode.PASSES, 0.05)
                case 3:
                    for other in [*scene.others(node), CLIENT]:
                        scene.network.set(node, other, Mode.REFUSES)
            await asyncio.sleep(0.1 * (turn % 5))
            scene.network.heal()
        await scene.goes_on()

    run(tmp_path, story)


@pytest.mark.needs("native")
def test_connections_that_a_network_swallowed_are_made_anew(tmp_path: Path) -> None:
    """Neither end is told, and what was swallowed stays dead: nodes must notice by themselves."""

    async def story(scene: Scene) -> None:
        old = await scene.leader()
        for other in scene.others(old):
            scene.network.set(old, other, Mode.SWALLOWS)
            scene.network.set(other, old, Mode.SWALLOWS)
        new = await leader_among(scene.client, scene.cluster, scene.others(old))
        await scene.goes_on()
        scene.network.heal()
        await converged(scene.client, scene.cluster, [old])
        # Now the two that were cut off from each other must do without the third.
        third = next(node for node in scene.cluster.nodes if node not in (old, new))
        scene.cluster.nodes[third].kill()
        await scene.goes_on()
        scene.cluster.nodes[third].start()

    run(tmp_path, story)


def test_what_was_lost_twice_changed_or_made_up_is_found() -> None:
    """The comparison itself can fail."""
    account = Account(1)
    account.tell("w", 0, [0, 1])
    right = account.expected()
    compare("it", 0, right, right)
    for wrong in (right[:1], [*right, right[0]], [right[0], right[0]], [*right, b"x"], right[::-1]):
        with pytest.raises(WrongError, match="first difference"):
            compare("it", 0, right, wrong)
    with pytest.raises(WrongError, match="acknowledged as 1"):
        account.tell("v", 0, [1])
    account.tell("v", 1, [5])
    with pytest.raises(WrongError, match="nobody was told"):
        account.expected()
