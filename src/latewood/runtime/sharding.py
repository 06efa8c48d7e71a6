"""Which shard a record belongs to, and what of a batch falls to each.  Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from latewood.format import keyed
from latewood.format.sharding import NAME, SEED, shard_of
from latewood.kernel import deal
from latewood.limits import KEY_BYTES_MAX
from latewood.log.batch import Packed

__all__ = ["NAME", "SEED", "Hand", "deal_keyed", "deal_round", "shard_of"]

P = TypeVar("P")


class Hand(NamedTuple, Generic[P]):
    """What of a batch falls to one shard."""

    shard: int
    payloads: P
    rows: Sequence[int]
    """Which records of the batch these are."""

    def picked(self, values: Sequence[int]) -> list[int]:
        """Return those of one value for each record of the batch that are its own."""
        return [values[row] for row in self.rows]

    def picked_times(self, times: "int | Sequence[int] | None") -> "int | list[int] | None":
        """Return the same of times, of which there may be one for all, or none."""
        return times if times is None or isinstance(times, int) else self.picked(times)


def deal_keyed(payloads: Iterable[bytes], keys: "Iterable[bytes | None]", shards: int, turn: int) -> list[Hand[Packed]]:
    """Return what falls to each shard, keys packed with their values; records without a key go round from `turn` on.

    Raises:
        UsageError: a key is too long, or not bytes.
        TypeError: a payload is not bytes-like.
    """
    values = payloads if isinstance(payloads, list | tuple) else list(payloads)
    own = keys if isinstance(keys, list | tuple) else list(keys)
    try:
        hands = deal(values, own, shards, turn, SEED, KEY_BYTES_MAX)
    except (TypeError, ValueError):
        keyed.check_all(own)
        raise
    return [
        Hand(shard, Packed(data, ends, largest), memoryview(rows).cast("I"))
        for shard, data, ends, largest, rows in hands
    ]


def deal_round(payloads: Sequence[bytes], shards: int, turn: int) -> list[Hand[Any]]:
    """Return what falls to each shard of records without keys, one after the other from `turn` on."""
    hands = [Hand((turn + at) % shards, payloads[at::shards], range(at, len(payloads), shards)) for at in range(shards)]
    return [hand for hand in hands if hand.rows]
