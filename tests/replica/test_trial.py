"""The guide's five minutes, for real: `cluster init`, three `serve`, a client, a leader that dies, a fourth node."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import latewood
from latewood.errors import ClusterUnavailable, LatewoodError
from latewood.replica.client.synchronous import Client
from latewood.replica.tls import client_context
from latewood.replica.trial import load_cluster
from tests.patience import wait_until
from tests.replica.processes import SOURCES, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.needs("native")]
_TRIES: Final = 5


class Trial:
    """A cluster that the command line made."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory, self._flags = directory, flags
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.port = _free_row()
        self.init(3)

    def run(self, *arguments: str, code: int = 0) -> list[Any]:
        """Run a command and return the JSON that it prints."""
        command = [sys.executable, "-m", "latewood.cli", "cluster", *arguments]
        done = subprocess.run(command, capture_output=True, env=_environment(), check=False, timeout=120)
        assert done.returncode == code, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def init(self, nodes: int) -> None:
        self.run("init", str(self.directory), "--port", str(self.port), "--nodes", str(nodes), *self._flags)

    def serve(self, node: int) -> None:
        """Start a node, and wait until it serves."""
        config = self.directory / f"node-{node}" / "node.toml"
        command = [sys.executable, "-m", "latewood.cli", "serve", "-v", "--config", str(config), "--metrics", ""]
        with config.with_suffix(".log").open("ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=_environment())
        self.running[node] = process
        assert process.stdout is not None
        assert process.stdout.readline(), config.with_suffix(".log").read_text()

    def end(self, node: int, number: int) -> None:
        process = self.running.pop(node)
        process.send_signal(number)
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()

    def connect(self, **options: Any) -> Client:
        cluster = load_cluster(self.directory)
        tls = client_context(cluster.tls) if cluster.tls else None
        return latewood.connect(list(cluster.nodes.values()), tls=tls, cluster_id=cluster.cluster_id, **options)

    def status(self, code: int = 0) -> dict[str, Any]:
        (found,) = self.run("status", str(self.directory), code=code)
        assert isinstance(found, dict)
        return found


@contextmanager
def trial(directory: Path, *flags: str) -> Iterator[Trial]:
    made = Trial(directory / "c", *flags)
    try:
        for node in (1, 2, 3):
            made.serve(node)
        yield made
    finally:
        for node in list(made.running):
            made.end(node, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCES)}


def _free_row() -> int:
    """Return a port with four free ones after it."""
    for _ in range(_TRIES):
        (port,) = free_ports(1)
        if port < 60_000 and not _are_taken(port):
            return port
    message = "no four ports in a row are free"
    raise AssertionError(message)


def _are_taken(port: int) -> bool:
    import socket  # noqa: PLC0415 - only here

    for one in range(port + 1, port + 5):
        try:
            socket.create_server(("127.0.0.1", one)).close()
        except OSError:
            return True
    return False


def leader_of(client: Client) -> int:
    """Return who leads, once somebody does."""
    found = [0]

    def is_led() -> bool:
        try:
            found[0] = client.status().leader
        except LatewoodError:
            return False
        return found[0] != 0

    wait_until(is_led)
    return found[0]


def test_a_trial_with_tls_survives_its_leader(tmp_path: Path) -> None:
    with trial(tmp_path, "--tls") as cluster, cluster.connect() as client:
        partition = client.partition(7)
        assert partition.append(b"first") == 0
        assert cluster.status()["is_led"]
        written: list[int] = []
        enough, stop = threading.Event(), threading.Event()

        def write() -> None:
            while not stop.is_set():
                written.append(partition.append(b"%d" % len(written)))
                if len(written) == 20:
                    enough.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert enough.wait(60)
            dead = leader_of(client)
            cluster.end(dead, signal.SIGKILL)
            count = len(written)
            wait_until(lambda: len(written) > count + 20)
        finally:
            stop.set()
            writer.join()
        assert written == list(range(1, len(written) + 1))
        found = [record.payload for record in partition.scan()]
        assert found == [b"first", *(b"%d" % number for number in range(len(written)))]
        (gone,) = [one for one in cluster.status()["nodes"] if one["problem"]]
        assert gone["node"] == dead
        cluster.serve(dead)
        assert client.barrier(address=load_cluster(cluster.directory).nodes[dead]) > 0


def test_a_client_without_a_certificate_is_not_served(tmp_path: Path) -> None:
    with trial(tmp_path, "--tls") as cluster:
        addresses = list(load_cluster(cluster.directory).nodes.values())
        with latewood.connect(addresses, timeout_ms=500) as stranger, pytest.raises(ClusterUnavailable):
            stranger.partition(7).append(b"x")


def test_members_and_leader_change_by_command(tmp_path: Path) -> None:
    with trial(tmp_path) as cluster, cluster.connect() as client:
        where = str(cluster.directory)
        client.partition(7).append_many([b"%d" % number for number in range(2_000)])
        cluster.init(4)
        cluster.serve(4)
        address = load_cluster(cluster.directory).nodes[4]
        (members,) = cluster.run("add", where, "4", address)
        assert members["voters"] == [1, 2, 3, 4]
        with pytest.raises(latewood.UsageError, match="votes already"):
            client.add_node(4, address, learner=True)
        assert client.barrier(address=address) > 0
        assert [info.next_sequence for info in client.partitions([7], address)] == [2_000]
        old = leader_of(client)
        new = next(node for node in (1, 2, 3) if node != old)
        cluster.run("transfer-leader", where, str(new))
        wait_until(lambda: leader_of(client) == new)
        (members,) = cluster.run("remove", where, str(old))
        assert old not in members["voters"]
        assert client.partition(7).append(b"after") == 2_000
        (partition,) = cluster.run("status", where, "--partitions")
        assert partition["next_sequence"] == 2_001


def test_readers_are_the_clusters(tmp_path: Path) -> None:
    with trial(tmp_path) as cluster, cluster.connect() as client:
        client.partition(7).append_many([b"a", b"b", b"c"])
        with client.partition(7).reader("billing") as reader:
            assert [record.payload for record in reader.poll(2)] == [b"a", b"b"]
            reader.commit()
        cluster.end(leader_of(client), signal.SIGTERM)
        with cluster.connect() as other, other.partition(7).reader("billing") as reader:
            assert (reader.sequence, reader.lag()) == (2, 1)
            assert [record.payload for record in reader] == [b"c"]
            assert reader.poll(timeout=0.05) == []
            other.partition(7).append(b"d")
            assert [record.payload for record in reader.poll(timeout=None)] == [b"d"]
