"""`metrics`: counters that outlive the process.

Key, `KEY_SIZE` bytes, big-endian:

| offset | size | field | type | meaning                                     |
| -----: | ---: | ----- | ---- | ------------------------------------------- |
|      0 |    4 | scope | u32  | 0 for all, else the database                |
|      4 |    4 | kind  | u32  | what is measured: a number that never changes |

Value, version 1: `MetricRecord`.  Format: docs/format/catalog.md
"""

import math
from typing import Final, NamedTuple

from latewood.catalog.tables.record import Record, Table, TupleKey
from latewood.errors import UsageError

KEY_SIZE: Final = 8
VERSION: Final = 1
BUCKETS_MAX: Final = 64


class MetricKey(NamedTuple):
    """One metric of one scope."""

    scope: int
    kind: int


class MetricDelta(Record, frozen=True, kw_only=True):
    """What came in since the last time."""

    sum: float
    count: int
    min: float
    max: float
    bucket_counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, *values: float, bucket_bounds: tuple[float, ...] = ()) -> "MetricDelta":
        """Return the delta of some measurements; bucket i counts those up to bound i, the last one the rest."""
        counts = [0] * (len(bucket_bounds) + 1 if bucket_bounds else 0)
        for value in values if bucket_bounds else ():
            counts[next((i for i, bound in enumerate(bucket_bounds) if value <= bound), len(bucket_bounds))] += 1
        return cls(sum=sum(values), count=len(values), min=min(values), max=max(values), bucket_counts=tuple(counts))


class MetricRecord(Record, frozen=True, kw_only=True):
    """The moments of all measurements so far."""

    sum: float
    count: int
    min: float
    max: float
    bucket_counts: tuple[int, ...] = ()
    updated_at_ms: int = 0


def merged(record: MetricRecord | None, delta: MetricDelta, at_ms: int) -> MetricRecord:
    """Return a metric with a delta added.

    Raises:
        UsageError: the delta is no measurement, or has other buckets.
    """
    if delta.count < 0 or not all(map(math.isfinite, (delta.sum, delta.min, delta.max))):
        message = f"no measurement: {delta}"
        raise UsageError(message)
    if len(delta.bucket_counts) > BUCKETS_MAX:
        message = f"{len(delta.bucket_counts)} buckets; at most {BUCKETS_MAX}"
        raise UsageError(message)
    if record is None or not record.count:
        return MetricRecord(
            sum=delta.sum,
            count=delta.count,
            min=delta.min,
            max=delta.max,
            bucket_counts=delta.bucket_counts,
            updated_at_ms=at_ms,
        )
    if len(delta.bucket_counts) != len(record.bucket_counts):
        message = f"{len(delta.bucket_counts)} buckets; this metric has {len(record.bucket_counts)}"
        raise UsageError(message)
    return MetricRecord(
        sum=record.sum + delta.sum,
        count=record.count + delta.count,
        min=min(record.min, delta.min),
        max=max(record.max, delta.max),
        bucket_counts=tuple(a + b for a, b in zip(record.bucket_counts, delta.bucket_counts, strict=True)),
        updated_at_ms=at_ms,
    )


METRIC: Final = Table("metrics", 9, TupleKey(">II", MetricKey), MetricRecord, version=VERSION)
