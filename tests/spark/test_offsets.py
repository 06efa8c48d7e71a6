"""Offsets: words, JSON, times, and the way to the checkpoint and back."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import LatewoodError, UnsupportedVersion, UsageError
from latewood.format.identity import Mark
from latewood.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    ShardId,
    StoredOffsets,
    decode_offsets,
    encode_offsets,
    parse_offsets,
    parse_timestamp,
    unknown_shards,
)

CLICKS_0 = ShardId("clicks", 0)
GOLDEN: Final = Path(__file__).parents[1] / "golden" / "v1" / "spark"


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


MARK = Mark(bytes(range(16)), 0x90AB)
MARKED = {"log": "000102030405060708090a0b0c0d0e0f", "life": "00000000000090ab"}
marks = st.none() | st.builds(Mark, st.binary(min_size=16, max_size=16), st.integers(1, 2**64 - 1))
places = st.tuples(st.integers(0, 2**63 - 1), marks)


def offsets_of(names: list[str]) -> st.SearchStrategy[StoredOffsets]:
    """Offsets of a log, whose database has no name, or of databases; one may be called `version`."""
    shards = st.builds(ShardId, st.sampled_from(names), st.integers(0, 9))
    return st.dictionaries(shards, places).map(
        lambda found: StoredOffsets(
            {shard: sequence for shard, (sequence, _) in found.items()},
            {shard: mark for shard, (_, mark) in found.items()},
        )
    )


@given(offsets_of([""]) | offsets_of(["clicks", "version", "shards", "databases"]))
def test_offsets_survive_the_checkpoint(offsets: StoredOffsets) -> None:
    assert decode_offsets(json.loads(json.dumps(encode_offsets(offsets)))) == offsets


@given(offsets_of([""]) | offsets_of(["clicks", "ticks"]))
def test_offsets_are_the_same_text_whatever_the_order_of_shards(offsets: StoredOffsets) -> None:
    """Spark compares texts: a batch would begin at each of them that differs."""
    turned = StoredOffsets(dict(reversed(offsets.sequences.items())), dict(reversed(offsets.marks.items())))
    assert json.dumps(encode_offsets(turned)) == json.dumps(encode_offsets(offsets))


@given(offsets_of([""]) | offsets_of(["clicks", "version", "shards", "databases"]))
def test_offsets_of_version_1_have_the_sequences_and_no_log(offsets: StoredOffsets) -> None:
    plain: dict[str, Any] = {}
    for shard, sequence in offsets.sequences.items():
        (plain.setdefault(shard.database, {}) if shard.database else plain)[str(shard.number)] = sequence
    found = decode_offsets(json.loads(json.dumps(plain)))
    assert found == StoredOffsets(offsets.sequences, {})
    assert all(found.mark(shard) is None for shard in offsets.sequences)


@pytest.mark.parametrize("name", ["log", "lake"])
def test_the_golden_offsets_of_version_1_are_read(name: str) -> None:
    batches = json.loads((GOLDEN / "expected.json").read_text())[name]["batches"]
    ends: dict[ShardId, int] = {}
    for batch, rows in sorted(batches.items()):
        for shard, sequence, _ in rows:
            ends[ShardId({"log": "", "lake": "clicks"}[name], shard)] = sequence + 1
        text = (GOLDEN / f"of-{name}" / "offsets" / batch).read_text().splitlines()[-1]
        assert decode_offsets(json.loads(text)) == StoredOffsets(ends, {})


def test_offsets_of_version_2_as_they_are_stored() -> None:
    shard = ShardId("", 0)
    stored = {"version": 2, "shards": {"0": {"sequence": 5, **MARKED}}}
    assert encode_offsets(StoredOffsets({shard: 5}, {shard: MARK})) == stored
    stored = {"version": 2, "databases": {"clicks": {"0": {"sequence": 7, **MARKED}, "1": {"sequence": 0}}}}
    two = StoredOffsets({CLICKS_0: 7, ShardId("clicks", 1): 0}, {CLICKS_0: MARK, ShardId("clicks", 1): None})
    assert encode_offsets(two) == stored
    assert decode_offsets(stored) == two
    assert decode_offsets({"version": 2, "databases": {}}) == decode_offsets({}) == StoredOffsets({}, {})


WRONG_SEQUENCES: Final = [3.9, float("inf"), float("nan"), "5", True, None, -1, 2**64]
"""What is read as another number, or as none, skips records or fails in a way that nobody understands."""


@pytest.mark.parametrize(
    "stored",
    [
        {"logOffset": None},
        {"version": 2, "shards": {"0": 5}},
        {"version": 2, "shards": {"0": {"log": "00"}}},
        {"version": 2, "shards": {"0": {"sequence": 5, "log": "00", "life": "00"}}},
        {"version": 2, "shards": [0]},
        {"version": 2, "databases": {"clicks": 5}},
        {"version": 2},
        {"version": True, "shards": {}},
        {"version": 2, "shards": {"00": {"sequence": 5}}},
        *({"version": 2, "shards": {"0": {"sequence": wrong}}} for wrong in WRONG_SEQUENCES),
        *({"0": wrong} for wrong in WRONG_SEQUENCES),
        {"-1": 5},
    ],
)
def test_another_sources_checkpoint_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not those of a latewood source"):
        decode_offsets(stored)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["0", "1", "sequence", "log", "life", "clicks"]) | st.text(max_size=3), inner)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["version", "shards", "databases", "0", "clicks"]), json_values | st.just(2)),
)
def test_no_stored_offsets_raise_anything_but_our_errors(stored: dict[str, Any]) -> None:
    with suppress(LatewoodError):
        found = decode_offsets(stored)
        assert all(sequence >= 0 for sequence in found.sequences.values())
        assert {type(sequence) for sequence in found.sequences.values()} <= {int}


def test_a_checkpoint_of_a_later_program_is_not_taken_for_damage() -> None:
    with pytest.raises(UnsupportedVersion, match="version 3"):
        decode_offsets({"version": 3, "shards": {}})


def test_a_shard_that_is_not_there_is_named() -> None:
    assert unknown_shards(parse_offsets('{"0": 1, "5": 1}', "x"), [CLICKS_0]) == ["shard 5"]
