"""Names of chunks say what is inside, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.archive.names import (
    SEQUENCE_MAX,
    ChunkName,
    parse_file_name,
    parse_object_key,
    shard_prefix,
    temporary_name,
    token_of_temporary,
)
from latewood.errors import UsageError
from latewood.limits import CHUNK_FILE_NAME_BYTES_MAX, U16_MAX

TOKENS = st.binary(min_size=16, max_size=16).map(bytes.hex)


@st.composite
def chunk_names(draw: st.DrawFn) -> ChunkName:
    low, high = sorted(draw(st.tuples(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX))))
    shard, token = draw(st.integers(0, U16_MAX)), draw(TOKENS)
    return ChunkName.checked(shard, low, high, token, encrypted=draw(st.booleans()))


@given(chunk_names())
def test_a_name_survives_the_round_trip(name: ChunkName) -> None:
    assert parse_file_name(name.file_name) == name
    assert parse_object_key(name.object_key("clicks")) == ("clicks", name)
    assert len(name.file_name) <= CHUNK_FILE_NAME_BYTES_MAX
    assert name.object_key("clicks").startswith(shard_prefix("clicks", name.shard))


@given(chunk_names(), chunk_names())
def test_names_sort_as_their_records_do(one: ChunkName, other: ChunkName) -> None:
    by_name = sorted([one, other], key=lambda name: name.file_name)
    assert [name[:3] for name in by_name] == sorted([one[:3], other[:3]])


def test_a_name_looks_as_documented() -> None:
    name = ChunkName.checked(3, 42, 1041, "0f" * 16)
    text = f"00003-00000000000000000042-00000000000000001041-{'0f' * 16}.parquet"
    assert name.file_name == text
    assert name._replace(encrypted=True).file_name == text + ".enc"
    assert name.object_key("clicks") == f"clicks/00003/{text}"


@given(st.text(max_size=120))
def test_other_names_are_none(text: str) -> None:
    assert parse_file_name(text) is None
    assert parse_object_key(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"99999-{'0' * 20}-{'0' * 20}-{'0' * 32}.parquet",
        f"00001-{'0' * 19}2-{'0' * 19}1-{'0' * 32}.parquet",
        f"00001-{'0' * 20}-{'9' * 20}-{'0' * 32}.parquet",
        f"00001-{'0' * 20}-{'0' * 20}-{'0' * 32}.parquet.tmp",
        f"00001-{'0' * 20}-{'0' * 20}-{'0' * 32}.parquet\n",
    ],
)
def test_a_name_that_says_what_cannot_be_is_none(text: str) -> None:
    assert parse_file_name(text) is None


def test_a_key_of_another_shard_or_database_is_none() -> None:
    text = ChunkName.checked(3, 0, 1, "0" * 32).file_name
    assert parse_object_key(f"clicks/00004/{text}") is None
    assert parse_object_key(f"Clicks!/00003/{text}") is None


@given(TOKENS)
def test_an_unfinished_file_is_known_by_its_token(token: str) -> None:
    assert token_of_temporary(temporary_name(token)) == token
    assert parse_file_name(temporary_name(token)) is None


@pytest.mark.parametrize(
    ("shard", "low", "high", "token"),
    [(-1, 0, 0, "0" * 32), (1 << 16, 0, 0, "0" * 32), (0, 1, 0, "0" * 32), (0, 0, 1 << 63, "0" * 32), (0, 0, 0, "0")],
)
def test_what_no_name_can_say_is_refused(shard: int, low: int, high: int, token: str) -> None:
    with pytest.raises(UsageError):
        ChunkName.checked(shard, low, high, token)
