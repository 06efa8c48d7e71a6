"""Looks at segments of a log, in bundles.  Needs a disk and nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import NotFoundError
from latewood.format.entries import SegmentEntry
from latewood.log.layout import Layout
from latewood.log.summary import SegmentSummary, summarize
from latewood.log.verify import Look
from latewood.tasks.engine import Check, Engine, Tools, no_check
from latewood.tasks.parcels import PARCEL_BYTES, parcels

_FILES_MIN: Final = 32
"""Of one task, of a log that is not large: less is not worth sending."""
_FILES_MAX: Final = 4096
"""Whose ends one task looks at: less than a second, or some on a slow disk."""
_TASKS_IN_A_LANE: Final = 4
"""At least so many for each lane, so that none is waited for long."""


class SegmentsTask(NamedTuple):
    """Some segments to look at."""

    paths: tuple[str, ...]
    deep: bool
    """Whether every record is looked at."""


class SegmentSeen(NamedTuple):
    """What was seen of a segment."""

    path: Path
    summary: SegmentSummary | None
    """None: it is not there."""

    def found(self) -> SegmentSummary:
        """Return what it is.

        Raises:
            NotFoundError: it is not there.
        """
        if self.summary is None:
            raise NotFoundError(f"{self.path} is not there")
        return self.summary


def looks_at_ends(engine: Engine, paths: Sequence[Path], check: Check = no_check) -> Iterator[SegmentSummary]:
    """Yield what segments are by their headers and footers, as `latewood.log.rebuild` wants it, read by an engine."""
    share = -(-len(paths) // (engine.lanes * _TASKS_IN_A_LANE))
    bundles = parcels(paths, lambda _: 1, min(max(share, _FILES_MIN), _FILES_MAX))
    tasks = (SegmentsTask(tuple(map(str, bundle)), deep=False) for bundle in bundles)
    return (seen.found() for seen in engine.map(look_at_segments, tasks, check))


def looks_at_records(
    engine: Engine, layout: Layout, entries: Sequence[SegmentEntry], check: Check = no_check
) -> Iterator[Look]:
    """Yield looks at every record of sealed segments, as `latewood.log.verify` wants them, taken by an engine."""
    bundles = parcels(entries, lambda entry: entry.size, PARCEL_BYTES)
    tasks = (SegmentsTask(tuple(str(layout.absolute(entry.path)) for entry in one), deep=True) for one in bundles)
    return (seen.found for seen in engine.map(look_at_segments, tasks, check))


def look_at_segments(task: SegmentsTask, tools: Tools) -> Iterator[SegmentSeen]:
    """Yield what each segment is, as `summarize` finds it."""
    for path in map(Path, task.paths):
        try:
            yield SegmentSeen(path, summarize(tools.fs, path, deep=task.deep))
        except NotFoundError:
            yield SegmentSeen(path, None)
