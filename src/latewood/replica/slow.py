"""Which committed entries take long to route, because partitions are made, removed, or roll.  Pure.

Looks at the bytes of commands without decoding them: it is asked for every entry.   Format: docs/format/entry.md
"""

from collections.abc import Callable, Sequence
from typing import Final

from latewood.format.entry import Action
from latewood.replica.engine import Entry, EntryKind

MADE_AT_ONCE: Final = 64
"""Partitions that are made in one go; others have their turn in between."""
RECORD_HEAD_BYTES: Final = 32
"""At least what a record takes beside its payload, alignment included."""


def slow_count(entries: Sequence[Entry], room: Callable[[int], int | None]) -> int | None:
    """Return how many of the entries are to be routed slowly, in one go; None: all of them are quick.

    `room` says how many bytes a partition takes before it rolls; None: there is no such partition.
    """
    new, is_slow, before = set[int](), False, b""
    seen = set[int]()
    size = sum([len(entry.data) for entry in entries]) + RECORD_HEAD_BYTES * len(entries)
    for count, (_, _, kind, data) in enumerate(entries):
        head = data[1:16]
        if head == before:  # As the one before it: mostly.
            continue
        before = head
        if kind == EntryKind.NORMAL and data:
            partition_id = int.from_bytes(data[8:16], "little")
            if data[1] == Action.TEAR_DOWN:
                is_slow = True
            elif partition_id not in seen:
                seen.add(partition_id)
                left = room(partition_id)
                is_slow = is_slow or (left is not None and left < size)
                if left is None:
                    new.add(partition_id)
                    if len(new) > MADE_AT_ONCE:
                        return count
    return len(entries) if is_slow or new else None


def births(entries: Sequence[Entry]) -> dict[int, int]:
    """Return the first entry of each partition that entries are for; none if they remove some partition."""
    born: dict[int, int] = {}
    for entry in entries:
        if entry.kind == EntryKind.NORMAL and entry.data:
            if entry.data[1] == Action.TEAR_DOWN:
                return {}
            born.setdefault(int.from_bytes(entry.data[8:16], "little"), entry.index)
    return born
