"""One table over everything, and how many records it has.

Whole chunks that are plain Parquet files on disk are read by Spark's own reader, which is faster than any source in
Python; the rest, the live end of the log first of all, by ours.  Both are pinned by one plan, so no record is missing
between them and none comes twice.
"""

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sql

from latewood.spark.options import Range, encode_ranges
from latewood.spark.place import local_path
from latewood.spark.plan import without

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_FORMAT: Final = "latewood"
_SIGNED: Final = f"CAST(IF(ext_id >= {1 << 63}, ext_id - {1 << 64}, ext_id) AS BIGINT)"
"""The same 64 bits as a signed number: Spark reads an unsigned one as a decimal."""
_SHARD_DIGITS: Final = 5


def table(spark: "SparkSession", path: str, *, native: bool = True, **options: Any) -> "DataFrame":
    """Return what a log, a database or a store holds now as one table; options are those of the source.

    A relative path is one of the process that calls this, but on Spark Connect, where it is one of the server.  With
    `native=False` everything goes through the source, which checks every checksum and finds records that are moved
    while the query runs.

    Raises:
        AnalysisException: an option is not understood, or nothing is there.
    """
    path = _absolute(spark, path)
    pieces = _pieces(spark, path, options) if native else []
    chosen = [piece for piece in pieces if piece["is_plain"]]
    if not chosen:
        return spark.read.format(_FORMAT).options(**options).load(path)
    pinned = {name: value for name, value in options.items() if name.lower() in _KEPT}
    rest = spark.read.format(_FORMAT).options(**pinned, ranges=encode_ranges(_rest(pieces))).load(path)
    parts = [rest] if _rest(pieces) else []
    for database in dict.fromkeys(piece["database"] for piece in chosen):
        files = [piece["file"] for piece in chosen if piece["database"] == database]
        parts.append(_native(spark, files, database, rest.columns))
    return reduce(lambda left, right: left.union(right), parts)


def count(spark: "SparkSession", path: str, **options: Any) -> int:
    """Return how many records a log, a database or a store has, from what is known about it, without reading them.

    Options are those of the source, paths those of `table`.
    """
    reader = spark.read.format(_FORMAT).options(**options, view="shards", columns="records")
    shards = reader.load(_absolute(spark, path))
    return sum(row["records"] for row in shards.collect())


_KEPT: Final = {"columns", "minpartitions", "targetpartitionbytes", "failondataloss", "archiveurl", "keyfile"} | {
    "keyenvironment"
}
"""What still counts once the ranges are pinned."""


def _pieces(spark: "SparkSession", path: str, options: dict[str, Any]) -> "list[Row]":
    planned = {name: value for name, value in options.items() if name.lower() != "columns"}
    return spark.read.format(_FORMAT).options(**planned, view="plan").load(path).collect()


def _absolute(spark: "SparkSession", path: str) -> str:
    """Return a path as the caller means it: Spark takes a relative one from the directory that it was started in."""
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    return str(path) if is_connect or "://" in str(path) else str(local_path(str(path)))


def _rest(pieces: "list[Row]") -> list[Range]:
    """Return what Spark's own reader does not read."""
    rest = []
    for database, shard in dict.fromkeys((piece["database"], piece["shard"]) for piece in pieces):
        own = [piece for piece in pieces if (piece["database"], piece["shard"]) == (database, shard)]
        taken = [(piece["start"], piece["stop"]) for piece in own if piece["is_plain"]]
        left = without(own[0]["start"], own[-1]["stop"], taken)
        rest += [Range(database or "", shard, start, stop) for start, stop in left]
    return rest


def _native(spark: "SparkSession", files: list[str], database: str, columns: list[str]) -> "DataFrame":
    frame = spark.read.parquet(*[f"file:{file}" for file in files])
    has_keys = "key" in frame.columns
    name = sql.col("_metadata.file_name")
    made: dict[str, Column] = {
        "database": sql.lit(database),
        "shard": sql.substring(name, 1, _SHARD_DIGITS).cast("int"),
        "ext_id": sql.expr(_SIGNED),
        "key": sql.col("key") if has_keys else sql.lit(None).cast("binary"),
        "length": sql.octet_length("payload"),
    }
    return frame.select([made.get(column, sql.col(column)).alias(column) for column in columns])
