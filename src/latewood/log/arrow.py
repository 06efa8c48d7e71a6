"""Records as Arrow columns, and Arrow columns as payloads.  Imported only by whoever asks for Arrow."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from latewood.errors import UsageError
from latewood.kernel import EXT_IDS, KEYS, LENGTHS, PAYLOADS, TIMESTAMPS
from latewood.limits import ARROW_BYTES_MAX, ARROW_SCAN_BYTES_MAX
from latewood.segment import Columns, Selection

SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ns", tz="UTC"), nullable=False),
        pa.field("ext_id", pa.uint64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


KEY: Final = pa.field("key", pa.binary(), nullable=True)
_LENGTH: Final = pa.field("length", pa.int32(), nullable=False)
_FIELDS: Final = {field.name: field for field in (*SCHEMA, KEY, _LENGTH)}
_BITS: Final = {"timestamp": TIMESTAMPS, "ext_id": EXT_IDS, "key": KEYS, "payload": PAYLOADS, "length": LENGTHS}
"""What the kernel must make for a column; the sequence is counted."""


class Choice:
    """Which columns are read, in which order."""

    def __init__(self, columns: Iterable[str] | None = None, *, keys: bool = False) -> None:
        """Choose columns, by default all but the length; with `keys`, the key is one of them.

        Raises:
            UsageError: there is no such column.
        """
        whole = [*SCHEMA.names[:-1], *(["key"] if keys else []), SCHEMA.names[-1]]
        self.names = whole if columns is None else list(columns)
        for name in self.names or [None]:
            if name not in (*whole, _LENGTH.name):
                message = f"there is no column {name!r}" if name else "no column is asked for"
                raise UsageError(f"{message}; the columns are {', '.join((*whole, _LENGTH.name))}")
        self.selection = Selection(reduce(or_, (_BITS.get(name, 0) for name in self.names)), keys)
        self.schema = pa.schema([_FIELDS[name] for name in self.names])
        is_copied = self.selection.wanted & (PAYLOADS | KEYS)
        self.bytes_max = ARROW_BYTES_MAX if is_copied else ARROW_SCAN_BYTES_MAX


WHOLE: Final = Choice()


def record_batch(sequence: int, columns: Columns, choice: Choice = WHOLE) -> pa.RecordBatch:
    """Return the kernel's columns as a batch whose first record has `sequence`.  Copies nothing."""
    arrays = [_array(name, sequence, columns) for name in choice.names]
    return pa.RecordBatch.from_arrays(arrays, schema=choice.schema)


def _array(name: str, sequence: int, columns: Columns) -> pa.Array:
    count, _, _, timestamps, ext_ids, offsets, payloads, validity, key_offsets, keys = columns
    match name:
        case "sequence":
            return pa.arange(sequence, sequence + count)
        case "length":
            return pc.subtract(
                *(pa.Array.from_buffers(pa.int32(), count, _buffers(offsets), offset=at) for at in (1, 0))
            )
        case "timestamp":
            buffers = _buffers(timestamps)
        case "ext_id":
            buffers = _buffers(ext_ids)
        case "key":
            buffers = [pa.py_buffer(validity), *_buffers(key_offsets, keys)[1:]]
        case _:
            buffers = _buffers(offsets, payloads)
    return pa.Array.from_buffers(_FIELDS[name].type, count, buffers)


def _buffers(*parts: Any) -> list[Any]:
    return [None, *map(pa.py_buffer, parts)]


def table(batches: list[pa.RecordBatch], choice: Choice = WHOLE) -> pa.Table:
    """Return batches as one table, without copying."""
    return pa.Table.from_batches(batches, schema=choice.schema)


def binary_buffers(values: Any) -> tuple[Any, Any, bool, int]:
    """Return data, offsets, whether these are 64-bit, and the first index, of an Arrow array of payloads.

    Raises:
        UsageError: it is not one of binary values without nulls.
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not isinstance(array, pa.Array):
        message = f"payloads must be one Arrow array, not a {type(array).__name__}"
        raise UsageError(message)
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not wide and not pa.types.is_binary(array.type) and not pa.types.is_string(array.type):
        message = f"payloads must be an Arrow array of binary or string, not {array.type}"
        raise UsageError(message)
    if array.null_count:
        message = f"{array.null_count} of the payloads are null; fill or drop them first"
        raise UsageError(message)
    _, offsets, data = array.buffers()
    if offsets is None or offsets.size == 0:  # Arrow lets an empty array go without offsets.
        offsets = pa.py_buffer(bytes(8))
    return data if data is not None else b"", offsets, wide, array.offset


def largest_length(offsets: Any, start: int, count: int, *, wide: bool) -> int:
    """Return the length of the largest of `count` payloads from index `start` on."""
    if not count:
        return 0
    kind = pa.int64() if wide else pa.int32()
    ends = pa.Array.from_buffers(kind, count, [None, offsets], offset=start + 1)
    begins = pa.Array.from_buffers(kind, count, [None, offsets], offset=start)
    return int(pc.max(pc.subtract(ends, begins)).as_py())
