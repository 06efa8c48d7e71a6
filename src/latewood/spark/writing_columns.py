"""Rows of a DataFrame as records of a log: Arrow columns in, Arrow columns out, no Python object for a row.

A column that the log does not know is refused, not dropped: it would be lost without a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from latewood.errors import UsageError
from latewood.format import keyed
from latewood.format.sharding import shard_of
from latewood.limits import KEY_BYTES_MAX

_BYTES: Final = ("binary", "string")
_WHOLE: Final = ("bigint", "int", "smallint", "tinyint")
TYPES: Final = {"payload": _BYTES, "key": _BYTES, "timestamp": ("timestamp",), "ext_id": _WHOLE}
"""The columns that can be written, and what they may be.  Text is stored in UTF-8."""

_GIVEN: Final = ("shard", "sequence", "length")
_US_NS: Final = 1000
_US_MAX: Final = ((1 << 63) - 1) // _US_NS


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the columns of a DataFrame are; None: it has none of that name."""

    payload: int
    key: int | None = None
    timestamp: int | None = None
    ext_id: int | None = None


def find_columns(fields: Sequence[tuple[str, str]], *, has_keys: bool) -> Columns:
    """Return where the columns are, from names and types as Spark writes them.

    Raises:
        UsageError: one is missing, unknown or of the wrong type.
    """
    places: dict[str, int] = {}
    for place, (name, kind) in enumerate(fields):
        column = name.lower()
        _check(column, name, kind)
        if column in places:
            raise UsageError(f"there are two columns {column!r}; keep one")
        places[column] = place
    if "payload" not in places:
        raise UsageError(f"there is no column 'payload'; {_list()}")
    if "key" in places and not has_keys:
        raise UsageError("the log was made without keys: drop the column 'key', or write to a database with keys")
    return Columns(**places)


def _check(column: str, name: str, kind: str) -> None:
    if column in _GIVEN:
        raise UsageError(f"the log itself gives {column!r} to each record: drop that column; {_list()}")
    if column not in TYPES:
        raise UsageError(f"a record has no column {name!r}: drop it, or put it into the payload; {_list()}")
    if kind not in TYPES[column]:
        raise UsageError(f"column {name!r} is {kind}: cast it to {' or '.join(TYPES[column])}")


def _list() -> str:
    return "the columns are payload (required), key, timestamp and ext_id"


def records_of(batch: Any, columns: Columns, *, has_keys: bool) -> tuple[Any, Any]:
    """Return rows as a batch of records, and their keys, if there are any.

    A record batch has `payload`, which begins with the key where the log has keys, and, if they were given, `timestamp`
    in nanoseconds, null for "when it is appended", and `ext_id`.

    Raises:
        UsageError: a value cannot be stored.
    """
    payload = _bytes(batch.column(columns.payload))
    if payload.null_count:
        raise UsageError(f"{payload.null_count} payloads are null; fill or drop them first")
    keys = None if columns.key is None else _keys(batch.column(columns.key))
    arrays = {"payload": _keyed(keys, payload) if has_keys else payload}
    if columns.timestamp is not None:
        arrays["timestamp"] = _nanoseconds(batch.column(columns.timestamp))
    if columns.ext_id is not None:
        arrays["ext_id"] = _ids(batch.column(columns.ext_id))
    return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)), keys


def split_by_shard(records: Any, keys: Any, shards: int, turn: int) -> list[tuple[int, Any]]:
    """Return the records of each shard, in their order; those without a key go where `turn` says."""
    home = turn % shards
    if keys is None or shards == 1:
        return [(home, records)]
    numbers = _shards(keys, shards, home)
    order = pc.sort_indices(numbers)  # It is stable: records of one key stay in order.
    counts = sorted((pair["values"].as_py(), pair["counts"].as_py()) for pair in pc.value_counts(numbers))
    sorted_records, pieces, at = records.take(order), [], 0
    for shard, count in counts:
        pieces.append((shard, sorted_records.slice(at, count)))
        at += count
    return pieces


def _shards(keys: Any, shards: int, home: int) -> Any:
    encoded = keys.dictionary_encode()  # Most keys come often: each is hashed once.
    homes = pa.array([shard_of(key, shards) for key in encoded.dictionary.to_pylist()], pa.int32())
    return homes.take(encoded.indices).fill_null(home)


def _bytes(column: Any) -> Any:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _keys(column: Any) -> Any:
    keys = _bytes(column)
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > KEY_BYTES_MAX:
        raise UsageError(f"a key of {longest:,} bytes is longer than {KEY_BYTES_MAX:,}")
    return keys


def _keyed(keys: Any, values: Any) -> Any:
    """Put keys in front of values, as `latewood.format.keyed` lays them out."""
    if keys is None:
        keys = pa.nulls(len(values), pa.binary())
    sizes = pc.add(pc.binary_length(keys), 1).fill_null(0).cast(pa.uint32())
    heads = pa.Array.from_buffers(pa.binary(keyed.SIZE), len(sizes), [None, sizes.buffers()[1]], offset=sizes.offset)
    return pc.binary_join_element_wise(heads.cast(pa.binary()), keys.fill_null(b""), values, b"")


def _nanoseconds(column: Any) -> Any:
    times = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    _check_range(times, _US_MAX, "timestamp", "is before 1970 or after 2262")
    return pc.multiply(times, _US_NS)


def _ids(column: Any) -> Any:
    """Return the same 64 bits, unsigned: Spark has only signed ones, and what it read it can write back."""
    return column.cast(pa.int64()).fill_null(0).view(pa.uint64())


def _check_range(numbers: Any, number_max: int, name: str, problem: str) -> None:
    bounds = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < 0 or high > number_max):
        raise UsageError(f"a value of {name!r} {problem}: {low if low < 0 else high}")
