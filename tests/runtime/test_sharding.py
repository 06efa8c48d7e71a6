"""Which shard a key belongs to."""

from collections import Counter

import pytest

from latewood.runtime.sharding import shard_of


@pytest.mark.parametrize(("key", "shard"), [(b"", 1), (b"user-7", 12), (b"user-8", 12), (b"a" * 100, 9), (b"\xff", 0)])
def test_a_key_stays_in_its_shard_for_ever(key: bytes, shard: int) -> None:
    assert shard_of(key, 13) == shard


def test_keys_spread_over_all_shards() -> None:
    counts = Counter(shard_of(b"user-%d" % number, 16) for number in range(16_000))
    assert set(counts) == set(range(16))
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_one_shard_takes_all() -> None:
    assert {shard_of(b"%d" % number, 1) for number in range(100)} == {0}
