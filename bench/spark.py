"""`python bench/spark.py`: what Spark can do with a log, against Parquet files of the same rows in the same session.

How to read it: bench/README.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

if not __package__:  # Run as a script: its folder's modules have one name, here and in the workers.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.claims import FULL, Effort
from bench.contest import Claim, Rival, Target
from bench.processes import Job
from bench.runner import main

ROWS_IN_A_BATCH: Final = 1000


def claims(effort: Effort) -> list[Claim]:
    """Return every claim, in the order of the table."""
    return [*_queries(effort), _count(effort), _stream(effort), _write(effort), *_verify(effort), _flush(effort)]


def _job(workload: str, **arguments: Any) -> Job:
    return Job(f"spark_work:{workload}", arguments)


def _records(effort: Effort) -> int:
    return 4_000_000 if effort is FULL else 1_000_000


def _queries(effort: Effort) -> Iterator[Claim]:
    for name, query, title, columns, ratio in (
        ("sum", "sum payload", "sum over the payload", "", 2.0),
        ("group", "group payload", "groupBy, sum over the payload", "", 1.6),
        ("columns-sum", "sum payload", "sum over the payload, columns=payload", "payload", 1.25),
        ("columns-group", "group payload", "groupBy, columns=ext_id,payload", "ext_id,payload", 1.25),
        ("columns-short", "group length", "groupBy, columns=ext_id,length", "ext_id,length", 1.25),
        ("columns-one", "sum length", "sum, columns=length", "length", 1.25),
    ):
        records = _records(effort)
        of = {"records": records, "query": query}
        ready = _job("Query", **of, source="ready-made", columns=columns)
        yield _against_parquet(
            name,
            f"{title}: {records:,} records" if name == "sum" else title,
            _job("Query", **of, source="latewood", columns=columns),
            _job("Query", **of, source="parquet"),
            effort,
            ratio,
            # What any source in Python costs, if it has nothing to read.
            *([Rival("ready-made batches from Python", "native", ready)] if columns else []),
        )


def _count(effort: Effort) -> Claim:
    ours, theirs = (_job("Count", records=_records(effort), source=source) for source in ("latewood", "parquet"))
    return _against_parquet("count", "count", ours, theirs, effort, 1.0)


def _write(effort: Effort) -> Claim:
    records = _records(effort) // 2
    ours, theirs = (_job("Write", records=records, target=target) for target in ("latewood", "parquet"))
    return _against_parquet("write", f"write of {records:,} records", ours, theirs, effort, 1.5)


def _verify(effort: Effort) -> Iterator[Claim]:
    records = _records(effort)
    for name, ours, theirs in (("log", "log", "parquet"), ("chunks", "chunks", "plain")):
        yield _against_parquet(
            f"verify-{name}",
            f"verify of {records:,} records: {name}",
            _maintenance("Verify", records=records, source=ours),
            _maintenance("Verify", records=records, source=theirs),
            effort,
            1.3,
        )


def _flush(effort: Effort) -> Claim:
    records = _records(effort) // 2
    ours, theirs = (_maintenance("Flush", records=records, source=source) for source in ("latewood", "parquet"))
    return _against_parquet("flush", f"flush of {records:,} records", ours, theirs, effort, 1.3)


def _maintenance(workload: str, **arguments: Any) -> Job:
    return Job(f"spark_jobs_work:{workload}", arguments)


def _against_parquet(
    name: str, title: str, ours: Job, theirs: Job, effort: Effort, ratio: float, *others: Rival
) -> Claim:
    return Claim(
        name=name,
        title=title,
        unit="time",
        native=ours,
        pure=None,
        rounds=effort.rounds,
        rivals=[Rival("Spark's Parquet", "native", theirs, Target("at most", ratio)), *others],
    )


def _stream(effort: Effort) -> Claim:
    def job(source: str) -> Job:
        return _job("Stream", rows=ROWS_IN_A_BATCH, micro_batches=4 * effort.rounds, source=source)

    return Claim(
        name="stream",
        title=f"a micro-batch of {ROWS_IN_A_BATCH:,} rows, to nowhere",
        unit="time",
        native=job("latewood"),
        pure=None,
        rounds=effort.rounds,
        rivals=[
            Rival("Spark's own made-up rows", "native", job("rate"), Target("at most", 1.2)),
            Rival("made-up rows from Python", "native", job("python")),
        ],
    )


if __name__ == "__main__":
    sys.exit(main(claims, (__doc__ or "").splitlines()[0]))
