"""`python bench/cluster.py`: what three nodes on one machine can do, against NATS JetStream and etcd, all synced.

How to read it: bench/README.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

if not __package__:  # Run as a script: its folder's modules have one name, here and in the workers.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.claims import FULL, Effort
from bench.contest import Bound, Claim, Rival, Target
from bench.processes import Job
from bench.runner import main

_SIZES: Final = ((100, "100 B"), (1024, "1 KiB"))
_WIDTHS: Final = ((1, 1_000, 0.9, 0.9), (64, 8_000, None, None), (1_024, 60_000, 2.0, 5.0))
"""So many on the way, records in a round, and what is to be reached against NATS and etcd."""
_LATENCIES: Final = [Bound("p50", "p50_ns", None, unit="time"), Bound("p99", "p99_ns", None, unit="time")]
PARTITIONS: Final = 1_000


def claims(effort: Effort) -> list[Claim]:
    """Return every claim, in the order of the table."""
    return [*_committed(effort), _spread(effort), _spread(effort, batch=100), _memory()]


def _job(system: str, effort: Effort, records: int, **arguments: Any) -> Job:
    records = records if effort is FULL else max(100, records // 3)
    return Job("cluster_work:Committed", {"system": system, "records": records, **arguments})


def _committed(effort: Effort) -> Iterator[Claim]:
    for payload_bytes, size in _SIZES:
        for width, records, nats, etcd in _WIDTHS:
            count = records if payload_bytes == _SIZES[0][0] else records // 2
            arguments = {"width": width, "payload_bytes": payload_bytes}
            peers = [("NATS R3, sync always", "nats", nats), ("etcd", "etcd", etcd)]
            rivals = []
            for label, system, least in peers:
                job = _job(system, effort, count, **arguments)
                rivals.append(Rival(label, "peers", job, None if least is None else Target("at least", least)))
                rivals.append(Rival(f"{label}: p99", "peers", job, figure="p99_ns", unit="time"))
            yield Claim(
                name=f"committed-{width}-{payload_bytes}",
                title=f"committed, {width:,} in flight, {size}",
                unit="rate",
                native=_job("latewood", effort, count, **arguments),
                pure=None,
                rounds=effort.rounds,
                bounds=_LATENCIES,
                rivals=rivals,
            )


def _spread(effort: Effort, batch: int = 1) -> Claim:
    arguments = {"width": 1_024 if batch == 1 else 64, "payload_bytes": 100, "batch": batch}
    records = 60_000 if batch == 1 else 600_000
    one = _job("latewood", effort, records, **arguments)
    calls = "" if batch == 1 else f" batches of {batch}"
    return Claim(
        name="partitions" if batch == 1 else f"partitions-{batch}",
        title=f"committed, {arguments['width']:,}{calls} in flight, 100 B, {PARTITIONS:,} partitions",
        unit="rate",
        native=_job("latewood", effort, records, **arguments, partitions=PARTITIONS),
        pure=None,
        rounds=effort.rounds,
        bounds=_LATENCIES,
        rivals=[Rival("one partition", "native", one, Target("at least", 0.8))],
    )


def _memory() -> Claim:
    job = Job("cluster_work:PartitionMemory", {"partitions": PARTITIONS})
    return Claim(
        name="memory",
        title=f"memory of a node for {PARTITIONS:,} partitions more",
        unit="bytes",
        native=job,
        pure=None,
        rounds=1,
        bounds=[Bound("with its files' pages", "all_bytes", None, unit="bytes")],
    )


if __name__ == "__main__":
    sys.exit(main(claims, (__doc__ or "").splitlines()[0]))
