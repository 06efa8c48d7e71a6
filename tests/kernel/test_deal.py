"""Dealing keyed records out to shards."""

import struct
from array import array
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.format import keyed
from latewood.format.sharding import SEED, shard_of
from latewood.kernel import pure
from tests.kernel.packing import U64_MAX, appender, scan_all

KEYS = [b"", b"user-7", b"user-8", b"a" * 100, b"\xff", None, b"x" * 31, b"y" * 32, b"z" * 33, None, None]
PAYLOADS = [b"%d" % number * number for number in range(len(KEYS))]

keys = st.one_of(st.none(), st.binary(max_size=6), st.binary(max_size=80))
odd_keys = st.sampled_from(["text", bytearray(b"k"), 7, b"k" * 81])
payloads = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=9).map(bytearray),
    st.binary(max_size=9).map(lambda data: memoryview(bytearray(data))),
)


def dealt(kernel: ModuleType, shards: int, turn: int = 0) -> list[tuple[int, list[int], list[bytes]]]:
    """Return shard, rows and payloads of each hand."""
    found = []
    for shard, data, ends, largest, rows in kernel.deal(PAYLOADS, KEYS, shards, turn, SEED, 100):
        bodies = [bytes(data[a:b]) for a, b in pairwise(array("q", bytes(ends)))]
        assert largest == max(map(len, bodies))
        found.append((shard, list(struct.unpack(f"<{len(rows) // 4}I", rows)), bodies))
    return found


@pytest.mark.parametrize("shards", [1, 2, 3, 13, 64, 1000])
def test_a_key_falls_to_its_shard(kernel: ModuleType, shards: int) -> None:
    hands = dealt(kernel, shards)
    assert sorted(row for _, rows, _ in hands for row in rows) == list(range(len(KEYS)))
    for shard, rows, bodies in hands:
        assert rows == sorted(rows)
        assert bodies == [keyed.encode(KEYS[row], PAYLOADS[row]) for row in rows]
        assert {shard_of(key, shards) for row in rows if (key := KEYS[row]) is not None} <= {shard}


def test_shards_stand_in_the_order_in_which_they_come_up(kernel: ModuleType) -> None:
    hands = dealt(kernel, 13)
    assert [rows[0] for _, rows, _ in hands] == sorted(rows[0] for _, rows, _ in hands)


@pytest.mark.parametrize("turn", [0, 1, 4, 5, 2**64 - 1])
def test_records_without_a_key_go_round(kernel: ModuleType, turn: int) -> None:
    places = {row: shard for shard, rows, _ in dealt(kernel, 5, turn) for row in rows}
    bare = [row for row, key in enumerate(KEYS) if key is None]
    assert [places[row] for row in bare] == [(turn % 5 + at) % 5 for at in range(len(bare))]


def test_nothing_falls_to_nobody(kernel: ModuleType) -> None:
    assert kernel.deal([], [], 4, 0, SEED, 10) == []
    assert kernel.deal((), (), 4, 0, SEED, 10) == []


def test_a_hand_is_what_columns_of_an_appender_are(kernel: ModuleType) -> None:
    _, data, ends, _, rows = kernel.deal(PAYLOADS, KEYS, 1, 0, SEED, 100)[0]
    buffer = bytearray(4096)
    writer = appender(kernel, buffer)
    assert writer.append_columns(data, ends, True, 0, len(rows) // 4, 5, 6) == len(KEYS)  # noqa: FBT003
    written = [entry.payload for entry in scan_all(kernel, buffer)[0]]
    assert written == [keyed.encode(*pair) for pair in zip(KEYS, PAYLOADS, strict=True)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([b"x"], [], 1, 0, 0, 9), ValueError),
        (([b"x"], [b"k"], 0, 0, 0, 9), ValueError),
        (([b"x"], [b"k" * 10], 1, 0, 0, 9), ValueError),
        (([b"x"], ["k"], 1, 0, 0, 9), TypeError),
        (([b"x"], [bytearray(b"k")], 1, 0, 0, 9), TypeError),
        ((["x"], [b"k"], 1, 0, 0, 9), TypeError),
        (([None], [b"k"], 1, 0, 0, 9), TypeError),
        ((iter([b"x"]), [b"k"], 1, 0, 0, 9), TypeError),
        (([b"x"], iter([b"k"]), 1, 0, 0, 9), TypeError),
        (([b"x"], [b"k"], -1, 0, 0, 9), OverflowError),
        (([b"x"], [b"k"], 1 << 32, 0, 0, 9), OverflowError),
        (([b"x"], [b"k"], 1, -1, 0, 9), OverflowError),
    ],
)
def test_what_cannot_be_dealt_is_refused(kernel: ModuleType, arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        kernel.deal(*arguments)


def outcome(kernel: ModuleType, *arguments: Any) -> Any:
    try:
        return kernel.deal(*arguments)
    except (TypeError, ValueError, OverflowError) as error:
        return type(error)


@given(
    st.lists(st.tuples(payloads, st.one_of(keys, keys, keys, odd_keys)), max_size=30),
    st.integers(0, 20),
    st.integers(0, U64_MAX),
    st.integers(0, U64_MAX),
)
def test_the_twins_deal_the_same(
    native_twin: ModuleType, pairs: list[tuple[Any, Any]], shards: int, turn: int, seed: int
) -> None:
    arguments = ([payload for payload, _ in pairs], [key for _, key in pairs], shards, turn, seed, 80)
    assert outcome(native_twin, *arguments) == outcome(pure, *arguments)


@given(st.lists(st.binary(max_size=300), min_size=1), st.integers(2, 1 << 16))
def test_native_picks_the_shard_that_is_written_down(native_twin: ModuleType, found: list[bytes], shards: int) -> None:
    hands = native_twin.deal(found, found, shards, 0, SEED, 300)
    for shard, _, _, _, rows in hands:
        assert {shard_of(found[row], shards) for row in memoryview(rows).cast("I")} == {shard}
