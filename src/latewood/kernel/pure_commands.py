"""The commands in an entry of a cluster's parent log.  `latewood.format.entry` has their layout, and the errors."""

import struct
from typing import Final, TypeAlias

_HEAD: Final = struct.Struct("<BBHIQQQQ")
_ACTIONS: Final = frozenset((1, 2))

CommandValue: TypeAlias = tuple[int, int, list[bytes], int, bytes, int]
"""Partition, first index, records, time, name of the request, action."""


def split_commands(data: bytes, version: int) -> tuple[list[CommandValue], int]:
    """Return the commands in `data`, and where they end: before its end, if what is there is none."""
    commands, start, end = list[CommandValue](), 0, len(data)
    while end - start >= _HEAD.size:
        found, action, request_bytes, count, partition_id, first, timestamp_ns, size = _HEAD.unpack_from(data, start)
        lengths, stop = start + _HEAD.size + request_bytes, start + size
        record = lengths + 4 * count
        if found != version or action not in _ACTIONS or stop > end or record > stop:
            break
        payloads = list[bytes]()
        for length in struct.unpack_from(f"<{count}I", data, lengths):
            payloads.append(data[record : record + length])
            record += length
        if record != stop:
            break
        request = data[start + _HEAD.size : lengths]
        commands.append((partition_id, first, payloads, timestamp_ns, request, action))
        start = stop
    return commands, start
