"""A log in figures."""

from dataclasses import dataclass
from pathlib import Path

from latewood import kernel
from latewood.errors import NotFoundError
from latewood.format.manifest import Manifest
from latewood.fs import FileSystem
from latewood.log.layout import Layout
from latewood.types import Position


@dataclass(frozen=True, slots=True)
class LogStats:
    """What a log holds, at one moment."""

    path: Path
    """The log's directory."""
    first_sequence: int
    """The oldest record's."""
    next_sequence: int
    """That of the next record to be appended."""
    durable_sequence: int
    """Every record below it is durable."""
    segment_count: int
    """Sealed segments and the open one."""
    sealed_bytes: int
    """Bytes of all sealed segments' files."""
    active_segment_id: int
    """The open segment's number."""
    active_bytes: int
    """Bytes written in the open segment."""
    manifest_generation: int
    """Grows with each roll, cleanup and close."""
    kernel: str
    """`native` or `pure`."""

    @property
    def record_count(self) -> int:
        """Records that can be read."""
        return self.next_sequence - self.first_sequence

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, as far as they are written."""
        return self.sealed_bytes + self.active_bytes


def stats_of(path: Path, manifest: Manifest, end: Position, durable_sequence: int) -> LogStats:
    """Return the figures of the log at `path` that ends at `end`."""
    entries = [manifest.entries[index] for index in range(len(manifest.entries))]
    return LogStats(
        path=path,
        first_sequence=manifest.first_sequence,
        next_sequence=end.sequence,
        durable_sequence=durable_sequence,
        segment_count=len(entries) + 1,
        sealed_bytes=sum(entry.size for entry in entries),
        active_segment_id=end.segment_id,
        active_bytes=end.offset,
        manifest_generation=manifest.generation,
        kernel=kernel.NAME,
    )


def allocated_bytes(fs: FileSystem, layout: Layout, manifest: Manifest) -> int:
    """Return the bytes of all segments' files, with the room that the open one, and the one prepared next, reserve."""
    sealed = sum(manifest.entries[index].size for index in range(len(manifest.entries)))
    return sealed + _size(fs, layout.absolute(manifest.active.path)) + _size(fs, layout.next_segment)


def _size(fs: FileSystem, path: Path) -> int:
    try:
        file = fs.open(path)
    except NotFoundError:  # Not prepared yet; or sealed, or retired, since we looked.
        return 0
    try:
        return file.size()
    finally:
        file.close()
