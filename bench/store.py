"""`python bench/store.py`: what a store can do, against pyarrow with the same rows in plain Parquet files.

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
from bench.measure import MiB
from bench.processes import Job
from bench.runner import main

PAYLOAD_BYTES: Final = 100
TIERS: Final = ["archive", "chunks", "log"]
_FLAT: Final = Bound("growth of own memory", "own_bytes", Target("at most", 64 * MiB), unit="bytes")


def claims(effort: Effort) -> list[Claim]:
    """Return every claim, in the order of the table."""
    return [_flush(effort), _scan(effort), *_tiers(effort), _each(effort), *_append(effort)]


def _job(workload: str, records: int, **arguments: Any) -> Job:
    return Job(f"store_work:{workload}", {"records": records, "payload_bytes": PAYLOAD_BYTES, **arguments})


def _flush(effort: Effort) -> Claim:
    records = 2_000_000 if effort is FULL else 500_000
    return Claim(
        name="flush",
        title=f"flush of {records:,} records, 100 B and a key",
        unit="rate",
        native=_job("Flush", records),
        pure=None,
        rounds=effort.rounds,
        bounds=[_FLAT],
        rivals=[
            Rival("pyarrow, from memory, synced", "peers", _job("WriteParquet", records), Target("at least", 0.5)),
        ],
    )


def _scan(effort: Effort) -> Claim:
    records = 9_999_999 if effort is FULL else 999_999  # A third in each tier.
    return Claim(
        name="scan",
        title=f"scan of {records:,} records: archive, chunks, log",
        unit="rate",
        native=_job("Scan", records, tiers=TIERS),
        pure=None,
        rounds=effort.rounds,
        bounds=[_FLAT],
        rivals=[
            Rival("pyarrow, batches of files", "peers", _job("ReadParquet", records), Target("at most", 1.3)),
            Rival("pyarrow, a dataset", "peers", _job("ReadParquet", records, how="dataset")),
        ],
    )


def _tiers(effort: Effort) -> Iterator[Claim]:
    records = 2_000_000 if effort is FULL else 500_000
    for tier in TIERS:
        yield Claim(
            name=f"tier-{tier}",
            title=f"scan of {records:,} records: {tier} only",
            unit="rate",
            native=_job("Scan", records, tiers=[tier]),
            pure=None,
            rounds=effort.rounds,
            bounds=[_FLAT._replace(target=None)],
            rivals=[Rival("pyarrow, batches of files", "peers", _job("ReadParquet", records))],
        )


def _each(effort: Effort) -> Claim:
    records = 600_000 if effort is FULL else 150_000
    return Claim(
        name="records",
        title="the same, record by record",
        unit="time",
        native=_job("Scan", records, tiers=TIERS, one_by_one=True),
        pure=None,
        rounds=effort.rounds,
        rivals=[Rival("pyarrow, tuples of to_pylist", "peers", _job("ReadParquet", records, how="rows"))],
    )


def _append(effort: Effort) -> Iterator[Claim]:
    records = 500_000 if effort is FULL else 200_000
    for shards in (1, 4):
        yield Claim(
            name=f"append-{shards}",
            title=f"append_many with keys, {shards} shard{'s' * (shards > 1)}, a record",
            unit="time",
            native=_job("AppendKeyed", records, shards=shards),
            pure=None,
            rounds=effort.rounds,
            rivals=[
                Rival(
                    "plain logs, the same bytes",
                    "native",
                    _job("AppendPlain", records, logs=shards),
                    Target("at most", 2),
                    figure="process_ns",
                )
            ],
            note="by CPU",
        )


if __name__ == "__main__":
    sys.exit(main(claims, (__doc__ or "").splitlines()[0]))
