"""Records as columns, ready for Arrow: only those that are asked for are made.

Every checksum is looked at whatever is asked for.
"""

import struct
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from latewood.kernel.pure_keyed import split
from latewood.kernel.pure_scan import UNFIT, Window, check_u64

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

TIMESTAMPS: Final = 1
EXT_IDS: Final = 2
LENGTHS: Final = 4
PAYLOADS: Final = 8
KEYS: Final = 16
_ALL: Final = 31

_COLUMN_BYTES_MAX: Final = 0x7FFFFFFF
_BODY: Final = 16

Column = bytes | bytearray | None
Filled = tuple[int, int, int, Column, Column, Column, Column, Column, Column, Column]


def columns(
    buffer: "ReadableBuffer",
    offset: int,
    limit: int,
    sequence: int,
    max_records: int,
    max_bytes: int,
    wanted: int = _ALL,
    keyed: bool = False,  # noqa: FBT001, FBT002 - as the native twin has it
) -> Filled:
    """Read records as columns, each verified.

    Returns `(count, next_offset, state, timestamps, ext_ids, offsets, payloads, key_validity, key_offsets, keys)`; what
    is not `wanted` is None.  With `keyed`, keys and payloads are taken apart, and a payload that is too short for its
    key ends it.
    """
    check_u64(sequence, max_records, max_bytes, wanted)
    if wanted & ~_ALL:
        raise ValueError("there is no such column")
    window = Window(buffer, offset, limit)
    bodies = _gathered(window, max_records, max_bytes, keyed=keyed) if max_records and max_bytes else []
    pairs = memoryview(b"".join([body[:_BODY] for body in bodies]))
    pairs = pairs.cast("Q") if bodies else pairs
    values = [body[_BODY:] for body in bodies]
    keys: list[bytes | None] | None = None
    if keyed:
        parts = [split(value) for value in values]
        keys, values = [key for key, _ in parts], [value for _, value in parts]
    return (
        len(bodies),
        window.offset,
        window.state,
        pairs[::2].tobytes() if wanted & TIMESTAMPS else None,
        pairs[1::2].tobytes() if wanted & EXT_IDS else None,
        _ends(values) if wanted & (LENGTHS | PAYLOADS) else None,
        b"".join(values) if wanted & PAYLOADS else None,
        *(_key_columns(keys) if keys is not None and wanted & KEYS else (None, None, None)),
    )


def _gathered(window: Window, max_records: int, max_bytes: int, *, keyed: bool) -> list[bytes]:
    """Collect bodies for as long as Arrow can count their payloads, in i32."""
    bodies: list[bytes] = []
    end, start = 0, window.offset
    for body in window.bodies():
        end += len(body) - _BODY
        if end > _COLUMN_BYTES_MAX:
            if not bodies:
                raise OverflowError("the payload is too large for a column")
            window.offset = start
            break
        if keyed and not _fits(body[_BODY:]):
            window.offset, window.state = start, UNFIT
            break
        start = window.offset
        bodies.append(body)
        if len(bodies) == max_records or end >= max_bytes:
            break
    return bodies


def _fits(payload: bytes) -> bool:
    try:
        split(payload)
    except ValueError:
        return False
    return True


def _key_columns(keys: list[bytes | None]) -> tuple[bytes, bytes, bytes]:
    validity = bytearray(-(-len(keys) // 8))
    for index, key in enumerate(keys):
        validity[index // 8] |= (key is not None) << index % 8
    whole = [key or b"" for key in keys]
    return bytes(validity), _ends(whole), b"".join(whole)


def _ends(items: list[bytes]) -> bytes:
    return struct.pack(f"<{len(items) + 1}i", *accumulate(map(len, items), initial=0))
