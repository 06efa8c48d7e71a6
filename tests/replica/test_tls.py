"""Mutual TLS 1.3 with certificates of the cluster's own: who is let in, and who is not."""

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import latewood
from latewood.errors import ClusterUnavailable, UsageError
from latewood.fs import PosixFS
from latewood.replica.certificates import authority_names, client_names, make_certificates, node_names
from latewood.replica.tls import Credentials, client_context, node_id_of, server_context
from tests.replica.fake_cluster import FakeCluster
from tests.replica.test_transport import node

NOW = datetime.now(UTC)


def made(directory: Path, *, now: datetime = NOW, days: int = 365, nodes: int = 3) -> Path:
    hosts = dict.fromkeys(range(1, nodes + 1), "127.0.0.1")
    make_certificates(PosixFS(), directory, hosts, cluster_id="trial", now=now, days=days)
    return directory


def of_node(directory: Path, node_id: int) -> Credentials:
    return Credentials(authority_names(directory).certificate, *node_names(directory, node_id))


def of_client(directory: Path) -> Credentials:
    return Credentials(authority_names(directory).certificate, *client_names(directory))


def appended(server: ssl.SSLContext, tls: Any, *, count: int = 1) -> int:
    """Append one record to a node with this context, as a client with that; return its sequence."""

    async def act() -> int:
        async with FakeCluster(tls=server, count=count) as cluster:
            options: dict[str, Any] = {"timeout_ms": 1_000, "pause_first_ms": 10}
            async with await latewood.connect_async(cluster.addresses, tls=tls, **options) as client:
                return await client.partition(7).append(b"secret")

    return asyncio.run(act())


def test_whoever_has_a_certificate_of_the_authority_is_let_in(tmp_path: Path) -> None:
    made(tmp_path)
    server = server_context(of_node(tmp_path, 1))
    assert appended(server, client_context(of_client(tmp_path))) == 0
    names = client_names(tmp_path)
    ca = authority_names(tmp_path).certificate
    assert appended(server, {"cert": names.certificate, "key": names.key, "ca": ca}) == 0


def test_the_conversation_is_tls_1_3_and_both_ends_are_known(tmp_path: Path) -> None:
    made(tmp_path)

    async def act() -> tuple[str, int, int]:
        seen: list[int] = []

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            del reader
            seen.append(node_id_of(writer.get_extra_info("peercert")))
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=server_context(of_node(tmp_path, 2)))
        async with server:
            port = server.sockets[0].getsockname()[1]
            context = client_context(of_node(tmp_path, 3))
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            await reader.read()
            version = writer.get_extra_info("ssl_object").version()
            found = version, node_id_of(writer.get_extra_info("peercert")), seen[0]
            writer.close()
            return found

    assert asyncio.run(act()) == ("TLSv1.3", 2, 3)


def test_another_authority_is_not_believed(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path / "ours"), made(tmp_path / "theirs")
    with pytest.raises(ClusterUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        appended(server_context(of_node(theirs, 1)), client_context(of_client(ours)))
    stranger = of_client(theirs)._replace(authority=authority_names(ours).certificate)
    with pytest.raises(ClusterUnavailable):
        appended(server_context(of_node(ours, 1)), client_context(stranger))


async def refused_at_once(addresses: list[str], tls: ssl.SSLContext, reason: str) -> None:
    """See that the reason is told, and not that the patience has run out."""
    patience: dict[str, Any] = {"timeout_ms": 10_000, "connect_ms": 10_000}
    async with await latewood.connect_async(addresses, tls=tls, **patience) as client:
        for call in (client.partition(7).append(b"secret"), client.partition(7).read(0), client.status()):
            with pytest.raises(ClusterUnavailable, match=reason) as caught:
                await call
            assert "no answer within" not in str(caught.value)


def test_an_authority_that_is_not_the_nodes_is_told_at_once(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path / "ours"), made(tmp_path / "theirs")

    async def act() -> None:
        async with FakeCluster(tls=server_context(of_node(theirs, 1))) as cluster:
            await refused_at_once(cluster.addresses, client_context(of_client(ours)), "CERTIFICATE_VERIFY_FAILED")

    asyncio.run(act())


def test_a_certificate_that_a_node_says_it_does_not_trust_is_told_at_once(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path / "ours"), made(tmp_path / "theirs")
    stranger = of_client(theirs)._replace(authority=authority_names(ours).certificate)
    server = server_context(of_node(ours, 1))

    def refuse(listener: socket.socket) -> None:
        for _ in range(3):  # The calls.  With asyncio a node says nothing before it closes, so this one is without.
            connection, _ = listener.accept()
            with connection, suppress(ssl.SSLError):
                server.wrap_socket(connection, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        asyncio.run(refused_at_once([address], client_context(stranger), "does not trust our certificate.*UNKNOWN_CA"))
        thread.join()


def test_tls_to_a_plain_node_is_told_at_once_and_the_node_says_so_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made(tmp_path)

    async def act() -> None:
        async with node(1) as (_, _, port):
            tls = client_context(of_client(tmp_path))
            await refused_at_once([f"127.0.0.1:{port}"], tls, "the node speaks plain text, and we TLS")

    asyncio.run(act())
    assert "it speaks TLS, and this node plain text" in caplog.text


def test_a_node_that_leaves_a_handshake_is_perhaps_a_plain_one(tmp_path: Path) -> None:
    made(tmp_path)

    async def act() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, await latewood.connect_async([address], tls=client_context(of_client(tmp_path))) as client:
            with pytest.raises(ClusterUnavailable, match=r"does the node speak TLS, as we do\?"):
                await client.status()

    asyncio.run(act())


def test_plain_text_to_a_node_with_tls_has_a_hint(tmp_path: Path) -> None:
    made(tmp_path)

    async def act() -> None:
        async with (
            node(1, credentials=of_node(tmp_path, 1)) as (_, _, port),
            await latewood.connect_async([f"127.0.0.1:{port}"], timeout_ms=100) as client,
        ):
            for call in (client.status(), client.partition(7).append(b"x")):
                with pytest.raises(ClusterUnavailable, match=r"does it speak TLS\? Then connect with tls=, .*--ca"):
                    await call

    asyncio.run(act())


def test_one_node_that_is_not_trusted_does_not_keep_from_the_others(tmp_path: Path) -> None:
    ours, theirs = made(tmp_path / "ours"), made(tmp_path / "theirs")

    async def act() -> int:
        async with (
            FakeCluster(tls=server_context(of_node(theirs, 1)), count=1) as foreign,
            FakeCluster(tls=server_context(of_node(ours, 1)), count=1) as cluster,
        ):
            addresses = foreign.addresses + cluster.addresses
            tls = client_context(of_client(ours))
            async with await latewood.connect_async(addresses, tls=tls, pause_first_ms=1) as client:
                return await client.partition(7).append(b"secret")

    assert asyncio.run(act()) == 0


@pytest.mark.parametrize("who", ["node", "client"])
def test_a_certificate_that_has_run_out_is_refused(tmp_path: Path, who: str) -> None:
    made(tmp_path)
    expired = node_names(tmp_path, 1) if who == "node" else client_names(tmp_path)
    for path in expired:
        path.unlink()
    made(tmp_path, now=NOW - timedelta(days=30), days=7)
    with pytest.raises(ClusterUnavailable):
        appended(server_context(of_node(tmp_path, 1)), client_context(of_client(tmp_path)))


def test_whoever_shows_no_certificate_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.load_verify_locations(authority_names(tmp_path).certificate)
    with pytest.raises(ClusterUnavailable):
        appended(server_context(of_node(tmp_path, 1)), bare)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_1_2_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    old = client_context(of_client(tmp_path))
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ClusterUnavailable, match=r"version|[Rr]eset"):
        appended(server_context(of_node(tmp_path, 1)), old)
    old_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old_server.load_cert_chain(*node_names(tmp_path, 1))
    old_server.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ClusterUnavailable):
        appended(old_server, client_context(of_client(tmp_path)))


