"""The tables that Spark sees: their columns, and what a user's own schema may ask of them."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from latewood.errors import UsageError
from latewood.spark.columns import TYPES, Shape, chosen_columns, record_columns
from latewood.spark.options import ReadOptions

_SQL_TYPES: Final[dict[str, DataType]] = {
    one.simpleString(): one
    for one in (BinaryType(), BooleanType(), IntegerType(), LongType(), StringType(), TimestampType())
}
VIEW_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "segments": {
        "database": "string",
        "shard": "int",
        "segment_id": "bigint",
        "state": "string",
        "first_sequence": "bigint",
        "record_count": "bigint",
        "size_bytes": "bigint",
        "created_at": "timestamp",
        "sealed_at": "timestamp",
        "first_timestamp": "timestamp",
        "last_timestamp": "timestamp",
        "ext_id": "bigint",
        "path": "string",
    },
    "chunks": {
        "database": "string",
        "shard": "int",
        "chunk_id": "bigint",
        "state": "string",
        "residency": "string",
        "sequence_min": "bigint",
        "sequence_max": "bigint",
        "row_count": "bigint",
        "size_bytes": "bigint",
        "timestamp_min": "timestamp",
        "timestamp_max": "timestamp",
        "encrypted": "boolean",
        "generation": "bigint",
        "created_at": "timestamp",
        "file_name": "string",
        "object_key": "string",
    },
    "readers": {
        "database": "string",
        "shard": "int",
        "reader": "string",
        "sequence": "bigint",
        "lag": "bigint",
        "committed_at": "timestamp",
        "problem": "string",
    },
    "jobs": {
        "job_id": "bigint",
        "database": "string",
        "kind": "string",
        "state": "string",
        "created_at": "timestamp",
        "updated_at": "timestamp",
        "attempts": "int",
        "priority": "int",
        "progress_done": "bigint",
        "progress_total": "bigint",
        "last_error": "string",
    },
    "shards": {
        "database": "string",
        "shard": "int",
        "first_sequence": "bigint",
        "next_sequence": "bigint",
        "durable_sequence": "bigint",
        "log_first_sequence": "bigint",
        "records": "bigint",
        "segments": "int",
        "log_bytes": "bigint",
        "chunks": "int",
        "chunk_bytes": "bigint",
    },
    "plan": {
        "database": "string",
        "shard": "int",
        "start": "bigint",
        "stop": "bigint",
        "holder": "string",
        "file": "string",
        "object_key": "string",
        "size_bytes": "bigint",
        "is_plain": "boolean",
    },
}
"""Each view's columns with their types in SQL."""


def table_schema(options: ReadOptions, shape: Shape) -> StructType:
    """Return the columns of what is read.

    Raises:
        UsageError: a column was asked for that is not there.
    """
    types = _types(options.view, shape)
    names = chosen_columns(options.columns, list(types))
    always = options.view == "records"
    return StructType([StructField(name, _SQL_TYPES[types[name]], not always or name == "key") for name in names])


def check_schema(schema: StructType, options: ReadOptions, shape: Shape) -> None:
    """Refuse a user's own schema that names what is not there, or gives it another type.

    Raises:
        UsageError: it is so.
    """
    types = _types(options.view, shape)
    chosen_columns([field.name for field in schema.fields], list(types))
    for field in schema.fields:
        if field.dataType.simpleString() != types[field.name]:
            message = (
                f"column {field.name!r} is {types[field.name].upper()}, not {field.dataType.simpleString().upper()}"
            )
            raise UsageError(f"{message}; cast it after loading")


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark holds batches against."""
    return to_arrow_schema(schema, timezone="UTC")


def view_row(view: str, values: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Return one row of a view with the columns that were asked for."""
    assert values.keys() == VIEW_COLUMNS[view].keys(), values.keys() ^ VIEW_COLUMNS[view].keys()
    return tuple(values[name] for name in names)


def _types(view: str, shape: Shape) -> dict[str, str]:
    if view != "records":
        return VIEW_COLUMNS[view]
    return {name: TYPES[name][0] for name in record_columns(keyed=shape.keyed, whole_store=shape.whole_store)}
