"""The transport: who may talk to this node, and the links to the others.

A node connects to every other one and sends its messages there; what the other has to say comes over the other's own
link.  A link that breaks is made again, with pauses that grow.  What is sent while it is down, or while too much waits,
is lost: Raft repeats.  Requests between nodes go over the same links, and their replies come back.

Mutual TLS 1.3 everywhere, and a node's id is what its certificate says; plain text only between loopback addresses.

Owned by the event loop's thread.
"""

import asyncio
import ipaddress
import itertools
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from latewood.errors import UnavailableError, UsageError
from latewood.limits import MiB
from latewood.replica.connection import Connection
from latewood.replica.requests import VERSION, Hello, Rejected, Welcome
from latewood.replica.tls import Credentials, client_context, node_id_of, server_context
from latewood.replica.wire import Message, Peer, Reply, Request, encode_frame

_GREETING_S: Final = 5.0
_PAUSE_FIRST_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
_UNSENT_BYTES_MAX: Final = 64 * MiB
"""On one link; beyond this messages are dropped, as if the network had lost them."""
_CONNECTIONS_MAX: Final = 4_096

_logger = logging.getLogger(__name__)


class Identity(NamedTuple):
    """Who we are."""

    cluster_id: str
    node_id: int
    address: str
    """Where others reach us."""


class Handler(Protocol):
    """What a transport is for.  Called on the event loop; none of these may wait."""

    def on_peer(self, node_id: int, message: Peer) -> None:
        """Take a message of another node."""
        ...

    def on_request(self, connection: Connection, request: Request) -> None:
        """Take a request; the reply goes to the connection."""
        ...

    def on_address(self, node_id: int, address: str) -> None:
        """Take note of where a node says that it can be reached."""
        ...

    def leader(self) -> tuple[int, str]:
        """Return who leads, and where that is."""
        ...


