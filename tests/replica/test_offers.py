"""Offers of snapshots: whoever offers one hears how that ended, and a leader that is gone holds up nobody."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from latewood.clock import SystemClock
from latewood.replica.offers import Offers
from latewood.replica.recovery import NodeLayout
from latewood.replica.requests import FetchSnapshot, SnapshotOffer, SnapshotOutcome
from latewood.testing import MemFS

OFFER = SnapshotOffer(9, 1, b"message")


class FakeTransport:
    """Asks nodes that never answer, and keeps what is sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.sent: list[tuple[int, Any]] = []

    async def request(self, node: int, request: Any, timeout_s: float) -> Any:
        assert timeout_s > 1
        self.asked.append((node, request))
        await asyncio.Event().wait()

    def send(self, node: int, message: Any) -> bool:
        self.sent.append((node, message))
        return True


def offers(transport: FakeTransport) -> Offers:
    fs, root = MemFS(), Path("/node")
    fs.make_directory(NodeLayout(root).snapshots)
    return Offers(cast("Any", transport), fs, SystemClock(), NodeLayout(root), lambda: None)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not happen")


def test_a_node_that_fetches_from_a_leader_that_is_gone_turns_to_the_next_at_once() -> None:
    """It may be needed for a majority: the new leader must neither wait for it nor be ignored."""

    async def act() -> None:
        transport, core = FakeTransport(), cast("Any", object())
        lagging = offers(transport)
        lagging.on_offer(core, 1, OFFER)
        await until(lambda: transport.asked)
        lagging.on_offer(core, 1, OFFER)
        assert not transport.sent, "the same node's: it is being fetched"
        lagging.on_offer(core, 2, OFFER)
        assert transport.sent == [(2, SnapshotOutcome(9, arrived=False))]
        await until(lambda: len(transport.sent) > 1)
        assert transport.sent[1] == (1, SnapshotOutcome(9, arrived=False))
        lagging.on_offer(core, 2, OFFER)
        await until(lambda: len(transport.asked) > 1)
        assert transport.asked[1] == (2, FetchSnapshot(0, 9, 1, 0))
        lagging.close()
        await asyncio.sleep(0)

    asyncio.run(act())


def test_a_node_that_opens_its_storage_is_offered_it_again() -> None:
    async def act() -> None:
        transport = FakeTransport()
        offers(transport).on_offer(None, 1, OFFER)
        assert transport.sent == [(1, SnapshotOutcome(9, arrived=False))]

    asyncio.run(act())
