"""The head of a log, for owners that have no readers and decide themselves what may go.

A queue's head belongs to its readers and its policy: use `Queue.cleanup` there.  Order of writes:
docs/crash-safety.md, "cleanup".
"""

# ruff: noqa: SLF001 - the same layer: this is what `Log` would have, were it not for the queue that inherits it
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from latewood.errors import CorruptError
from latewood.format.identity import LogIdentity
from latewood.fs import FileSystem
from latewood.kernel import Door
from latewood.log.layout import Layout, segment_id_of
from latewood.log.log import Log
from latewood.log.manifest import ManifestStore
from latewood.segment import read_sealed_footer


class SealedPart(NamedTuple):
    """What an owner needs to know of a sealed segment."""

    segment_id: int
    end_sequence: int
    """Its last sequence, included."""
    size: int
    newest_ns: int
    """The highest timestamp of its records; 0 if it was not asked for."""


def identity_of(fs: FileSystem, path: Path) -> LogIdentity | None:
    """Return the identity of the log in a directory, which is not opened.

    None: there is none, an older program made it, or its manifest is damaged, which opening it says.

    Raises:
        UnsupportedVersion: a later program wrote it.
    """
    store = ManifestStore(fs, Layout(path))
    try:
        return None if store.is_unfinished_creation() else store.load().identity
    except CorruptError:
        return None


def sealed_parts(log: Log, *, with_times: bool) -> Iterator[SealedPart]:
    """Yield the sealed segments, the oldest first; each time costs a look into a file."""
    entries = log._writer.manifest.entries
    for index in range(len(entries)):
        entry, newest_ns = entries[index], 0
        if with_times:
            file = log._fs.open(log._layout.absolute(entry.path))
            try:
                newest_ns = read_sealed_footer(file, entry).max_timestamp
            finally:
                file.close()
        yield SealedPart(entry.segment_id, entry.end_sequence, entry.size, newest_ns)


def retire_before(log: Log, sequence: int) -> list[int]:
    """Drop the sealed segments whose records all lie before `sequence`; return their ids.

    Raises:
        Poisoned: the manifest could not be published; reopen the log.
        ReadOnlyError: the log was opened with `mode="r"`.
    """
    entries = log._writer.manifest.entries
    ids = []
    for index in range(len(entries)):
        entry = entries[index]
        if entry.end_sequence >= sequence:
            break
        ids.append(entry.segment_id)
    if ids:
        log._writer.retire(ids[-1])
    return ids


def sweep_head(log: Log) -> None:
    """Remove the files of segments that an interrupted retirement took out of the manifest but not off the disk."""
    manifest = log._writer.manifest
    known = {manifest.entries[index].path for index in range(len(manifest.entries))}
    old = [path for path in log._fs.walk(log._layout.segments) if _is_before(path.name, manifest.active.segment_id)]
    left = [path for path in old if log._layout.relative(path) not in known]
    if left:
        log._writer.remove_files(left)


def door_of(log: Log) -> Door:
    """Return what leads to the open segment, from roll to roll."""
    return log._writer.door


def room_bytes(log: Log) -> int:
    """Return how many bytes of records the open segment still takes before the log rolls."""
    segment = log._writer.segment
    return max(0, segment.records_end_max - segment.tail().offset)


def _is_before(name: str, active_segment_id: int) -> bool:
    segment_id = segment_id_of(Path(name))
    return segment_id is not None and segment_id < active_segment_id
