"""How a flush is cut into tasks.  Pure.

A task takes whole segments.  Where all is done in one place a shard is one task, which cuts its chunks as it goes; each
of many tasks ends with a chunk that may be smaller than it should be, so a task is worth a chunk at least.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from latewood.tasks.parcels import parcels

_RATIO: Final = 4
"""Bytes of a log that become one byte of a chunk, often; of what does not compress a task makes as many chunks."""


class Stretch(NamedTuple):
    """The records of one sealed segment."""

    start: int
    stop: int
    size_bytes: int


def slice_bytes(total: int, lanes: int, chunk_bytes: int) -> int:
    """Return how much of the logs one task takes: an equal share, within bounds."""
    return min(max(-(-total // lanes), chunk_bytes), _RATIO * chunk_bytes)


def slices(stretches: Sequence[Stretch], start: int, stop: int, bytes_max: int | None) -> list[tuple[int, int]]:
    """Return ranges of sequences, one for each task, that follow on one another from `start` to `stop`.

    `stretches` are in order; `bytes_max` is None if there should be one task.
    """
    within = [stretch for stretch in stretches if stretch.start < stop and start < stretch.stop]
    if bytes_max is None or not within:
        return [(start, stop)] if start < stop else []
    bounds = [bundle[0].start for bundle in parcels(within, lambda stretch: stretch.size_bytes, bytes_max)]
    return list(zip([start, *bounds[1:]], [*bounds[1:], stop], strict=True))
