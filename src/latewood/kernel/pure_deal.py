"""Dealing keyed records out to shards: every key hashed, and key and value packed, in one call for a batch.

What a shard gets is a column of payloads, `u32 key length + 1, or 0 | key | value` each, as `Appender.append_columns`
takes it.
"""

import struct
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any, Final

import xxhash

from latewood.kernel.pure_record import as_view
from latewood.kernel.pure_scan import check_u64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer

_PREFIX: Final = 4
_SIGN: Final = 1 << 63
_U32_MAX: Final = 0xFFFFFFFF

Dealt = tuple[int, bytes | bytearray, bytes | bytearray, int, bytes | bytearray]


def deal(
    payloads: "Sequence[ReadableBuffer]",
    keys: "Sequence[bytes | None]",
    shards: int,
    turn: int,
    seed: int,
    key_bytes_max: int,
) -> list[Dealt]:
    """Deal records out to shards: `[(shard, data, ends, largest, rows)]`, in the order in which shards come up.

    A key picks its shard; records without one go round, from `turn` on.  `ends` are i64, as many as there are records
    and one more, and `rows` are the u32 indices of the records.
    """
    check_u64(shards, turn, seed, key_bytes_max)
    if shards > _U32_MAX:
        raise OverflowError("there are too many shards")
    values = [as_view(value).tobytes() for value in _items(payloads)]
    prefixes = [_prefix(key, key_bytes_max) for key in _items(keys)]
    if len(values) != len(prefixes):
        raise ValueError("there are not as many keys as payloads")
    if not shards:
        raise ValueError("there is at least one shard")
    turns = count(turn % shards)
    rows: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(next(turns) % shards if key is None else _shard_of(key, shards, seed), []).append(row)
    return [_hand(shard, [prefixes[row] + values[row] for row in own], own) for shard, own in rows.items()]


def _items(objects: Any) -> Any:
    if not isinstance(objects, list | tuple):
        raise TypeError("a list or a tuple is required")
    return objects


def _prefix(key: bytes | None, bytes_max: int) -> bytes:
    if key is None:
        return bytes(_PREFIX)
    if not isinstance(key, bytes):
        raise TypeError("a key must be bytes")
    if len(key) > bytes_max:
        raise ValueError("a key is too long")
    return (len(key) + 1).to_bytes(_PREFIX, "little") + key


def _shard_of(key: bytes, shards: int, seed: int) -> int:
    """Return the hash as a signed number, modulo the number of shards, never negative."""
    digest = xxhash.xxh64_intdigest(key, seed)
    return (digest - 2 * _SIGN if digest >= _SIGN else digest) % shards


def _hand(shard: int, bodies: list[bytes], rows: list[int]) -> Dealt:
    ends = struct.pack(f"<{len(bodies) + 1}q", *accumulate(map(len, bodies), initial=0))
    return shard, b"".join(bodies), ends, max(map(len, bodies)), struct.pack(f"<{len(rows)}I", *rows)
