"""Which shard a key belongs to: what `latewood.format.sharding` says, for those above it."""

from latewood.format.sharding import NAME, SEED, shard_of

__all__ = ["NAME", "SEED", "shard_of"]
