"""Which shard a key belongs to.  Pure, and the same for ever.

XXH64 of the key with seed 42, taken as a signed number, modulo the number of shards, never negative.  In Spark that is
`pmod(xxhash64(key), shards)`.   Format: docs/format/store.md
"""

from typing import Final

import xxhash

SEED: Final = 42
NAME: Final = "xxh64-42-pmod"
"""What a database's configuration calls it."""

_SIGN: Final = 1 << 63


def shard_of(key: bytes, shards: int) -> int:
    """Return the shard of a key, from 0 up to `shards`."""
    digest = xxhash.xxh64_intdigest(key, SEED)
    return (digest - 2 * _SIGN if digest >= _SIGN else digest) % shards
