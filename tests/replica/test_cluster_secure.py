"""A cluster of real processes with certificates, and what it tells a monitor."""

import asyncio
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

import latewood
from latewood.fs import PosixFS
from latewood.replica.certificates import authority_names, client_names, make_certificates, node_names
from latewood.replica.tls import Credentials, client_context
from tests.replica.processes import ClusterProcesses, free_ports
from tests.replica.test_cluster import PARTITION

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]


def test_with_certificates_a_leader_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    hosts = dict.fromkeys((1, 2, 3), "127.0.0.1")
    make_certificates(PosixFS(), tmp_path, hosts, cluster_id="trial", now=datetime.now(UTC), days=2)
    authority = authority_names(tmp_path).certificate
    names = node_names(tmp_path, 1)
    files = [str(path).replace("node-1", "node-NODE") for path in names]
    extra = f'[tls]\nauthority = "{authority}"\ncertificate = "{files[0]}"\nkey = "{files[1]}"\n'
    tls = client_context(Credentials(authority, *client_names(tmp_path)))

    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds, tls=tls) as client:
            handle = client.partition(PARTITION)
            assert await handle.append_many([b"a", b"b"]) == [0, 1]
            cluster.nodes[(await client.status()).leader].kill()
            assert await handle.append(b"c") == 2
            assert [record.payload async for record in handle.scan()] == [b"a", b"b", b"c"]
        with pytest.raises(latewood.UnavailableError):
            async with await latewood.connect_async(cluster.seeds, timeout_ms=1_000) as stranger:
                await stranger.partition(PARTITION).append(b"in plain text")

    with ClusterProcesses(tmp_path, extra=extra) as cluster:
        asyncio.run(story(cluster))


def fetched(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        raw: bytes = answer.read()
    return raw.decode()


def test_a_monitor_sees_every_partition_and_the_whole(tmp_path: Path) -> None:
    async def story(cluster: ClusterProcesses) -> None:
        async with await latewood.connect_async(cluster.seeds) as client:
            await client.partition(PARTITION).append_many([b"a", b"b", b"c"])

    (port,) = free_ports(1)
    with ClusterProcesses(tmp_path, count=1) as cluster:
        cluster.nodes[1].end()
        cluster.nodes[1].start("--metrics", f"127.0.0.1:{port}")
        asyncio.run(story(cluster))
        lines = fetched(port, "/metrics").splitlines()
        samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert samples["latewood_raft_is_leader"] == "1"
        assert samples["latewood_partitions"] == "1"
        assert samples[f'latewood_partition_applied_index{{partition="{PARTITION}"}}'] == "3"
        assert samples[f'latewood_partition_durable_index{{partition="{PARTITION}"}}'] == "3"
        names = {name.partition("{")[0] for name in samples}
        told = {line.split()[2] for line in lines if line.startswith("# TYPE")}
        assert names <= told
        assert fetched(port, "/healthz") == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            fetched(port, "/")
        refused.value.close()  # It is an answer too, which holds a file.
