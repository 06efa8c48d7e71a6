"""What every structure of a fixed size promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import CorruptError, LatewoodError, UnsupportedVersion
from tests.format.codecs import CODECS, PATH, Codec

each_codec = pytest.mark.parametrize("codec", CODECS, ids=str)


@each_codec
@given(data=st.data())
def test_a_value_survives_the_round_trip(codec: Codec, data: st.DataObject) -> None:
    value = data.draw(codec.values)
    raw = codec.encode(value)
    assert len(raw) == codec.size
    assert codec.decode(raw) == value


@each_codec
def test_the_bytes_are_those_of_the_version(codec: Codec) -> None:
    golden = bytes.fromhex(codec.golden)
    assert codec.encode(codec.example) == golden
    assert codec.decode(golden) == codec.example


@each_codec
def test_a_torn_structure_is_corrupt_at_each_length(codec: Codec) -> None:
    raw = codec.encode(codec.example)
    for length in range(codec.size):
        with pytest.raises(CorruptError):
            codec.decode(raw[:length])


@each_codec
def test_what_follows_a_structure_does_not_matter(codec: Codec) -> None:
    raw = codec.encode(codec.example)
    assert codec.decode(raw + b"what follows") == codec.example


@each_codec
def test_zeros_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptError):
        codec.decode(bytes(codec.size))


@each_codec
def test_another_magic_is_corrupt_and_the_error_names_the_file(codec: Codec) -> None:
    raw = codec.encode(codec.example)
    with pytest.raises(CorruptError, match=r"no .* here") as caught:
        codec.decode(b"NOTMAGIC" + raw[8:])
    assert caught.value.path == PATH


@each_codec
@pytest.mark.parametrize("after", [1, 254, 65_533])
def test_an_unknown_version_is_not_corruption(codec: Codec, after: int) -> None:
    version = codec.version + after
    raw = codec.encode(codec.example)
    at = codec.version_offset
    with pytest.raises(UnsupportedVersion) as caught:
        codec.decode(raw[:at] + version.to_bytes(2, "little") + raw[at + 2 :])
    assert caught.value.version == version
    assert caught.value.path == PATH
    assert not isinstance(caught.value, CorruptError)


@each_codec
def test_version_0_is_corruption_because_there_never_was_one(codec: Codec) -> None:
    raw = codec.encode(codec.example)
    at = codec.version_offset
    with pytest.raises(CorruptError):
        codec.decode(raw[:at] + b"\0\0" + raw[at + 2 :])


@each_codec
def test_an_unknown_version_is_told_before_any_other_field_is_looked_at(codec: Codec) -> None:
    raw = codec.encode(codec.example)
    front = raw[: codec.version_offset] + (codec.version + 1).to_bytes(2, "little")
    with pytest.raises(UnsupportedVersion):
        codec.decode(front + b"\xa5" * (codec.size - len(front)))


@each_codec
def test_every_flip_of_one_bit_is_detected(codec: Codec) -> None:
    raw = codec.encode(codec.example)
    version_bits = range(8 * codec.version_offset, 8 * codec.version_offset + 16)
    for bit in range(8 * codec.size):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        expected = (UnsupportedVersion, CorruptError) if bit in version_bits else CorruptError
        with pytest.raises(expected):
            codec.decode(bytes(flipped))


@each_codec
@given(raw=st.binary(max_size=300))
def test_no_bytes_raise_anything_but_our_errors(codec: Codec, raw: bytes) -> None:
    magic = codec.encode(codec.example)[:10]
    for attempt in (raw, magic + raw):
        try:
            codec.decode(attempt)
        except LatewoodError:
            continue
        assert len(attempt) >= codec.size or codec.name == "cursor"
