"""Offsets: words, JSON, times, and the way to the checkpoint and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import UsageError
from latewood.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    ShardId,
    decode_offsets,
    encode_offsets,
    parse_offsets,
    parse_timestamp,
    unknown_shards,
)

CLICKS_0 = ShardId("clicks", 0)


@pytest.mark.parametrize(
    ("text", "shard", "expected"),
    [
        ("earliest", CLICKS_0, EARLIEST),
        (" Latest ", CLICKS_0, LATEST),
        ('{"0": 12}', CLICKS_0, 12),
        ('{"0": "latest"}', CLICKS_0, LATEST),
        ('{"0": -2}', CLICKS_0, EARLIEST),
        ('{"1": 12}', CLICKS_0, None),
        ('{"clicks": {"0": 7}}', CLICKS_0, 7),
        ('{"ticks": {"0": 7}}', CLICKS_0, None),
        ('{"0": 7}', ShardId("", 0), 7),
    ],
)
def test_an_option_says_where_a_shard_begins(text: str, shard: ShardId, expected: int | None) -> None:
    assert parse_offsets(text, "startingOffsets").of(shard) == expected


@pytest.mark.parametrize("text", ["", "first", "12", "[1]", '{"a": 1}', '{"0": -3}', '{"0": true}', '{"0": 1.5}'])
def test_what_is_no_offset_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r'endingOffsets must be earliest, latest, or JSON such as \{"0": 12'):
        parse_offsets(text, "endingOffsets")


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1000", 1_000_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01 00:00:01.000002", 1_000_002_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000_000),
        ("1969-12-31T00:00:00Z", 0),
    ],
)
def test_a_time_is_iso_or_milliseconds(text: str, nanoseconds: int) -> None:
    assert parse_timestamp(text, "startingTimestamp") == Bound(timestamp_ns=nanoseconds)


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(UsageError, match="startingTimestamp must be a time"):
        parse_timestamp("yesterday", "startingTimestamp")


@given(st.dictionaries(st.builds(ShardId, st.sampled_from(["clicks", "ticks"]), st.integers(0, 9)), st.integers(0)))
def test_offsets_survive_the_checkpoint(offsets: dict[ShardId, int]) -> None:
    assert decode_offsets(json.loads(json.dumps(encode_offsets(offsets)))) == offsets


def test_offsets_of_a_log_are_flat() -> None:
    assert encode_offsets({ShardId("", 0): 5}) == {"0": 5}


def test_another_sources_checkpoint_is_refused() -> None:
    with pytest.raises(UsageError, match="not those of a latewood source"):
        decode_offsets({"logOffset": None})


def test_a_shard_that_is_not_there_is_named() -> None:
    assert unknown_shards(parse_offsets('{"0": 1, "5": 1}', "x"), [CLICKS_0]) == ["shard 5"]
