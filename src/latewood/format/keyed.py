"""Keyed records: in a segment with `FLAG_KEYED`, each payload begins with its key.

| offset | size | field    | type  | meaning                                              |
| -----: | ---: | -------- | ----- | ---------------------------------------------------- |
|      0 |    4 | key_size | u32   | 0: there is no key; else the length of the key, plus 1 |

Little-endian.  Then the key, then the value, which is the rest.  An empty key is a key.  The record's checksum covers
all of it.   Format: docs/format/record.md
"""

from typing import TYPE_CHECKING, Final

from latewood.errors import UsageError
from latewood.limits import KEY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

SIZE: Final = 4
_NO_KEY: Final = bytes(SIZE)


def encode(key: bytes | None, value: bytes) -> bytes:
    """Return the payload of a keyed record.

    Raises:
        UsageError: the key is too long, or not bytes.
    """
    if key is None:
        return _NO_KEY + value
    _check(key)
    return (len(key) + 1).to_bytes(SIZE, "little") + key + value


def check_all(keys: "Iterable[bytes | None]") -> None:
    """Look that each of them could be a key.

    Raises:
        UsageError: one is too long, or not bytes.
    """
    for key in keys:
        if key is not None:
            _check(key)


def decode(payload: bytes) -> tuple[bytes | None, bytes]:
    """Return key and value of a keyed record's payload.

    Raises:
        ValueError: it is too short for what it says.
    """
    size = int.from_bytes(payload[:SIZE], "little")
    start = SIZE + max(0, size - 1)
    if len(payload) < start:
        raise ValueError("a payload is too short for its key")
    return (payload[SIZE:start] if size else None), payload[start:]


def _check(key: object) -> None:
    if not isinstance(key, bytes):
        message = f"a key must be bytes, not {type(key).__name__}"
        raise UsageError(message)
    if len(key) > KEY_BYTES_MAX:
        message = f"a key of {len(key):,} bytes is longer than {KEY_BYTES_MAX:,}"
        raise UsageError(message)
