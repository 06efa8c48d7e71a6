"""Keyed records: `u32 key length + 1, or 0 | key | value`."""

from typing import Final

_PREFIX: Final = 4


def split(payload: bytes) -> tuple[bytes | None, bytes]:
    """Return one payload's key, if it has one, and its value; raise ValueError if it is too short for what it says."""
    size = int.from_bytes(payload[:_PREFIX], "little")
    start = _PREFIX + max(0, size - 1)
    if len(payload) < start:
        raise ValueError("a payload is too short for its key")
    return (payload[_PREFIX:start] if size else None), payload[start:]
