"""The identity of a log: the block in manifests, and the file that is its second copy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, LatewoodError, UnsupportedVersion
from latewood.format.identity import (
    BLOCK_SIZE,
    FILE_BYTES_MAX,
    HEADER_SIZE,
    LIFE_SIZE,
    LIVES_MAX,
    Life,
    LogIdentity,
    Mark,
    block_bytes,
    decode,
    decode_block,
    encode,
    encode_block,
)
from tests.format.codecs import IDENTITY, PATH, identities

VERSION_BITS = range(64, 80)


@given(identities, st.binary(max_size=40), st.binary(max_size=40))
def test_a_block_survives_the_round_trip_wherever_it_stands(identity: LogIdentity, before: bytes, after: bytes) -> None:
    raw = encode_block(identity)
    assert decode_block(before + raw + after, len(before), PATH) == identity
    assert block_bytes(before + raw + after, len(before)) == len(raw)


@given(identities)
def test_the_file_survives_the_round_trip(identity: LogIdentity) -> None:
    assert decode(encode(identity), PATH) == identity


def test_the_bytes_of_the_file_are_those_of_version_1() -> None:
    golden = (
        "4c574c4f47494454 0100 0000 0a506673 6964656e74697479206f66206f616b73 01 02 000000000000"
        "6964656e74697479 0000000000000000 ce0a000000000000 3c00000000000000"
    )
    assert encode(IDENTITY) == bytes.fromhex(golden)


def test_a_log_is_in_its_latest_life_and_its_mark_says_so() -> None:
    assert IDENTITY.life == 0xACE
    assert IDENTITY.mark == Mark(IDENTITY.identity, 0xACE)


def test_of_more_lives_than_a_block_holds_the_oldest_fall_off() -> None:
    lives = tuple(Life(number, number) for number in range(1, LIVES_MAX + 11))
    raw = encode(IDENTITY._replace(lives=lives))
    assert len(raw) == FILE_BYTES_MAX
    assert decode(raw, PATH).lives == lives[10:]


def test_a_torn_file_is_corrupt_at_each_length() -> None:
    raw = encode(IDENTITY)
    for length in range(len(raw)):
        with pytest.raises(CorruptError) as caught:
            decode(raw[:length], PATH)
        assert caught.value.path == PATH


def test_a_file_with_more_behind_it_is_corrupt() -> None:
    with pytest.raises(CorruptError):
        decode(encode(IDENTITY) + b"\0", PATH)


def test_a_file_whose_count_of_lives_is_not_its_length_is_corrupt() -> None:
    raw = encode(IDENTITY._replace(lives=IDENTITY.lives * 2))
    shorter = encode(IDENTITY)
    forged = raw[:12] + shorter[12:16] + shorter[16:]
    assert len(forged) == HEADER_SIZE + BLOCK_SIZE + 2 * LIFE_SIZE
    assert decode(forged, PATH) == IDENTITY
    with pytest.raises(CorruptError):
        decode(forged[:33] + b"\x01" + forged[34:], PATH)


def test_every_flip_of_one_bit_is_detected() -> None:
    raw = encode(IDENTITY)
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((UnsupportedVersion, CorruptError) if bit in VERSION_BITS else CorruptError):
            decode(bytes(flipped), PATH)


def test_an_unknown_version_is_not_corruption() -> None:
    raw = encode(IDENTITY)
    with pytest.raises(UnsupportedVersion) as caught:
        decode(raw[:8] + b"\x02\0" + raw[10:12], PATH)
    assert (caught.value.what, caught.value.version) == ("identity", 2)


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_our_errors(raw: bytes) -> None:
    for attempt in (raw, b"LWLOGIDT\1\0" + raw):
        with pytest.raises(LatewoodError):
            decode(attempt, PATH)
