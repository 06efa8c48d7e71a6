"""The least that a streaming source in Python can be: rows out of nothing.  What it costs, Spark costs."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

# ruff: noqa: N802 - the names are Spark's

NAME: Final = "made-up"


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
