"""A cluster of real processes on this machine: configurations, nodes that can be killed, and where they listen."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from latewood.clock import SystemClock
from latewood.fs import PosixFS
from latewood.replica.config import load_config
from latewood.replica.founding import found_node

SOURCES: Final = Path(__file__).parents[2] / "src"
TICK_MS: Final = 30


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


class NodeProcess:
    """One node, perhaps running."""

    def __init__(self, config: Path, address: str) -> None:
        self.config, self.address = config, address
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        """Start it, and wait until it says that it serves."""
        environment = dict(os.environ) | {"PYTHONPATH": str(SOURCES)}
        command = [sys.executable, "-m", "latewood.cli", "serve", "-v", "--config", str(self.config), *flags]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        assert json.loads(line)["port"] == int(self.address.rpartition(":")[2])

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
    """Some nodes.  Use it as a context manager: none is left behind."""

    def __init__(self, root: Path, count: int = 3, extra: str = "", *, spare: int = 0) -> None:
        ports = free_ports(count + spare)
        self.addresses = {node: f"127.0.0.1:{port}" for node, port in enumerate(ports, 1)}
        first = {node: self.addresses[node] for node in range(1, count + 1)}
        self.nodes: dict[int, NodeProcess] = {}
        for node, address in self.addresses.items():
            config = root / f"node-{node}.toml"
            peers = "\n".join(f'{key} = "{value}"' for key, value in first.items())
            config.write_text(
                f'cluster_id = "trial"\nnode_id = {node}\ndata = "data-{node}"\nlisten = "{address}"\n'
                f"[peers]\n{peers}\n[raft]\ntick_ms = {TICK_MS}\n{extra.replace('NODE', str(node))}\n"
            )
            self.nodes[node] = NodeProcess(config, address)
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

    @property
    def seeds(self) -> list[str]:
        return [self.addresses[node] for node in self.first]

    def logs(self) -> dict[int, Any]:
        """Return what each node said, for a test that fails."""
        return {node: one.log.read_text() for node, one in self.nodes.items() if one.log.exists()}
