"""An engine that runs by itself: three of them in one event loop, each with a parent log on a disk in memory."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from latewood.replica.driver import EngineLoop
from latewood.replica.engine import ConfState, Entry, EntryKind, HardState, Message, ReadState, Role, Snapshot
from latewood.replica.entry_store import SegmentedLogStore
from latewood.replica.raft_rs import RaftRsEngine
from latewood.testing import FakeClock, MemFS

pytestmark = pytest.mark.needs("native")

VOTERS: Final = (1, 2, 3)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in the same event loop, and says nothing
        await asyncio.sleep(0)


class Site:
    """A node: where its messages go, and what becomes of its entries."""

    def __init__(self, node: int, sites: "dict[int, Site]") -> None:
        self.node, self._sites = node, sites
        self.fs = MemFS()
        self.handed_on: list[bytes] = []
        self.answers: dict[int, asyncio.Future[int]] = {}
        self.refused: list[int] = []
        self.failure: BaseException | None = None
        self.store = SegmentedLogStore.open("/parent", fs=self.fs, clock=FakeClock(), background=False)
        first = Snapshot(1, 1, ConfState(VOTERS), b"")
        self.store.install(first)
        self.store.set_hard_state(HardState(1, 0, 1))
        self.store.sync()
        recovered = self.store.recover()
        self.loop: EngineLoop[int] = EngineLoop(RaftRsEngine(node, recovered), self.store, recovered, self)

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._sites[message.to].loop.step(self.node, [message.data])

    def hand_on(self, entries: Sequence[Entry]) -> None:
        self.handed_on += [entry.data for entry in entries if entry.data and entry.kind == EntryKind.NORMAL]

    def on_reads(self, reads: Sequence[ReadState]) -> None:
        raise AssertionError(reads)

    def on_settled(self, done: list[tuple[int, int]], lost: list[int]) -> None:
        for token, index in done:
            self.answers[token].set_result(index)
        for token in lost:
            self.answers[token].set_result(0)

    def on_refused(self, tokens: list[int]) -> None:
        self.refused += tokens

    def on_failure(self, error: BaseException) -> None:
        self.failure = error

    def propose(self, token: int) -> "asyncio.Future[int]":
        future = self.answers[token] = asyncio.get_running_loop().create_future()
        self.loop.propose(b"%04d" % token, token)
        return future

    async def lead(self) -> None:
        self.loop.engine.campaign()
        self.loop.wake()
        await until(lambda: self.loop.driver.role == Role.LEADER)

    def close(self) -> None:
        self.loop.close()
        self.store.close()


def found() -> dict[int, Site]:
    sites: dict[int, Site] = {}
    sites |= {node: Site(node, sites) for node in VOTERS}
    return sites


async def commit_a_thousand() -> dict[int, Site]:
    sites = found()
    await sites[1].lead()
    indices = await asyncio.gather(*(sites[1].propose(token) for token in range(1000)))
    assert indices == sorted(indices)
    assert indices[-1] - indices[0] < 100, "what is proposed in one turn shares entries"
    while not all(sum(map(len, site.handed_on)) == 4 * 1000 for site in sites.values()):
        sites[1].loop.tick()
        await asyncio.sleep(0.02)
    return sites


def test_what_is_acknowledged_is_on_every_disk() -> None:
    async def story() -> None:
        sites = await commit_a_thousand()
        for site in sites.values():
            assert site.failure is None
            assert b"".join(site.handed_on) == b"".join(b"%04d" % token for token in range(1000))
            assert site.store.durable_index == site.store.last_index
            site.close()

    asyncio.run(story())


def test_a_batch_shares_a_sync() -> None:
    async def story() -> None:
        sites = await commit_a_thousand()
        assert sites[1].fs.counts.syncs < 100
        for site in sites.values():
            site.close()

    asyncio.run(story())


def test_a_follower_refuses() -> None:
    async def story() -> None:
        sites = found()
        await sites[1].lead()
        sites[2].propose(7)
        await until(lambda: sites[2].refused == [7])
        for site in sites.values():
            site.close()

    asyncio.run(story())


def test_a_disk_that_fails_stops_the_node_and_leaves_the_outcome_open() -> None:
    async def story() -> None:
        sites = found()
        await sites[1].lead()
        error = OSError("the disk is gone")
        sites[1].fs.fail("sync", "", error)
        assert await sites[1].propose(7) == 0
        assert sites[1].failure is not None
        for site in sites.values():
            site.loop.close()

    asyncio.run(story())


def test_closing_leaves_the_outcome_open() -> None:
    async def story() -> None:
        sites = found()
        await sites[1].lead()
        answer = sites[1].propose(7)
        sites[1].close()
        assert await answer == 0
        for node in (2, 3):
            sites[node].close()

    asyncio.run(story())
