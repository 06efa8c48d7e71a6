"""Snapshots between nodes: a leader offers one and hears how that ended; the other fetches it, then steps the message.

The engine sends a node nothing more until it hears how a snapshot ended, so it always does: also when the link breaks,
or the node is fetching another.  A node that fetches from one leader and is offered a snapshot by the next leaves the
first, which may be gone: without it, perhaps, there is no majority.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from latewood.clock import Clock
from latewood.errors import LatewoodError, UnavailableError
from latewood.fs import FileSystem
from latewood.replica.core import Core
from latewood.replica.keeping import Keeper
from latewood.replica.recovery import NodeLayout
from latewood.replica.requests import SnapshotOffer, SnapshotOutcome
from latewood.replica.transfer import fetch_chunks, fetch_records
from latewood.replica.transport import Transport
from latewood.replica.wire import Reply, Request

_SILENT_S: Final = 30.0
"""A node that was offered a snapshot and has asked for nothing for so long is offered it again."""

_FAILED_S: Final = 1.0
"""So long after a failure the leader hears of it, and offers again: a full disk is full for a while."""

_logger = logging.getLogger(__name__)


class Offers:
    """What was offered to others, and what is being fetched."""

    def __init__(
        self, transport: Transport, fs: FileSystem, clock: Clock, layout: NodeLayout, reopen: Callable[[], None]
    ) -> None:
        """`reopen` has the storage opened anew."""
        self._transport, self._fs, self._clock, self._layout = transport, fs, clock, layout
        self._reopen = reopen
        self._offered: dict[int, float] = {}
        """When a node that was offered a snapshot did something about it, until we hear how that ended."""
        self._fetching: asyncio.Task[None] | None = None
        self._sender = 0
        """Whom it is fetched from."""
        self._is_superseded = asyncio.Event()
        """Another offers one: what is being fetched is given up."""

    # -- as a leader --------------------------------------------------------------------------------------

    def offer(self, core: Core | None, keeper: Keeper | None, to: int, message: bytes) -> None:
        """Offer a node the snapshot that the engine wants to send it.  Called by the engine: must not call it back."""
        newest = keeper.newest if keeper else None
        if newest and self._transport.send(to, SnapshotOffer(newest.index, newest.term, message)):
            self._offered[to] = asyncio.get_running_loop().time()
            return
        if keeper is not None and newest is None:
            keeper.want()
        if core is not None:
            self._offered[to] = 0.0
            asyncio.get_running_loop().call_soon(self._report, core, to, False)  # noqa: FBT003 - how it ended

    def on_outcome(self, core: Core, node: int, outcome: SnapshotOutcome) -> None:
        """Tell the engine how an offer ended."""
        self._report(core, node, outcome.arrived)

    def tick(self, core: Core) -> None:
        """Give up on nodes that are gone, or have forgotten what they were offered."""
        silent = asyncio.get_running_loop().time() - _SILENT_S
        for node, at in list(self._offered.items()):
            if at < silent or not self._transport.is_connected(node):
                self._report(core, node, False)  # noqa: FBT003 - how it ended

    def touch(self, node: int) -> None:
        """Take note that a node is fetching."""
        if node in self._offered:
            self._offered[node] = asyncio.get_running_loop().time()

    def clear(self) -> None:
        """Forget what was offered: another engine knows nothing of it."""
        self._offered.clear()

    def _report(self, core: Core, node: int, arrived: bool) -> None:  # noqa: FBT001 - how it ended
        if self._offered.pop(node, None) is not None:
            core.raft.act(lambda: core.engine.report_snapshot(node, arrived=arrived))

    # -- as one who lags ----------------------------------------------------------------------------------

    def on_offer(self, core: Core | None, sender: int, offer: SnapshotOffer) -> None:
        """Fetch what is offered, or say that it is to be offered again; what one node offers twice is fetched once."""
        if core is not None and self._fetching is None:
            self._is_superseded.clear()
            self._sender = sender
            task = asyncio.get_running_loop().create_task(self._fetch(core, sender, offer), name="fetching a snapshot")
            self._fetching = task
        elif core is None or sender != self._sender:
            self._is_superseded.set()
            self._transport.send(sender, SnapshotOutcome(offer.index, arrived=False))

    async def _ask(self, node: int, request: Request, timeout_s: float) -> Reply:
        """Ask a node, as long as nobody else offers a snapshot.

        Raises:
            UnavailableError: it does not answer, or somebody does.
        """
        answer = asyncio.ensure_future(self._transport.request(node, request, timeout_s))
        superseded = asyncio.ensure_future(self._is_superseded.wait())
        try:
            await asyncio.wait([answer, superseded], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise UnavailableError("another node leads, and offers one")
            return answer.result()
        finally:
            superseded.cancel()
            answer.cancel()

    async def _fetch(self, core: Core, sender: int, offer: SnapshotOffer) -> None:
        arrived = is_touched = False
        ask, directory = self._ask, self._layout.snapshots
        try:
            await fetch_chunks(offer, sender, ask, self._fs, self._clock, directory)
            is_touched = True
            await fetch_records(core, offer, sender, ask, self._fs, directory)
            core.raft.step(sender, [offer.message])
            arrived = True
        except LatewoodError as error:
            _logger.warning("snapshot %d of node %d was not fetched: %s", offer.index, sender, error)
            if is_touched and core.raft.failure is None:
                self._reopen()  # Partitions may be ahead of what the core knows of them.
            if not self._is_superseded.is_set():
                await asyncio.sleep(_FAILED_S)
        finally:
            self._fetching = None
            self._transport.send(sender, SnapshotOutcome(offer.index, arrived))

    def close(self) -> None:
        """Fetch nothing any more."""
        if self._fetching is not None:
            self._fetching.cancel()
