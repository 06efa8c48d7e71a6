"""One record of a database."""

from collections.abc import Iterator
from typing import Any, NamedTuple


class DatabaseRecord(NamedTuple):
    """A record, with its shard and its key."""

    shard: int
    sequence: int
    timestamp_ns: int
    ext_id: int
    key: bytes | None
    payload: bytes


def records_of(shard: int, batches: Iterator[Any]) -> Iterator[DatabaseRecord]:
    """Yield the records of a shard's Arrow batches."""
    for batch in batches:
        names = batch.schema.names
        times = batch.column("timestamp").view("int64").to_pylist()
        keys = batch.column("key").to_pylist() if "key" in names else [None] * batch.num_rows
        rows = zip(
            batch.column("sequence").to_pylist(),
            times,
            batch.column("ext_id").to_pylist(),
            keys,
            batch.column("payload").to_pylist(),
            strict=True,
        )
        for row in rows:
            yield DatabaseRecord(shard, *row)
