"""Keys and values of a column of payloads."""

import struct
from itertools import accumulate
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import UsageError
from latewood.format import keyed
from latewood.limits import KEY_BYTES_MAX

PAIRS = [(b"k", b"value"), (None, b"no key"), (b"", b"an empty key"), (b"only a key", b""), (None, b"")]
pairs = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.binary(max_size=20)))


def ends(items: list[bytes]) -> bytes:
    places = list(accumulate(map(len, items), initial=0))
    return struct.pack(f"<{len(places)}i", *places)


def split(kernel: ModuleType, payloads: list[bytes]) -> list[tuple[bytes | None, bytes]]:
    validity, key_ends, keys, value_ends, values = kernel.split_keys(ends(payloads), b"".join(payloads))
    key_places = struct.unpack(f"<{len(payloads) + 1}i", key_ends)
    value_places = struct.unpack(f"<{len(payloads) + 1}i", value_ends)
    found = []
    for index in range(len(payloads)):
        key = keys[key_places[index] : key_places[index + 1]]
        value = values[value_places[index] : value_places[index + 1]]
        found.append((key if validity[index // 8] >> index % 8 & 1 else None, value))
    return found


def test_a_column_is_split_into_keys_and_values(kernel: ModuleType) -> None:
    assert split(kernel, [keyed.encode(*pair) for pair in PAIRS]) == PAIRS


@given(pairs=pairs)
def test_whatever_was_joined_is_split_again(pairs: list[tuple[bytes | None, bytes]]) -> None:
    from latewood import kernel  # noqa: PLC0415 - a fixture would be shared between examples

    payloads = keyed.encode_all([key for key, _ in pairs], [value for _, value in pairs])
    assert payloads == [keyed.encode(*pair) for pair in pairs]
    assert [keyed.decode(payload) for payload in payloads] == pairs
    assert split(kernel, payloads) == pairs


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\2\0\0\0", b"\3\0\0\0a", b"\xff\xff\xff\xffa"])
def test_a_payload_that_is_too_short_is_refused(kernel: ModuleType, payload: bytes) -> None:
    with pytest.raises(ValueError, match="too short"):
        split(kernel, [keyed.encode(b"k", b"v"), payload])
    with pytest.raises(ValueError, match="too short"):
        keyed.decode(payload)


def test_offsets_outside_the_data_are_refused(kernel: ModuleType) -> None:
    for places in ((0, 99), (4, 0), (0, -1)):
        with pytest.raises(ValueError, match="too short"):
            kernel.split_keys(struct.pack("<2i", *places), bytes(8))


def test_a_key_is_bytes_and_not_too_long() -> None:
    keyed.encode(bytes(KEY_BYTES_MAX), b"")
    with pytest.raises(UsageError, match="longer"):
        keyed.encode(bytes(KEY_BYTES_MAX + 1), b"")
    with pytest.raises(UsageError, match="bytes"):
        keyed.encode_all(["text"], [b""])  # type: ignore[list-item]
