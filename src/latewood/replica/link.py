"""The way from one node to another: a connection that is made again whenever it breaks.

A network may swallow a connection and tell neither end: so an end that does not greet us, or leaves a probe without an
answer, is taken for gone.  What is sent while the link is down, or while too much waits, is lost: Raft repeats.

Owned by the event loop's thread.
"""

import asyncio
import contextlib
import itertools
import logging
import ssl
from typing import Final, NamedTuple

import msgspec

from latewood.errors import UnavailableError
from latewood.limits import MiB
from latewood.replica.addresses import split_address
from latewood.replica.connection import Connection
from latewood.replica.requests import VERSION, Hello, Probe, Rejected, Welcome
from latewood.replica.tls import node_id_of
from latewood.replica.wire import Message, Peer, Reply, Request, encode_frame

_GREETING_S: Final = 5.0
_PROBE_S: Final = 5.0
"""A probe is sent so often, and so long its answer may take."""
_PAUSE_FIRST_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
_UNSENT_BYTES_MAX: Final = 64 * MiB
"""On one link; beyond this messages are dropped, as if the network had lost them."""

_logger = logging.getLogger(__name__)


class Identity(NamedTuple):
    """Who we are."""

    cluster_id: str
    node_id: int
    address: str
    """Where others reach us."""


class Link:
    """The way to one node: a connection that is made again whenever it breaks."""

    def __init__(self, node_id: int, address: str, own: Identity, tls: ssl.SSLContext | None) -> None:
        self.node_id, self.address = node_id, address
        self._own, self._tls = own, tls
        self._connection: Connection | None = None
        self._was_up = False
        self._closed = asyncio.Event()
        self._up = asyncio.Event()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"link to node {node_id}")

    @property
    def is_up(self) -> bool:
        """Whether the other has welcomed us."""
        return self._up.is_set()

    def send(self, message: Peer) -> bool:
        """Send a message, or lose it; say which."""
        connection = self._connection
        if connection is None or not connection.is_greeted or connection.unsent_bytes > _UNSENT_BYTES_MAX:
            return False
        connection.send_frame(encode_frame(message))
        return True

    async def request(self, request: Request | Probe, timeout_s: float) -> Reply:
        """Ask, and return the reply."""
        number = next(self._ids)
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
                assert self._connection is not None
                answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
                self._waiting[number] = answer
                self._connection.send(msgspec.structs.replace(request, id=number))
                return await answer
        except TimeoutError:
            message = f"node {self.node_id} at {self.address} did not answer within {timeout_s:g} s"
            raise UnavailableError(message) from None
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """End it."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close("the link is closed")

    async def _run(self) -> None:
        host, port = split_address(self.address)
        pause_s = _PAUSE_FIRST_S
        while True:
            self._closed.clear()
            try:
                _, connection = await asyncio.wait_for(
                    asyncio.get_running_loop().create_connection(
                        lambda: Connection(self._take, self._lost), host, port, ssl=self._tls
                    ),
                    _GREETING_S,
                )
            except (OSError, TimeoutError) as error:
                _logger.debug("node %d at %s cannot be reached: %s", self.node_id, self.address, error)
            else:
                self._connection = connection
                connection.name = f"node {self.node_id} at {self.address}"
                own = self._own
                connection.send(Hello(VERSION, own.cluster_id, "peer", own.node_id, own.address))
                await self._until_closed(connection)
                pause_s = _PAUSE_FIRST_S if self._was_up else pause_s
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _until_closed(self, connection: Connection) -> None:
        """Wait until the connection breaks, and break it if nobody is there."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GREETING_S):
                await self._closed.wait()
        if not self.is_up:
            connection.abort("it did not greet us in time")
        while not self._closed.is_set():
            try:
                await self.request(Probe(0), _PROBE_S)
            except UnavailableError as error:
                connection.abort(str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_S):
                    await self._closed.wait()

    def _take(self, connection: Connection, message: Message) -> None:
        if connection.is_greeted:
            waiting = self._waiting.get(getattr(message, "id", 0))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)  # type: ignore[arg-type] # a node answers with replies
            return
        proven = node_id_of(connection.certificate) if self._tls else self.node_id
        if isinstance(message, Welcome) and message.node_id == self.node_id == proven:
            connection.greeted(self.node_id, connection.name)
            self._was_up = True
            self._up.set()
            return
        reason = message.reason if isinstance(message, Rejected) else f"it is not node {self.node_id}"
        _logger.warning("%s does not take us: %s", connection.name, reason)
        connection.abort(reason)

    def _lost(self, connection: Connection, reason: str) -> None:
        if connection is self._connection or self._connection is None:
            self._connection = None
            self._up.clear()
            self._closed.set()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(UnavailableError(f"node {self.node_id} is gone: {reason}"))
