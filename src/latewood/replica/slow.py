"""Which committed entries take long to route, because partitions are made, removed, or roll.  Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from latewood.replica.partition import RECORD_HEAD_BYTES
from latewood.replica.routing import Committed

MADE_AT_ONCE: Final = 64
"""Partitions that are made in one go; others have their turn in between."""


def slow_count(entries: Sequence[Committed], takes: Callable[[int, int], bool | None]) -> int | None:
    """Return how many of the entries are to be routed slowly, in one go; None: all of them are quick.

    `takes` says whether a partition takes so many more bytes before it rolls; None: there is no such partition.  It is
    asked once for what all of the entries bring to a partition.
    """
    sizes: dict[int, int] = {}
    new, is_slow = set[int](), False
    for count, entry in enumerate(entries):
        is_slow = is_slow or entry.tears_down
        for command in entry.commands:
            payloads = command.payloads
            size = sum(map(len, payloads)) + RECORD_HEAD_BYTES * len(payloads)
            known = sizes.get(command.partition_id)
            if known is None and takes(command.partition_id, 0) is None:
                new.add(command.partition_id)
            sizes[command.partition_id] = size + (known or 0)
        if len(new) > MADE_AT_ONCE:
            return max(1, count)
    if is_slow or new:
        return len(entries)
    return None if all(takes(partition_id, size) for partition_id, size in sizes.items()) else len(entries)


def births(entries: Sequence[Committed]) -> dict[int, int]:
    """Return the first entry of each partition that entries are for; none if they remove some partition."""
    born: dict[int, int] = {}
    for entry in entries:
        if entry.tears_down:
            return {}
        for command in entry.commands:
            born.setdefault(command.partition_id, entry.index)
    return born
