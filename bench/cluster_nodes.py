"""Three nodes of ours on one machine, and what starting and timing any three nodes takes."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol

from bench.payloads import payloads

NODES: Final = (1, 2, 3)
_START_S: Final = 60
_MAKING_MS: Final = 300_000
"""Nobody is to give up because the machine is busy."""


def free_ports(number: int) -> list[int]:
    """Return ports that nobody has now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in sockets]


class Cluster(Protocol):
    """Three nodes that run, and a way to write to them."""

    processes: list[subprocess.Popen[bytes]]

    def begin(self) -> None:
        """Start them, and return when a record can be written."""
        ...

    async def write(self, records: int, width: int) -> list[float]:
        """Write so many, `width` at a time; return how long each took, in seconds."""
        ...


async def in_flight(records: int, width: int, write: Callable[[int], Awaitable[object]]) -> list[float]:
    """Call `write` so many times, `width` at a time, and return how long each took."""
    numbers, times, clock = iter(range(records)), list[float](), time.perf_counter

    async def one_after_another() -> None:
        for number in numbers:
            started = clock()
            await write(number)
            times.append(clock() - started)

    await asyncio.gather(*(one_after_another() for _ in range(width)))
    return times


def started(directory: Path, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
    """Start a node; what it says goes to a file."""
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, cwd=directory)


def wait_until(ready: Callable[[], bool], directory: Path) -> None:
    """Return once `ready()`; a cluster that never is says why."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(Exception):
            if ready():
                return
        time.sleep(0.1)
    logs = "\n".join(path.read_text(errors="replace")[-2_000:] for path in sorted(directory.glob("*.log")))
    message = f"a cluster did not start within {_START_S} s:\n{logs}"
    raise RuntimeError(message)


def end(cluster: Cluster) -> None:
    """Stop the nodes."""
    for process in cluster.processes:
        process.terminate()
    for process in cluster.processes:
        process.wait()


class Latewood:
    """Three nodes of ours, plain text on loopback, everything by default."""

    def __init__(self, directory: Path, payload_bytes: int, partitions: int = 1, batch: int = 1) -> None:
        self._directory, self._partitions = directory, partitions
        self._payload, self._batch = payloads(payload_bytes)[0], batch
        self.processes: list[subprocess.Popen[bytes]] = []
        self._addresses: list[str] = []

    def begin(self) -> None:
        from latewood.clock import SystemClock  # noqa: PLC0415 - peers run in a process without it
        from latewood.fs import PosixFS  # noqa: PLC0415 - as above
        from latewood.replica.config import load_config  # noqa: PLC0415 - as above
        from latewood.replica.founding import found_node  # noqa: PLC0415 - as above

        nodes = dict(zip(NODES, (f"127.0.0.1:{port}" for port in free_ports(len(NODES))), strict=True))
        self._addresses = list(nodes.values())
        peers = "\n".join(f'{node} = "{address}"' for node, address in nodes.items())
        for node, address in nodes.items():
            config = self._directory / f"node-{node}.toml"
            own = f'cluster_id = "bench"\nnode_id = {node}\ndata = "data-{node}"\nlisten = "{address}"'
            config.write_text(f"{own}\n[peers]\n{peers}\n")
            found_node(load_config(config), PosixFS(), SystemClock())
            command = (sys.executable, "-m", "latewood.cli", "serve", "--config", config)
            self.processes.append(started(self._directory, f"node-{node}", *command))
        wait_until(self._is_led, self._directory)
        if self._partitions > 1:  # Making them is not what is timed.
            asyncio.run(self.spread(self._partitions))

    async def write(self, records: int, width: int) -> list[float]:
        import latewood  # noqa: PLC0415 - as above

        async with await latewood.connect_async(self._addresses, timeout_ms=_MAKING_MS) as client:
            parts = [client.partition(number) for number in range(self._partitions)]
            many, payload = len(parts), self._payload
            if self._batch == 1:
                return await in_flight(records, width, lambda number: parts[number % many].append(payload))
            batch = [payload] * self._batch
            calls = records // self._batch
            return await in_flight(calls, width, lambda number: parts[number % many].append_many(batch))

    async def spread(self, partitions: int) -> None:
        """Write one record to each of so many partitions."""
        import latewood  # noqa: PLC0415 - as above

        async with await latewood.connect_async(self._addresses, timeout_ms=_MAKING_MS) as client:
            await in_flight(partitions, 256, lambda number: client.partition(number).append(self._payload))

    def _is_led(self) -> bool:
        import latewood  # noqa: PLC0415 - as above

        with latewood.connect(self._addresses, timeout_ms=2_000) as client:
            return client.partition(0).append(b"first") >= 0
