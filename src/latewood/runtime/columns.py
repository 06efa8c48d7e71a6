"""Records of a database as Arrow columns.  Imported only by whoever asks for Arrow, which takes its time to load."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from latewood.archive.chunk import memory_schema

_SHARD = pa.field("shard", pa.int32(), nullable=False)


def database_schema(*, keyed: bool) -> Any:
    """Return the columns of a database: its shard, then those of a record."""
    return memory_schema(keyed=keyed).insert(0, _SHARD)


def with_shard(batch: Any, number: int, wanted: Sequence[str]) -> Any:
    """Return the wanted columns of a shard's batch, the number of the shard among them."""
    count = batch.num_rows
    shard = pa.repeat(pa.scalar(number, pa.int32()), count) if count else pa.nulls(0, pa.int32())
    arrays = [shard if name == "shard" else batch.column(name) for name in wanted]
    fields = [_SHARD if name == "shard" else batch.schema.field(name) for name in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def table(batches: Iterable[Any], schema: Any, wanted: Sequence[str]) -> Any:
    """Return batches with the wanted columns of a schema as one table."""
    return pa.Table.from_batches(batches, schema=pa.schema([schema.field(name) for name in wanted]))
