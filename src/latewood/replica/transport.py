"""The transport: who may talk to this node, and the links to the others.

A node connects to every other one and sends its messages there; what the other has to say comes over the other's own
link.  A link that breaks, or on which nobody answers, is made again, with pauses that grow.  What is sent while it is
down, or while too much waits, is lost: Raft repeats.  Requests between nodes go over the same links, and their replies
come back.

Mutual TLS 1.3 everywhere, and a node's id is what its certificate says; plain text only between loopback addresses.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol, cast

from latewood.errors import UnavailableError
from latewood.replica.addresses import check_loopback
from latewood.replica.connection import Connection
from latewood.replica.link import Identity, Link
from latewood.replica.replies import Done
from latewood.replica.requests import VERSION, Hello, Probe, Rejected, Welcome
from latewood.replica.tls import Credentials, client_context, node_id_of, server_context
from latewood.replica.wire import PEER_KINDS, REQUEST_KINDS, Message, Peer, Reply, Request

_GREETING_S: Final = 5.0
_CONNECTIONS_MAX: Final = 4_096

_logger = logging.getLogger(__name__)


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
        self._nodes: dict[Connection, str] = {}
        """Of the open ones, those of nodes, with where the node says that it is."""

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
        kind = type(message)
        if not connection.is_greeted:
            self._greet(connection, message)
        elif kind in PEER_KINDS and connection.node_id:
            self._handler.on_peer(connection.node_id, cast("Peer", message))
        elif kind in REQUEST_KINDS:
            self._handler.on_request(connection, cast("Request", message))
        elif isinstance(message, Probe):
            connection.send(Done(message.id))
        else:
            connection.abort(f"{connection.name} sent a {type(message).__name__}, which is not for it to send")

    def _greet(self, connection: Connection, message: Message) -> None:
        reason = self._objection(connection, message)
        if reason or not isinstance(message, Hello):
            _logger.warning("a connection is refused: %s", reason)
            connection.send(Rejected(reason, is_final=self._is_for_another(message)))
            connection.close(reason)
            return
        node_id = message.node_id if message.role == "peer" else 0
        connection.greeted(node_id, f"node {node_id}" if node_id else "a client")
        cluster_id, own_id, _ = self.identity
        connection.send(Welcome(VERSION, cluster_id, own_id, *self._handler.leader()))
        if node_id and message.address:
            self._warn_of_twin(node_id, message.address)
            self._nodes[connection] = message.address
            self._handler.on_address(node_id, message.address)

    def _warn_of_twin(self, node_id: int, address: str) -> None:
        """Warn if a node comes from one address while its connection from another is open."""
        twins = [other for one, other in self._nodes.items() if one.node_id == node_id and other != address]
        if twins:
            _logger.warning(
                "node %d is connected from %s and from %s: if two copies of it run, stop the older one",
                node_id,
                twins[0],
                address,
            )

    def _objection(self, connection: Connection, message: Message) -> str:
        """Return why somebody may not talk to us; nothing if they may."""
        if not isinstance(message, Hello):
            return "a conversation begins with a greeting"
        own, is_peer = self.identity, message.role == "peer"
        named = message.node_id if is_peer else 0
        proven = node_id_of(connection.certificate) if self._server_tls and is_peer else named
        objections = {
            f"we speak version {VERSION}, not {message.version}; upgrade the older side": message.version != VERSION,
            f"this is cluster {own.cluster_id!r}, not {message.cluster_id!r}": self._is_for_another(message),
            f"{_CONNECTIONS_MAX:,} connections are open already": len(self._open) > _CONNECTIONS_MAX,
            f"node {named} cannot be a peer of node {own.node_id}": is_peer and named in (0, own.node_id),
            f"the certificate is of {f'node {proven}' if proven else 'no node'}, not of node {named}": proven != named,
        }
        return next((reason for reason, holds in objections.items() if holds), "")

    def _is_for_another(self, message: Message) -> bool:
        """Say whether somebody looks for another cluster; a client that names none takes this one."""
        if not isinstance(message, Hello) or (message.role == "client" and not message.cluster_id):
            return False
        return message.cluster_id != self.identity.cluster_id

    def _too_slow(self, connection: Connection) -> None:
        if not connection.is_greeted:
            connection.abort("it did not say who it is")

    def _closed(self, connection: Connection, reason: str) -> None:
        del reason
        self._open.discard(connection)
        self._nodes.pop(connection, None)
