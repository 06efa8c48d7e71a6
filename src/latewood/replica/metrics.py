"""`/metrics`: a node in Prometheus' text format, per partition and as a whole.

Partitions beyond the first `PARTITIONS_MAX` are only in the sums: a page must stay readable.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from latewood.errors import UnavailableError
from latewood.replica.addresses import split_address
from latewood.replica.core import Core
from latewood.replica.engine import Role
from latewood.replica.figures import first_sequence, partition_count
from latewood.replica.partition import PartitionLogStore
from latewood.replica.requests import PARTITION_MAX

if TYPE_CHECKING:
    from latewood.replica.node import Node

PARTITIONS_MAX: Final = 10_000
_REQUEST_BYTES_MAX: Final = 16_384
_REQUEST_S: Final = 5.0
_PREFIX: Final = "latewood_"


class _Metric(NamedTuple):
    name: str
    kind: str
    help: str
    samples: list[tuple[str, float]]


async def serve_metrics(node: "Node", address: str) -> asyncio.Server:
    """Answer GET /metrics and GET /healthz at an address.

    Raises:
        UnavailableError: the address cannot be had.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                if node.core is not None:
                    await node.core.ours()
                status, body = _page(node, head.split(b" ", 2))
                writer.write(
                    b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n"
                    b"Connection: close\r\n\r\n" % (status, len(body))
                )
                writer.write(body)
                await writer.drain()
        writer.close()

    host, port = split_address(address)
    try:
        return await asyncio.start_server(answer, host, port, limit=_REQUEST_BYTES_MAX)
    except OSError as error:
        message = f"cannot serve metrics on {address}: {error.strerror or error}; --metrics chooses another address"
        raise UnavailableError(message) from error


def metrics_text(node: "Node") -> str:
    """Return the page."""
    core = node.core
    metrics = _whole(node, core) + (_of_partitions(core) if core is not None and not core.is_at_work else [])
    return "".join(_lines(metrics))


def _page(node: "Node", head: list[bytes]) -> tuple[bytes, bytes]:
    if head[:2] == [b"GET", b"/metrics"]:
        return b"200 OK", metrics_text(node).encode()
    if head[:2] == [b"GET", b"/healthz"]:
        leader = node.leader()[0]
        return (b"200 OK", b"ok\n") if leader else (b"503 Service Unavailable", b"no leader\n")
    return b"404 Not Found", b"there is /metrics and /healthz\n"


def _whole(node: "Node", core: Core | None) -> list[_Metric]:
    metrics = [
        _gauge("up", "Whether the storage is open.", core is not None),
        _counter("admission_rejects_total", "Requests that were refused.", node.service.refused_count),
        _gauge("connections", "Connections that others have made.", node.transport.connection_count),
    ]
    if core is None or core.is_at_work:
        return metrics
    engine, marks = core.engine.status(), core.parts.watermarks
    load = core.parts.dispatcher.whole()
    age_ms = 0.0 if load.oldest_ns is None else max(0, node.now_ns() - load.oldest_ns) / 1e6
    return [
        *metrics,
        _gauge("raft_is_leader", "Whether this node leads.", engine.role == Role.LEADER),
        _gauge("raft_leader", "Who leads; 0: nobody.", engine.leader),
        _gauge("raft_term", "The term.", engine.term),
        _gauge("raft_commit_index", "Entries up to here are committed.", engine.commit),
        _gauge("raft_last_index", "The newest entry.", engine.last),
        _gauge("raft_members", "Nodes that take part.", len(engine.conf.members)),
        _gauge("parent_first_index", "The oldest entry that is kept.", core.store.first_index),
        _gauge("parent_durable_index", "Entries up to here are durable here.", core.store.durable_index),
        _gauge("routed_index", "Entries up to here have come to their partitions.", marks.routed),
        _gauge("applied_floor", "Entries up to here are applied in every partition.", marks.applied_floor()),
        _gauge("required_index", "The oldest entry that is still needed.", core.machine.truncatable_to() + 1),
        _gauge("snapshot_index", "The newest snapshot stands here.", marks.snapshot_global),
        _counter("snapshots_failed_total", "Snapshots that were due and could not be taken.", _failed(node)),
        _gauge("machines_hung", "Machines that have been at one call for too long.", len(core.parts.applier.hung())),
        _gauge("partitions", "Partitions of users.", partition_count(core)),
        _gauge("enqueued_ops", "Records that were taken and are not applied.", load.ops),
        _gauge("enqueued_bytes", "Their payloads.", load.bytes),
        _gauge("backlog_age_ms", "How long the oldest of them has waited.", age_ms),
        _counter("parent_syncs_total", "Syncs of the parent log.", core.guard.sync_count),
        _counter("parent_sync_seconds_total", "The time they took.", core.guard.sync_s),
        _Metric(
            "raft_match_index",
            "gauge",
            "Entries up to here are on a node, as the leader knows.",
            [(f'{{node="{one.node}"}}', one.match) for one in engine.progress],
        ),
    ]


def _failed(node: "Node") -> int:
    return node.keeper.failed_count if node.keeper else 0


def _of_partitions(core: Core) -> list[_Metric]:
    names = {
        "partition_enqueued_ops": "Records of a partition that were taken and are not applied.",
        "partition_enqueued_bytes": "Their payloads.",
        "partition_backlog_age_ms": "How long the oldest of them has waited.",
        "partition_first_sequence": "The oldest record of a partition that may be read.",
        "partition_durable_index": "Records of a partition up to here are durable here.",
        "partition_applied_index": "Records of a partition up to here are applied.",
        "partition_applied_global": "The parent entry that was applied last.",
        "partition_frozen": "Whether a partition takes nothing, because it is paused.",
        "partition_throttled": "Whether a partition takes nothing, because it lags.",
    }
    columns: dict[str, list[tuple[str, float]]] = {name: [] for name in names}
    for place, partition in enumerate(core.parts.roster):
        if place < PARTITIONS_MAX and partition.partition_id <= PARTITION_MAX:
            label = f'{{partition="{partition.partition_id}"}}'
            for name, value in zip(names, _figures(core, partition), strict=True):
                columns[name].append((label, value))
    return [_Metric(name, "gauge", text, columns[name]) for name, text in names.items()]


def _figures(core: Core, partition: PartitionLogStore) -> list[float]:
    dispatcher, marks, partition_id = core.parts.dispatcher, core.parts.watermarks, partition.partition_id
    load = dispatcher.load(partition_id)
    age_ms = 0.0 if load.oldest_ns is None else max(0, core.parts.clock.now_ns() - load.oldest_ns) / 1e6
    if partition_id not in marks:
        return [load.ops, load.bytes, age_ms, 0, 0, 0, 0, 0, 0]
    progress = marks[partition_id]
    at = (progress.durable_index, progress.applied_index, progress.applied_global)
    flags = (dispatcher.is_frozen(partition_id), dispatcher.is_throttled(partition_id))
    return [load.ops, load.bytes, age_ms, first_sequence(core, partition), *at, *flags]


def _gauge(name: str, text: str, value: float) -> _Metric:
    return _Metric(name, "gauge", text, [("", value)])


def _counter(name: str, text: str, value: float) -> _Metric:
    return _Metric(name, "counter", text, [("", value)])


def _lines(metrics: Iterable[_Metric]) -> Iterator[str]:
    for name, kind, text, samples in metrics:
        yield f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} {kind}\n"
        for label, value in samples:
            yield f"{_PREFIX}{name}{label} {float(value):.15g}\n"
