"""Which chunks retention lets go.  Pure.

From the oldest of each shard on, and never past one that stays: so what is left has no gap, and the floor only rises.
What a reader still wants stays, whatever the policy says.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from latewood.types import ChunkId


class Held(NamedTuple):
    """A live chunk."""

    chunk_id: ChunkId
    shard: int
    sequence_max: int
    size_bytes: int
    newest_ms: int
    """When the youngest of its records was appended."""


class Policy(NamedTuple):
    """How much is kept of a database; None: all."""

    max_bytes: int | None = None
    """All chunks together, in all tiers."""
    max_age_ms: int | None = None
    """A chunk, after its youngest record was appended."""


def plan(chunks: Iterable[Held], policy: Policy, floors: Mapping[int, int | None], now_ms: int) -> list[ChunkId]:
    """Return the chunks that go, in an order in which any beginning of it may go by itself.

    `chunks` of a shard are in the order of their sequences; `floors`: the first sequence that a reader wants of each.
    """
    shards: dict[int, deque[Held]] = {}
    for chunk in chunks:
        shards.setdefault(chunk.shard, deque()).append(chunk)
    total = sum(chunk.size_bytes for held in shards.values() for chunk in held)
    gone: list[ChunkId] = []
    while heads := [held[0] for held in shards.values() if held and _is_free(held[0], floors)]:
        head = min(heads, key=lambda chunk: (chunk.newest_ms, chunk.shard))
        is_too_much = policy.max_bytes is not None and total > policy.max_bytes
        if not is_too_much and not _is_too_old(head, policy, now_ms):
            break  # The others are younger still.
        shards[head.shard].popleft()
        total -= head.size_bytes
        gone.append(head.chunk_id)
    return gone


def _is_free(chunk: Held, floors: Mapping[int, int | None]) -> bool:
    floor = floors.get(chunk.shard)
    return floor is None or chunk.sequence_max < floor


def _is_too_old(chunk: Held, policy: Policy, now_ms: int) -> bool:
    return policy.max_age_ms is not None and now_ms - chunk.newest_ms > policy.max_age_ms
