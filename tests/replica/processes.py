"""A cluster of real processes on this machine: configurations, nodes that can be killed, and where they listen."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from latewood.clock import SystemClock
from latewood.errors import LatewoodError
from latewood.fs import PosixFS
from latewood.log import Log
from latewood.replica.config import load_config
from latewood.replica.founding import found_node
from tests.replica.network import Network

SOURCES: Final = Path(__file__).parents[2] / "src"
TICK_MS: Final = 30
SERVES_S: Final = 120.0
"""So long a node may take until it serves."""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def first_sequence(root: Path, node: int, partition: int) -> int:
    """Return the oldest record in a node's files of a partition; 0 if they are just being made."""
    for path in (root / f"data-{node}" / "partitions").glob(f"{partition}-*"):
        with suppress(LatewoodError), Log.open(path, mode="r") as log:
            return log.first_sequence
    return 0


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def flip_a_bit(directory: Path, at: int = 5_000) -> Path:
    """Flip a bit of the first segment below a directory, in place, as a disk would; its writer may be at work."""
    segment = min(directory.rglob("0*.q"))
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    return segment


class NodeProcess:
    """One node, perhaps running."""

    def __init__(self, config: Path, listen: str) -> None:
        self.config, self.listen = config, listen
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        """Start it, and wait until it says that it serves."""
        environment = dict(os.environ) | {"PYTHONPATH": f"{SOURCES}{os.pathsep}{self.config.parent}"}
        command = [sys.executable, "-m", "latewood.cli", "serve", "-v", "--config", str(self.config), *flags]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], SERVES_S)[0], self.log.read_text()
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        assert json.loads(line)["port"] == port_of(self.listen)

    @property
    def log(self) -> Path:
        return self.config.with_suffix(".log")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut of the process would."""
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal, and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        code = process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
        return code


class ClusterProcesses:
    """Some nodes.  Use it as a context manager: none is left behind.

    With a network, all of them and all clients reach a node only through that.
    """

    def __init__(
        self,
        root: Path,
        count: int = 3,
        extra: str = "",
        *,
        spare: int = 0,
        top: str = "",
        network: Network | None = None,
    ) -> None:
        """`extra` are tables of each node's configuration, `top` keys in front of them; NODE is the node's number."""
        ports = dict(enumerate(free_ports(count + spare), 1))
        listen = {node: f"127.0.0.1:{port}" for node, port in ports.items()}
        self.addresses = {node: network.front(node, port) for node, port in ports.items()} if network else listen
        first = {node: self.addresses[node] for node in range(1, count + 1)}
        self.network = network
        self.nodes: dict[int, NodeProcess] = {}
        for node, address in self.addresses.items():
            config = root / f"node-{node}.toml"
            peers = "\n".join(f'{key} = "{value}"' for key, value in first.items())
            config.write_text(
                f'cluster_id = "trial"\nnode_id = {node}\ndata = "data-{node}"\n'
                f'listen = "{listen[node]}"\nadvertise = "{address}"\n'
                f"{top.replace('NODE', str(node))}\n"
                f"[peers]\n{peers}\n[raft]\ntick_ms = {TICK_MS}\n{extra.replace('NODE', str(node))}\n"
            )
            self.nodes[node] = NodeProcess(config, listen[node])
            if node in first:
                found_node(load_config(config), PosixFS(), SystemClock())
        self.first = list(first)

    def __enter__(self) -> Self:
        for node in self.first:
            self.nodes[node].start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()

    def replace(self, old: int, new: int) -> NodeProcess:
        """Give a node that is stopped another id and another directory, as whoever replaces it does."""
        node = self.nodes[new] = self.nodes.pop(old)
        self.addresses[new] = self.addresses.pop(old)
        self.first[self.first.index(old)] = new
        if self.network is not None:
            self.network.alias(new, old)
        text = node.config.read_text()
        text = text.replace(f"node_id = {old}\n", f"node_id = {new}\n").replace(f'"data-{old}"', f'"data-{new}"')
        node.config.write_text(text)
        return node

    @property
    def seeds(self) -> list[str]:
        return [self.addresses[node] for node in self.first]

    def logs(self) -> dict[int, Any]:
        """Return what each node said, for a test that fails."""
        return {node: one.log.read_text() for node, one in self.nodes.items() if one.log.exists()}
