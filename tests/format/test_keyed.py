"""Keyed records: a key before each payload."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latewood.errors import UsageError
from latewood.format import keyed
from latewood.limits import KEY_BYTES_MAX

pairs = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.binary(max_size=20)))


@given(pairs=pairs)
def test_whatever_was_joined_is_split_again(pairs: list[tuple[bytes | None, bytes]]) -> None:
    payloads = [keyed.encode(*pair) for pair in pairs]
    assert [keyed.decode(payload) for payload in payloads] == pairs


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\2\0\0\0", b"\3\0\0\0a", b"\xff\xff\xff\xffa"])
def test_a_payload_that_is_too_short_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="too short"):
        keyed.decode(payload)


def test_a_key_is_bytes_and_not_too_long() -> None:
    keyed.encode(bytes(KEY_BYTES_MAX), b"")
    with pytest.raises(UsageError, match="longer"):
        keyed.encode(bytes(KEY_BYTES_MAX + 1), b"")
    with pytest.raises(UsageError, match="bytes"):
        keyed.check_all([b"fine", None, "text"])  # type: ignore[list-item]
