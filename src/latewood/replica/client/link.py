"""One connection of a client to a node: the greeting, requests that go out, replies that come back in any order.

Owned by the thread of its event loop.
"""

import asyncio
import errno
import os
import ssl
from collections.abc import Callable
from typing import Final, TypeAlias, cast

import msgspec

from latewood.errors import ClusterUnavailable
from latewood.replica.client.options import Address
from latewood.replica.client.verdict import Lost
from latewood.replica.requests import VERSION, Hello, Rejected, Welcome
from latewood.replica.tls import node_id_of
from latewood.replica.wire import FRAME_BYTES_MAX, FrameBuffer, Message, Reply, Request, WireError, encode_frame

Take: TypeAlias = Callable[[Reply | Lost], bool]
"""Takes a reply, or that none will come; returns whether it was the last."""

_GREETED: Final = (
    "the node closed the connection before it said who it is; "
    "is this a port of a node, is TLS as there, and does it trust our certificate?"
)
_GREETED_PLAIN: Final = (
    "the node closed the connection before it said who it is; does it speak TLS? Then connect with tls=, "
    "or in commands with --ca, --cert and --key. If not, is this a port of a node?"
)
_IN_TLS: Final = "; does the node speak TLS, as we do? Without [tls] in its node.toml it does not"
_PLAIN: Final = "the node speaks plain text, and we TLS: connect without tls, or give every node.toml its [tls]"
_REFUSED: Final = "the connection was refused: nobody listens there; does the node run, and is this its host and port?"
_GONE: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""How a connection ends whose other end leaves in the middle of a handshake."""


class NotTrusted(ClusterUnavailable):
    """One end refuses the other, for its certificate or because it is of another cluster: always, not for now."""


class Link(asyncio.Protocol):
    """A connection.  `open_link` makes one that is greeted."""

    def __init__(self, address: str, hello: Hello, *, is_plain: bool = False) -> None:
        self.address, self._hello, self._hint = address, hello, _GREETED_PLAIN if is_plain else _GREETED
        loop = asyncio.get_running_loop()
        self.greeted: asyncio.Future[Welcome] = loop.create_future()
        self._loop, self._buffer = loop, FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, Take] = {}
        self._out: list[bytearray] = []
        self._has_sent = False
        self._next_id = 1
        self._ended = ""

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return not self._ended and self.greeted.done()

    def send(self, request: Request) -> "asyncio.Future[Reply | Lost]":
        """Send a request under a number of this connection's own; the future has its reply, or that it was lost."""
        answer: asyncio.Future[Reply | Lost] = self._loop.create_future()

        def take(reply: Reply | Lost) -> bool:
            if not answer.done():  # Else nobody waits any more.
                answer.set_result(reply)
            return True

        self.post(request, take)
        return answer

    def post(self, request: Request, take: Take) -> None:
        """Send a request, and have `take` called with what is answered, or at once if the connection is lost.

        Raises:
            WireError: it is larger than a message may be; it is not sent.
        """
        if self._ended or self._transport is None:
            take(Lost(self._ended or "not connected", was_sent=False))
            return
        number, self._next_id = self._next_id, self._next_id + 1
        frame = encode_frame(msgspec.structs.replace(request, id=number))
        self._waiting[number] = take
        if self._has_sent:
            self._out.append(frame)
        else:  # The first of a turn of the loop leaves at once, all others of it in one more write.
            self._has_sent = True
            self._loop.call_soon(self._flush)
            self._transport.write(frame)

    def close(self, reason: str = "the client was closed") -> None:
        """Break off; requests on the way are lost."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no class that asyncio knows.
        self._transport.write(encode_frame(self._hello))

    def data_received(self, data: bytes) -> None:
        """Take in replies."""
        try:
            for message in self._buffer.feed(data):
                self._take(message)
        except WireError as error:
            self.close(f"{self.address} sent what is no message: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        if is_distrust(exc) and not self.greeted.done():  # The other's answer to our certificate comes so late.
            self.greeted.set_exception(NotTrusted(f"{self.address} does not trust our certificate: {exc}"))
        self._end(f"the connection to {self.address} was lost" + (f": {exc}" if exc else ""))

    # -- inside -------------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if self._ended:
            return
        if not self.greeted.done():
            self._greet(message)
            return
        number = getattr(message, "id", 0)
        take = self._waiting.get(number)
        # A node sends nothing with an id but replies.  Without `take` it was answered twice.
        if take is not None and take(message):  # type: ignore[arg-type]
            self._waiting.pop(number, None)  # Not `del`: whoever took it may have closed the connection.

    def _greet(self, message: Message) -> None:
        match message:
            case Welcome():
                self._buffer.bytes_max = FRAME_BYTES_MAX
                self.greeted.set_result(message)
            case Rejected():
                reason = f"{self.address} refuses us: {message.reason}"
                if message.is_final:
                    self.greeted.set_exception(NotTrusted(reason))
                self.close(reason)
            case _:
                self.close(f"{self.address} does not greet as a node does")

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = reason
        if not self.greeted.done():
            self.greeted.set_exception(
                ClusterUnavailable(reason if reason.count("refuses") else f"{reason}: {self._hint}")
            )
        waiting, self._waiting = self._waiting, {}
        for take in waiting.values():
            take(Lost(reason, was_sent=True))

    def _flush(self) -> None:
        self._has_sent = False
        if self._out and self._transport is not None and not self._ended:
            self._transport.write(b"".join(self._out))
        self._out.clear()


async def open_link(address: str, cluster_id: str, tls: ssl.SSLContext | None, timeout_s: float) -> Link:
    """Connect to a node, and return the connection once it is greeted.

    Raises:
        NotTrusted: it is of another cluster, or there is something wrong with a certificate.
        ClusterUnavailable: nobody is there, it is no node, or it took too long.
    """
    where = Address.parse(address)
    link = Link(address, Hello(VERSION, cluster_id, "client"), is_plain=tls is None)
    link.greeted.add_done_callback(lambda greeted: None if greeted.cancelled() else greeted.exception())
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().create_connection(
                lambda: link, where.host, where.port, ssl=tls, server_hostname=where.host if tls else None
            )
            welcome = await link.greeted
    except TimeoutError:
        link.close("too slow")
        message = f"{address} did not answer within {timeout_s:.3g} s"
        raise ClusterUnavailable(message) from None
    except OSError as error:  # ssl.SSLError is one
        link.close("failed")
        if is_distrust(error):
            raise NotTrusted(f"{address}: {_PLAIN if _is_plain(error) else error}") from error
        hint = _IN_TLS if tls is not None and isinstance(error, _GONE) else ""
        raise ClusterUnavailable(f"{address}: {_reason(error)}{hint}") from error
    except BaseException:
        link.close("broken off")
        raise
    _check_node(link, welcome, tls)
    return link


def is_distrust(error: BaseException | None) -> bool:
    """Say whether TLS failed for good, and not because the other end went away."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _reason(error: OSError) -> str:
    """Return why there is no connection; asyncio's own words are of its calls, and hide the operating system's."""
    if error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error):  # Of a name, one for each.
        return _REFUSED
    if error.errno and (error.strerror or "").startswith("Connect call failed"):
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def _is_plain(error: OSError) -> bool:
    """Say whether the other end answered in plain text."""
    return isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG")


def _check_node(link: Link, welcome: Welcome, tls: ssl.SSLContext | None) -> None:
    """Refuse a node whose certificate says that it is another, or a client."""
    if tls is None:
        return
    assert link._transport is not None  # noqa: SLF001 - the same module
    proven = node_id_of(link._transport.get_extra_info("peercert"))  # noqa: SLF001 - as above
    if proven != welcome.node_id:
        holder = f"node {proven}" if proven else "no node"
        reason = f"{link.address} says it is node {welcome.node_id}, and its certificate is of {holder}"
        link.close(reason)
        raise ClusterUnavailable(reason)
