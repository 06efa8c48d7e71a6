"""Records as Arrow columns, and Arrow columns as payloads.  Imported only by whoever asks for Arrow."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from latewood.errors import UsageError
from latewood.segment import Columns

SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ns", tz="UTC"), nullable=False),
        pa.field("ext_id", pa.uint64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


def record_batch(sequence: int, columns: Columns) -> pa.RecordBatch:
    """Return the kernel's columns as a batch whose first record has `sequence`.  Copies nothing."""
    count, _, _, timestamps, ext_ids, offsets, payloads = columns
    arrays = [
        pa.arange(sequence, sequence + count),
        pa.Array.from_buffers(SCHEMA.field("timestamp").type, count, [None, pa.py_buffer(timestamps)]),
        pa.Array.from_buffers(pa.uint64(), count, [None, pa.py_buffer(ext_ids)]),
        pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(payloads)]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def table(batches: list[pa.RecordBatch]) -> pa.Table:
    """Return batches as one table, without copying."""
    return pa.Table.from_batches(batches, schema=SCHEMA)


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
