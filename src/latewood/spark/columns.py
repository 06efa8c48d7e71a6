"""The columns of the table, and Arrow batches of records as Spark wants them.  Without pyspark.

Spark knows no unsigned 64-bit number: `ext_id` is the same 64 bits as a signed one, so what is above 2^63-1 shows as
negative, and nothing of it is lost.  Times are cut to microseconds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from latewood.errors import UsageError

TYPES: Final[dict[str, tuple[str, Any]]] = {
    "database": ("string", pa.string()),
    "shard": ("int", pa.int32()),
    "sequence": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "ext_id": ("bigint", pa.int64()),
    "key": ("binary", pa.binary()),
    "payload": ("binary", pa.binary()),
    "length": ("int", pa.int32()),
}
"""Name, type in SQL and in Arrow, in the order in which they stand."""

_CONSTANT: Final = ("database", "shard")
_NS_IN_US: Final = 1000


class Shape(NamedTuple):
    """What decides on the columns: whether there are keys, and whether databases stand side by side."""

    keyed: bool
    whole_store: bool


def record_columns(*, keyed: bool, whole_store: bool) -> list[str]:
    """Return the columns that there are; `length` is that of the payload."""
    absent = {*(() if keyed else ("key",)), *(() if whole_store else ("database",))}
    return [name for name in TYPES if name not in absent]


def chosen_columns(chosen: Sequence[str] | None, there: Sequence[str]) -> list[str]:
    """Return the columns to read.

    Raises:
        UsageError: one of them is not there.
    """
    for name in chosen or ():
        if name not in there:
            raise UsageError(f"there is no column {name!r}; the columns are {', '.join(there)}")
    return list(chosen or there)


def needed(columns: Sequence[str]) -> list[str]:
    """Return which columns of the log these are made from; of payloads that are read anyhow, no length is asked for."""
    absent = {*_CONSTANT, *(("length",) if "payload" in columns else ())}
    return [name for name in columns if name not in absent] or ["sequence"]


def chunk_columns(columns: Sequence[str], *, keyed: bool) -> list[str]:
    """Return which columns of a chunk stand for those of the log: it has no lengths, and not always keys."""
    sources = ["payload" if name == "length" else name for name in columns if name != "key" or keyed]
    return sources or ["sequence"]


class Shaper:
    """Makes Spark's batches of a shard from the log's or a chunk's."""

    def __init__(self, schema: Any, database: str, shard: int) -> None:
        """Hold the Arrow schema that Spark expects, to the letter."""
        self._schema = schema
        self._constants = {"database": pa.scalar(database, pa.string()), "shard": pa.scalar(shard, pa.int32())}
        self._makers: dict[str, Callable[[Any], Any]] = {
            "timestamp": _microseconds,
            "ext_id": lambda batch: batch.column("ext_id").view(pa.int64()),
            "length": _length,
            "key": _key,
        }

    def shaped(self, batch: Any) -> Any:
        """Return a batch with exactly the columns of the schema.  Copies no payload."""
        arrays = [self._array(name, batch) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, batch: Any) -> Any:
        if name in self._constants:
            return pa.repeat(self._constants[name], batch.num_rows)
        maker = self._makers.get(name)
        return maker(batch) if maker else batch.column(name)


def _microseconds(batch: Any) -> Any:
    nanoseconds = batch.column("timestamp").view(pa.int64())
    return pc.divide(nanoseconds, _NS_IN_US).view(TYPES["timestamp"][1])


def _length(batch: Any) -> Any:
    """Return the lengths: from the log as they are, else those of the payloads."""
    return batch.column("length") if "length" in batch.schema.names else pc.binary_length(batch.column("payload"))


def _key(batch: Any) -> Any:
    """Return the keys; of a database without, in a store with, there are none."""
    return batch.column("key") if "key" in batch.schema.names else pa.nulls(batch.num_rows, pa.binary())
