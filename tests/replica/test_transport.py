"""Who may talk to a node, and how links to others behave: in one event loop, on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from latewood.errors import UnavailableError, UsageError
from latewood.fs import PosixFS
from latewood.replica.certificates import authority_names, client_names, make_certificates, node_names
from latewood.replica.connection import Connection
from latewood.replica.link import Identity
from latewood.replica.replies import Done
from latewood.replica.requests import VERSION, Append, GetStatus, Hello, RaftMessages, Rejected, Resume, Welcome
from latewood.replica.tls import Credentials, client_context
from latewood.replica.transport import Transport
from latewood.replica.wire import GREETING_BYTES_MAX, FrameBuffer, Message, Peer, Request, encode_frame
from tests.replica.processes import free_ports


class Site:
    """A node that remembers what it is told."""

    def __init__(self) -> None:
        self.peers: list[tuple[int, Peer]] = []
        self.requests: list[Request] = []
        self.addresses: dict[int, str] = {}

    def on_peer(self, node_id: int, message: Peer) -> None:
        self.peers.append((node_id, message))

    def on_request(self, connection: Connection, request: Request) -> None:
        self.requests.append(request)
        if isinstance(request, Resume):
            connection.send(Done(request.id))

    def on_address(self, node_id: int, address: str) -> None:
        self.addresses[node_id] = address

    def leader(self) -> tuple[int, str]:
        return 3, "127.0.0.1:3"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - it happens on other connections
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def node(
    node_id: int, port: int = 0, credentials: Credentials | None = None
) -> AsyncIterator[tuple[Transport, Site, int]]:
    site = Site()
    transport = Transport(Identity("trial", node_id, f"127.0.0.1:{port}"), site, credentials)
    port = await transport.listen("127.0.0.1", port)
    try:
        yield transport, site, port
    finally:
        await transport.close()


async def said(port: int, raw: bytes | bytearray, credentials: Credentials | None = None) -> list[Message]:
    """Say something to a node, and return what it says until it closes, or has said one thing."""
    tls = client_context(credentials) if credentials else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(raw)
    buffer, heard = FrameBuffer(), list[Message]()
    with contextlib.suppress(ConnectionError):
        while not heard and (data := await reader.read(65_536)):
            heard += buffer.feed(data)
    writer.close()
    return heard


def greet(hello: Hello) -> list[Message]:
    async def story() -> list[Message]:
        async with node(1) as (_, _, port):
            return await said(port, encode_frame(hello))

    return asyncio.run(story())


def test_a_client_is_told_who_leads() -> None:
    assert greet(Hello(VERSION, "", "client")) == [Welcome(VERSION, "trial", 1, 3, "127.0.0.1:3")]


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(VERSION + 1, "trial", "client"), "version"),
        (Hello(VERSION, "another", "client"), "cluster 'trial'"),
        (Hello(VERSION, "", "peer", 2), "cluster 'trial'"),
        (Hello(VERSION, "trial", "peer", 1), "cannot be a peer"),
        (Hello(VERSION, "trial", "peer", 0), "cannot be a peer"),
    ],
)
def test_whoever_does_not_belong_here_is_told_why(hello: Hello, reason: str) -> None:
    (answer,) = greet(hello)
    assert isinstance(answer, Rejected)
    assert reason in answer.reason
    assert answer.is_final == ("cluster" in reason)


@pytest.mark.parametrize(
    "raw",
    [
        encode_frame(GetStatus(1)),  # no greeting
        (GREETING_BYTES_MAX + 1).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        encode_frame(Hello(VERSION, "trial", "client"))[:-1] + b"\xff",
    ],
)
def test_a_stranger_gets_nowhere(raw: bytes) -> None:
    async def story() -> tuple[list[Message], Sequence[Request]]:
        async with node(1) as (transport, site, port):
            heard = await said(port, raw)
            await until(lambda: transport.connection_count == 0)
            return heard, site.requests

    heard, requests = asyncio.run(story())
    assert all(isinstance(one, Rejected) for one in heard)
    assert not requests


def test_a_client_cannot_speak_as_a_node() -> None:
    async def story() -> Site:
        async with node(1) as (transport, site, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode_frame(Hello(VERSION, "trial", "client")) + encode_frame(RaftMessages([b"x"])))
            await until(lambda: transport.connection_count == 1)
            await until(lambda: transport.connection_count == 0)
            writer.close()
            return site

    assert not asyncio.run(story()).peers


def test_a_link_delivers_in_order_and_comes_back_after_a_break() -> None:
    async def story() -> None:
        (port,) = free_ports(1)
        async with node(1) as (one, _, _):
            one.set_peers([(1, "127.0.0.1:1"), (2, f"127.0.0.1:{port}")])
            assert not one.send(2, RaftMessages([b"lost"]))
            for _ in range(2):
                async with node(2, port) as (_, site, _):
                    await until(lambda: one.is_connected(2))
                    for number in range(100):
                        assert one.send(2, RaftMessages([b"%d" % number]))
                    await until(lambda: len(site.peers) == 100)
                    assert site.peers == [(1, RaftMessages([b"%d" % number])) for number in range(100)]
                    assert site.addresses == {1: "127.0.0.1:0"}
                    assert isinstance(await one.request(2, Resume(0, 7), 10), Done)
                await until(lambda: not one.is_connected(2))
            with pytest.raises(UnavailableError, match="did not answer"):
                await one.request(2, Resume(0, 7), 0.05)
            with pytest.raises(UnavailableError, match="no address"):
                await one.request(9, Resume(0, 7), 0.05)

    asyncio.run(story())


def test_two_nodes_of_one_id_at_two_addresses_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with node(1) as (_, site, port), node(2, free_ports(1)[0]) as (first, _, _):
            first.set_peers([(1, f"127.0.0.1:{port}")])
            await until(lambda: first.is_connected(1))
            assert not caplog.records
            async with node(2, free_ports(1)[0]) as (copy, _, _):
                copy.set_peers([(1, f"127.0.0.1:{port}")])
                await until(lambda: site.addresses[2] == copy.identity.address)
                warned = [record.message for record in caplog.records]
                assert len(warned) == 1
                assert f"{first.identity.address} and from {copy.identity.address}" in warned[0]

    asyncio.run(story())


def test_a_request_whose_node_goes_away_is_told() -> None:
    async def story() -> None:
        async with node(1) as (one, _, _):
            async with node(2) as (_, site, port):
                one.set_peers([(2, f"127.0.0.1:{port}")])
                asking = asyncio.create_task(one.request(2, Append(0, 7, b"", 1, []), 30))
                await until(lambda: len(site.requests) == 1)
            with pytest.raises(UnavailableError, match="gone"):
                await asking

    asyncio.run(story())


def test_a_node_that_is_not_the_one_we_want_gets_nothing() -> None:
    async def story() -> None:
        async with node(1) as (one, _, _), node(3) as (_, site, port):
            one.set_peers([(2, f"127.0.0.1:{port}")])
            with pytest.raises(UnavailableError):
                await one.request(2, Resume(0, 7), 0.3)
            assert not site.requests
            assert not one.is_connected(2)

    asyncio.run(story())


def test_plain_text_stays_on_this_machine() -> None:
    async def story(host: str) -> None:
        await Transport(Identity("trial", 1, ""), Site()).listen(host, 0)

    for host in ("0.0.0.0", "192.0.2.1", "example.org"):  # noqa: S104 - it must be refused
        with pytest.raises(UsageError, match="loopback"):
            asyncio.run(story(host))


def test_a_node_is_who_its_certificate_says(tmp_path: Path) -> None:
    make_certificates(
        PosixFS(), tmp_path, dict.fromkeys((1, 2, 3), "127.0.0.1"), cluster_id="trial", now=datetime.now(UTC), days=2
    )
    authority = authority_names(tmp_path).certificate
    first, second, third = (Credentials(authority, *node_names(tmp_path, number)) for number in (1, 2, 3))
    client = Credentials(authority, *client_names(tmp_path))

    async def story() -> None:
        async with node(1, credentials=first) as (_, site, port):
            async with node(2, credentials=second) as (two, _, _):
                two.set_peers([(1, f"127.0.0.1:{port}")])
                await until(lambda: two.is_connected(1))
                assert two.send(1, RaftMessages([b"x"]))
                await until(lambda: site.peers == [(2, RaftMessages([b"x"]))])
            pretending = encode_frame(Hello(VERSION, "trial", "peer", 2))
            for credentials in (third, client):
                (answer,) = await said(port, pretending, credentials)
                assert isinstance(answer, Rejected)
                assert "the certificate is of" in answer.reason
            (welcome,) = await said(port, encode_frame(Hello(VERSION, "trial", "client")), client)
            assert isinstance(welcome, Welcome)
            assert await said(port, pretending) == []

    asyncio.run(story())
