"""What three nodes on one machine are timed at: records that a majority has on disk, so many on the way at a time."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.cluster_nodes import Cluster, Latewood, end
from bench.cluster_peers import NATS, Etcd
from bench.measure import NANOSECONDS, Sample, percentile

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Committed:
    """Writes to a cluster in rounds."""

    def __init__(self, directory: Path, system: str, records: int, width: int, **arguments: Any) -> None:
        self._records, self._width, self._batch = records, width, arguments.get("batch", 1)
        self._cluster: Cluster = SYSTEMS[system](directory, **arguments)

    def prepare(self) -> None:
        self._cluster.begin()
        asyncio.run(self._cluster.write(min(self._records, 10 * self._width * self._batch), self._width))  # Warm.

    def round(self) -> Sample:
        cpu, begun = self._cpu_s(), time.perf_counter()
        times = asyncio.run(self._cluster.write(self._records, self._width))
        wall = time.perf_counter() - begun
        assert len(times) * self._batch == self._records
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
    """What a node of ours grows by when so many partitions are made."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self._count = partitions
        self._cluster = Latewood(directory, payload_bytes=100)

    def prepare(self) -> None:
        self._cluster.begin()

    def round(self) -> Sample:
        before = self._largest()
        asyncio.run(self._cluster.spread(self._count))
        after = self._largest()
        return {f"{name}_bytes": float(after[name] - before[name]) for name in after}

    def close(self) -> None:
        end(self._cluster)

    def _largest(self) -> dict[str, int]:
        nodes = [memory_of(process.pid) for process in self._cluster.processes]
        return {name: max(node[name] for node in nodes) for name in nodes[0]}


def memory_of(pid: int) -> dict[str, int]:
    """Return a process's bytes in memory: its own, and all with the files that it has mapped."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(status[field].split()[0]) * 1024 for name, field in (("own", "RssAnon"), ("all", "VmRSS"))}


SYSTEMS: Final[dict[str, Callable[..., Cluster]]] = {"latewood": Latewood, "nats": NATS, "etcd": Etcd}
