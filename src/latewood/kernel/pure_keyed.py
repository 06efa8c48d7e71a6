"""Keyed records: keys and values of a column of payloads, `u32 key length + 1, or 0 | key | value` each."""

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from latewood.kernel.pure_record import as_view

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PREFIX: Final = 4


def split_keys(offsets: "ReadableBuffer", payloads: "ReadableBuffer") -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Split a column: `(validity of the keys, key offsets, keys, value offsets, values)`, ready for Arrow."""
    places, data = as_view(offsets), as_view(payloads)
    places = places[: places.nbytes // 4 * 4].cast("I")
    keys: list[bytes | None] = []
    values: list[bytes] = []
    for start, stop in pairwise(places):
        key, value = _split(data[start:stop].tobytes() if start <= stop <= data.nbytes else b"")
        keys.append(key)
        values.append(value)
    validity = bytearray(-(-len(keys) // 8))
    for index, key in enumerate(keys):
        validity[index // 8] |= (key is not None) << index % 8
    whole = [key or b"" for key in keys]
    return bytes(validity), _ends(whole), b"".join(whole), _ends(values), b"".join(values)


def _split(payload: bytes) -> tuple[bytes | None, bytes]:
    size = int.from_bytes(payload[:_PREFIX], "little")
    start = _PREFIX + max(0, size - 1)
    if len(payload) < start:
        raise ValueError("a payload is too short for its key")
    return (payload[_PREFIX:start] if size else None), payload[start:]


def _ends(items: list[bytes]) -> bytes:
    return b"".join(end.to_bytes(4, "little") for end in accumulate(map(len, items), initial=0))