class Transport:
    """All connections of one node."""

    def __init__(self, identity: Identity, handler: Handler, credentials: Credentials | None = None) -> None:
        """Without credentials everything is plain text, and stays on this machine.

        Raises:
            UsageError: the credentials cannot be used.
        """
        self.identity, self._handler = identity, handler
        self._server_tls = server_context(credentials) if credentials else None
        self._client_tls = client_context(credentials) if credentials else None
        self._server: asyncio.Server | None = None
        self._links: dict[int, Link] = {}
        self._open: set[Connection] = set()

    @property
    def connection_count(self) -> int:
        """Connections that others have made."""
        return len(self._open)

    async def listen(self, host: str, port: int) -> int:
        """Take connections from now on; return the port.

        Raises:
            UsageError: plain text is asked for where others could listen.
            OSError: the address cannot be had.
        """
        if self._server_tls is None:
            check_loopback(host)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, ssl=self._server_tls, backlog=256)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    def set_peers(self, addresses: Iterable[tuple[int, str]]) -> None:
        """Have links to these nodes, and to no others."""
        wanted = {node: address for node, address in addresses if node != self.identity.node_id}
        for node in [node for node, link in self._links.items() if wanted.get(node) != link.address]:
            self._links.pop(node).close()
        for node, address in wanted.items():
            if node not in self._links:
                self._links[node] = Link(node, address, self.identity, self._client_tls)

    def send(self, node_id: int, message: Peer) -> bool:
        """Send a message to a node, or lose it; say which."""
        link = self._links.get(node_id)
        return link is not None and link.send(message)

    async def request(self, node_id: int, request: Request, timeout_s: float) -> Reply:
        """Ask another node something.

        Raises:
            UnavailableError: it cannot be reached, or did not answer in time.
        """
        link = self._links.get(node_id)
        if link is None:
            message = f"no address of node {node_id} is known"
            raise UnavailableError(message)
        return await link.request(request, timeout_s)

    def is_connected(self, node_id: int) -> bool:
        """Say whether messages to a node leave."""
        return node_id in self._links and self._links[node_id].is_up

    async def close(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for link in self._links.values():
            link.close()
        self._links.clear()
        for connection in list(self._open):
            connection.close("the node stops")
        await asyncio.sleep(0)

    # -- whoever comes ------------------------------------------------------------------------------------

    def _accept(self) -> Connection:
        connection = Connection(self._take, self._closed)
        self._open.add(connection)
        asyncio.get_running_loop().call_later(_GREETING_S, self._too_slow, connection)
        return connection

    def _take(self, connection: Connection, message: Message) -> None:
        if not connection.is_greeted:
            self._greet(connection, message)
        elif isinstance(message, Request):
            self._handler.on_request(connection, message)
        elif isinstance(message, Peer) and connection.node_id:
            self._handler.on_peer(connection.node_id, message)
        else:
            connection.abort(f"{connection.name} sent a {type(message).__name__}, which is not for it to send")

    def _greet(self, connection: Connection, message: Message) -> None:
        reason = self._objection(connection, message)
        if reason or not isinstance(message, Hello):
            _logger.warning("a connection is refused: %s", reason)
            connection.send(Rejected(reason))
            connection.close(reason)
            return
        node_id = message.node_id if message.role == "peer" else 0
        connection.greeted(node_id, f"node {node_id}" if node_id else "a client")
        cluster_id, own_id, _ = self.identity
        connection.send(Welcome(VERSION, cluster_id, own_id, *self._handler.leader()))
        if node_id and message.address:
            self._handler.on_address(node_id, message.address)

    def _objection(self, connection: Connection, message: Message) -> str:
        """Return why somebody may not talk to us; nothing if they may."""
        if not isinstance(message, Hello):
            return "a conversation begins with a greeting"
        if message.version != VERSION:
            return f"we speak version {VERSION}, not {message.version}; upgrade the older side"
        own = self.identity
        if message.cluster_id != own.cluster_id and (message.cluster_id or message.role == "peer"):
            return f"this is cluster {own.cluster_id!r}, not {message.cluster_id!r}"
        if len(self._open) > _CONNECTIONS_MAX:
            return f"{_CONNECTIONS_MAX:,} connections are open already"
        if message.role == "client":
            return ""
        if not message.node_id or message.node_id == own.node_id:
            return f"node {message.node_id} cannot be a peer of node {own.node_id}"
        proven = node_id_of(connection.certificate) if self._server_tls else message.node_id
        if proven != message.node_id:
            return f"the certificate is of {f'node {proven}' if proven else 'no node'}, not of node {message.node_id}"
        return ""

    def _too_slow(self, connection: Connection) -> None:
        if not connection.is_greeted:
            connection.abort("it did not say who it is")

    def _closed(self, connection: Connection, reason: str) -> None:
        del reason
        self._open.discard(connection)


class Link:
    """The way to one node: a connection that is made again whenever it breaks."""

    def __init__(self, node_id: int, address: str, own: Identity, tls: ssl.SSLContext | None) -> None:
        self.node_id, self.address = node_id, address
        self._own, self._tls = own, tls
        self._connection: Connection | None = None
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
        if connection is None or not self.is_up or connection.unsent_bytes > _UNSENT_BYTES_MAX:
            return False
        connection.send_frame(encode_frame(message))
        return True

    async def request(self, request: Request, timeout_s: float) -> Reply:
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
                await self._closed.wait()
                pause_s = _PAUSE_FIRST_S if self.was_up else pause_s
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    was_up = False

    def _take(self, connection: Connection, message: Message) -> None:
        if connection.is_greeted:
            waiting = self._waiting.get(getattr(message, "id", 0))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)  # type: ignore[arg-type] # a node answers with replies
            return
        proven = node_id_of(connection.certificate) if self._tls else self.node_id
        if isinstance(message, Welcome) and message.node_id == self.node_id == proven:
            connection.greeted(self.node_id, connection.name)
            self.was_up = True
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


def split_address(address: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        UsageError: it is no address.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        message = f"an address is host:port, not {address!r}"
        raise UsageError(message)
    return host.strip("[]"), int(port)


def check_loopback(host: str) -> None:
    """Refuse plain text where others could listen.

    Raises:
        UsageError: the host is not this machine alone.
    """
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        message = f"plain text is for loopback addresses alone, and {host} is none: give [tls] in the configuration"
        raise UsageError(message)


Sender = Callable[[int, Peer], bool]
