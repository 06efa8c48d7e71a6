"""The least that a source in Python can be: rows out of nothing, streamed or read.  What it costs, Spark costs."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

# ruff: noqa: N802 - the names are Spark's

NAME: Final = "made-up"
READY: Final = "ready-made"
TYPES: Final = {
    "ext_id": ("BIGINT", pa.int64()),
    "length": ("INT", pa.int32()),
    "payload": ("BINARY", pa.binary()),
}


class MadeUpSource(DataSource):
    """Numbers, as many in each batch as the option `rows` says."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "sequence BIGINT"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        del schema
        return MadeUpReader(int(self.options["rows"]))


class MadeUpReader(DataSourceStreamReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        del limit
        return {"at": start["at"] + self._rows}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        start, stop = partition.value
        yield pa.RecordBatch.from_arrays([pa.array(range(start, stop), pa.int64())], names=["sequence"])


class ReadySource(DataSource):
    """Batches that are there already: `records` in all, `groups` values of `ext_id`, payloads of `payload_bytes`.

    `columns`, `rows` in a batch and `tasks` are as the log's own source would have them, so the rest is Spark's.
    """

    @classmethod
    def name(cls) -> str:
        return READY

    def schema(self) -> str:
        return ", ".join(f"{name} {TYPES[name][0]} NOT NULL" for name in self.options["columns"].split(","))

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        numbers = {name: int(self.options[name]) for name in ("records", "rows", "tasks", "groups", "payload_bytes")}
        return ReadyReader(tuple(self.options["columns"].split(",")), **numbers)


class ReadyReader(DataSourceReader):
    def __init__(
        self, columns: tuple[str, ...], *, records: int, rows: int, tasks: int, groups: int, payload_bytes: int
    ) -> None:
        self._columns, self._records, self._rows, self._tasks = columns, records, rows, tasks
        self._groups, self._payload_bytes = groups, payload_bytes

    def partitions(self) -> Sequence[InputPartition]:
        edges = [self._records * number // self._tasks for number in range(self._tasks + 1)]
        return [InputPartition(after - before) for before, after in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = ready_batch(self._columns, self._rows, self._groups, self._payload_bytes)
        for at in range(0, partition.value, self._rows):
            yield batch.slice(0, partition.value - at)


@cache
def ready_batch(columns: tuple[str, ...], rows: int, groups: int, payload_bytes: int) -> Any:
    """Return the one batch that a process has."""
    turns = pa.concat_arrays([pa.arange(0, groups)] * (rows // groups + 1))
    arrays = {
        "ext_id": turns.slice(0, rows),
        "length": pa.repeat(pa.scalar(payload_bytes, pa.int32()), rows),
        "payload": pa.repeat(pa.scalar(bytes(payload_bytes), pa.binary()), rows),
    }
    schema = pa.schema([pa.field(name, TYPES[name][1], nullable=False) for name in columns])
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=schema)
