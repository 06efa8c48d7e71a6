"""Batches of a keyed log: the key that stands in front of each payload becomes a column of its own."""

from typing import Any

import pyarrow as pa

from latewood.archive.chunk import KEY, KEYED_SCHEMA
from latewood.kernel import split_keys


def with_keys(batch: Any) -> Any:
    """Return a batch that a keyed log handed out with keys and values apart.

    Raises:
        ValueError: a payload is too short for its key.
    """
    payloads = batch.column("payload")
    if payloads.offset:
        payloads = pa.concat_arrays([payloads])
    _, offsets, data = payloads.buffers()
    end = (len(payloads) + 1) * 4
    split = split_keys(offsets.slice(0, end) if offsets is not None else bytes(4), data if data is not None else b"")
    validity, key_ends, keys, value_ends, values = map(pa.py_buffer, split)
    count = len(payloads)
    columns = {
        "key": pa.Array.from_buffers(KEY.type, count, [validity, key_ends, keys]),
        "payload": pa.Array.from_buffers(pa.binary(), count, [None, value_ends, values]),
    }
    arrays = [columns[name] if name in columns else batch.column(name) for name in KEYED_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=KEYED_SCHEMA)