def test_plain_text_is_refused_by_either_side(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ClusterUnavailable):
        appended(server_context(of_node(tmp_path, 1)), None)


def test_a_node_that_says_it_is_another_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ClusterUnavailable, match="says it is node 1, and its certificate is of node 2"):
        appended(server_context(of_node(tmp_path, 2)), client_context(of_client(tmp_path)))


def test_a_client_cannot_pass_for_a_node(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ClusterUnavailable):  # Its certificate may not be shown by a server at all.
        appended(server_context(of_client(tmp_path)), client_context(of_client(tmp_path)))


def test_what_is_there_stays_and_signs_what_is_added(tmp_path: Path) -> None:
    made(tmp_path, nodes=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    added = make_certificates(PosixFS(), tmp_path, {1: "a", 4: "b.example"}, cluster_id="trial", now=NOW)
    assert sorted(path.name for path in added) == ["node-4.key", "node-4.pem"]
    assert before.items() <= {path.name: path.read_bytes() for path in tmp_path.iterdir()}.items()
    assert appended(server_context(of_node(tmp_path, 1)), client_context(of_node(tmp_path, 4))) == 0


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    made(tmp_path)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("*.key")} == {0}


@pytest.mark.parametrize("name", ["ca.key", "ca.pem", "node-1.pem", "client.key"])
def test_half_of_a_pair_is_no_pair(tmp_path: Path, name: str) -> None:
    made(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UsageError, match=name):
        made(tmp_path)


def test_an_authority_must_be_one(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "ca.pem").write_bytes((tmp_path / "client.pem").read_bytes())
    with pytest.raises(UsageError, match="is not the key of"):
        made(tmp_path, nodes=4)
    (tmp_path / "ca.key").write_bytes(b"nothing")
    with pytest.raises(UsageError, match="no authority"):
        made(tmp_path, nodes=4)


@pytest.mark.parametrize("field", ["authority", "certificate", "key"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, field: str) -> None:
    made(tmp_path)
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"nothing")
    for path in (damaged, tmp_path / "missing"):
        with pytest.raises(UsageError, match=path.name):
            client_context(of_client(tmp_path)._replace(**{field: path}))


@pytest.mark.parametrize(
    ("field", "kind"),
    [("authority", "the authority's certificate"), ("certificate", "the certificate"), ("key", "the key")],
)
def test_of_several_files_the_one_that_is_missing_is_named(tmp_path: Path, field: str, kind: str) -> None:
    made(tmp_path)
    path = tmp_path / "gone"
    with pytest.raises(UsageError) as caught:
        client_context(of_client(tmp_path)._replace(**{field: path}))
    assert str(caught.value) == f"what TLS needs is not there: {kind} {path}"


def test_a_tls_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="cert, key and ca"):
        latewood.connect(["127.0.0.1:1"], tls={"cert": "x"})
