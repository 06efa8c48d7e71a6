"""Segments in the place of the active one or after it that the manifest does not know.

No crash leaves one with a record: the manifest is durable before a segment's first record.  So where there is one, an
older copy of the manifest was put beside newer segments.  Going on would use their ids again, and `cleanup` would take
them for retired ones: the log refuses to open to write.  A segment without records is what a crash in a roll may leave.

`newer_segments` lists the directories of the active segment's day and of later days.  In those of earlier days, because
clocks may go back, it looks for two names: the active segment's id, and the next.  No file of a sound log is opened.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from latewood.errors import ManifestCorrupted
from latewood.format.manifest import Manifest
from latewood.format.segment import HEADER_SIZE
from latewood.fs import FileSystem
from latewood.log.layout import Layout, segment_id_of, segment_name

_DAYS_MAX: Final = 4096
"""Directories of earlier days that are checked, the latest first.  Each costs two calls of `stat`."""
_MARK_AT: Final = HEADER_SIZE + 4
_MARK_BYTES: Final = 4


def check_no_newer_segment(fs: FileSystem, layout: Layout, manifest: Manifest) -> None:
    """Refuse a log with a segment that has records and the active one's id or a later one, and is not in the manifest.

    Raises:
        ManifestCorrupted: there is one, so the manifest is older than the segments.
    """
    for path in newer_segments(fs, layout, manifest):
        if has_record(fs, path):
            raise unknown_successor(layout, path)


def newer_segments(fs: FileSystem, layout: Layout, manifest: Manifest) -> Iterator[Path]:
    """Yield segments with ids from the active one's on, but not that one itself; not all, if there are many."""
    active, active_id = layout.absolute(manifest.active.path), manifest.active.segment_id
    earlier = 0
    for day in _days(fs, layout.segments):
        if day >= active.parent:
            names = _from(segment_name(active_id), fs.list(day))
        elif earlier < _DAYS_MAX:
            earlier += 1
            names = [segment_name(number) for number in (active_id, active_id + 1)]
            names = [name for name in names if fs.exists(day / name)]
        else:
            return
        found = (day / name for name in names)
        yield from (path for path in found if path != active and segment_id_of(path) is not None)


def _from(first: str, names: list[str]) -> list[str]:
    """Return the names of segments from one on: numbers of the same length are ordered as their texts are.

    A day may have a million of them, and an opening is to cost no more than their list.
    """
    length = len(first)
    return [name for name in names if (len(name) == length and name >= first) or len(name) > length]


def make_room(fs: FileSystem, layout: Layout, path: Path) -> None:
    """Remove the segment without records that a roll has left in the way of the next one, if there is one.

    Raises:
        ManifestCorrupted: it has records.
    """
    if not fs.exists(path):
        return
    if has_record(fs, path):
        raise unknown_successor(layout, path)
    fs.remove(path)


def has_record(fs: FileSystem, path: Path) -> bool:
    """Say whether a segment has a record, or a seal: the first mark in it says so."""
    file = fs.open(path)
    try:
        return bool(file.pread(_MARK_BYTES, _MARK_AT).strip(b"\0"))
    finally:
        file.close()


def unknown_successor(layout: Layout, path: Path) -> ManifestCorrupted:
    """Return the error for a segment with records that the manifest does not know."""
    reason = "this segment has records, and the manifest does not know it: an older manifest was put beside it"
    error = ManifestCorrupted(reason, path, HEADER_SIZE)
    error.mend = (
        f"`latewood rebuild --dry-run {layout.root}` says what the segments add up to, and `latewood rebuild "
        f"{layout.root}` goes on with that; or restore all of {layout.root} from one copy; or, to go on without "
        f"the newer records, move this segment and those of higher numbers out of {layout.segments}, "
        f"and then `latewood rebuild --new-life {layout.root}` tells readers that had come to them"
    )
    return error


def _days(fs: FileSystem, segments: Path) -> Iterator[Path]:
    """Yield the directories of days, the latest first."""
    for year in _numbered(fs, segments, 4):
        for month in _numbered(fs, year, 2):
            yield from _numbered(fs, month, 2)


def _numbered(fs: FileSystem, directory: Path, digits: int) -> list[Path]:
    names = [name for name in fs.list(directory) if len(name) == digits and name.isascii() and name.isdigit()]
    return [directory / name for name in sorted(names, reverse=True)]
