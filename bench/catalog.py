"""`python bench/catalog.py`: what the catalog can do, against LMDB itself with one transaction a commit.

How to read it: bench/README.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if not __package__:  # Run as a script: its folder's modules have one name, here and in the workers.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.claims import FULL, Effort
from bench.contest import Bound, Claim, Rival, Target
from bench.measure import MiB
from bench.processes import Job
from bench.runner import main


def claims(effort: Effort) -> list[Claim]:
    """Return every claim, in the order of the table."""
    return [*_commits(effort), _loop_commits(effort), _wake(effort), *_recoveries(effort), _feed(effort)]


def _job(workload: str, **arguments: Any) -> Job:
    return Job(f"catalog_work:{workload}", arguments)


def _commits(effort: Effort) -> Iterator[Claim]:
    for producers, target in ((1, Target("at most", 1.3)), (8, None), (64, Target("at least", 10))):
        count = max(8, (800 if effort is FULL else 200) // producers)
        yield Claim(
            name=f"commit-{producers}",
            title=f"durable commits of {producers} producer{'s' * (producers > 1)}",
            unit="rate",
            native=_job("Commits", producers=producers, count=count if producers == 1 else 4 * count),
            pure=None,
            rounds=effort.durable_rounds if producers == 1 else effort.rounds,
            bounds=[Bound("p50", "p50_ns", None, unit="time"), Bound("p99", "p99_ns", None, unit="time")],
            rivals=[
                Rival("py-lmdb, a txn each", "peers", _job("RawCommits", producers=producers, count=count), target)
            ],
        )


def _loop_commits(effort: Effort) -> Claim:
    producers, count = 64, max(8, (800 if effort is FULL else 200) // 64)
    raw = _job("RawCommits", producers=producers, count=count)
    return Claim(
        name="commit-loop-64",
        title="durable commits of 64 asyncio producers",
        unit="rate",
        native=_job("LoopCommits", producers=producers, count=16 * count),
        pure=None,
        rounds=effort.rounds,
        bounds=[Bound("p50", "p50_ns", None, unit="time"), Bound("p99", "p99_ns", None, unit="time")],
        rivals=[Rival("py-lmdb, a txn each, in threads", "peers", raw, Target("at least", 10))],
    )


def _wake(effort: Effort) -> Claim:
    return Claim(
        name="wake",
        title="commit to the end of wait_for_generation, p50",
        unit="time",
        native=_job("Wake", count=300 if effort is FULL else 100),
        pure=None,
        rounds=effort.rounds,
        bounds=[Bound("p99", "p99_ns", None)],
        rivals=[Rival("threading.Event, p50", "peers", _job("RawWake", count=300))],
        note="from the commit's return",
    )


def _recoveries(effort: Effort) -> Iterator[Claim]:
    sizes = ((100, 100), (10_000, 1_000), (1_000_000, 100_000)) if effort is FULL else ((100, 100), (10_000, 1_000))
    for chunks, jobs in sizes:
        yield Claim(
            name=f"recover-{chunks}",
            title=f"open and recover {chunks:,} chunks, {jobs:,} jobs",
            unit="time",
            native=_job("Recover", chunks=chunks, jobs=jobs),
            pure=None,
            rounds=3 if chunks <= 10_000 else 1,
            bounds=[
                Bound("a row", "row_ns", None),
                Bound("growth of own memory", "own_bytes", Target("at most", 32 * MiB), unit="bytes"),
            ],
            rivals=[Rival("py-lmdb, a cursor over the same rows", "peers", _job("RawScan", chunks=chunks, jobs=jobs))],
        )


def _feed(effort: Effort) -> Claim:
    return Claim(
        name="feed",
        title="changes read by a cursor",
        unit="rate",
        native=_job("Feed", changes=100_000 if effort is FULL else 20_000),
        pure=None,
        rounds=effort.rounds,
    )


if __name__ == "__main__":
    sys.exit(main(claims, (__doc__ or "").splitlines()[0]))
