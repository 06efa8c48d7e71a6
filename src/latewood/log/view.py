"""What a reader knows of a log: a manifest, looked at again when it runs out.

Opens the segment that holds a sequence, the one after another, and the first that reaches a time.  Never
writes.  Not thread-safe: each stream has its own.
"""

from collections.abc import Callable
from pathlib import Path

from latewood.errors import DataLost, LatewoodError, ManifestCorrupted, NotFoundError
from latewood.format.entries import SegmentEntry
from latewood.format.manifest import Manifest
from latewood.format.segment import HEADER_SIZE
from latewood.fs import FileSystem
from latewood.kernel import verify
from latewood.limits import MANIFEST_RETRIES_MAX, U64_MAX
from latewood.log.checkpoint import load_checkpoint
from latewood.log.layout import Layout
from latewood.log.presence import no_segments
from latewood.segment import SegmentReader, read_sealed_footer
from latewood.types import Position


class View:
    """The segments of a log, as far as the latest manifest that was looked at tells."""

    def __init__(self, fs: FileSystem, layout: Layout, load: Callable[[], Manifest]) -> None:
        self.fs, self.layout, self._load = fs, layout, load
        self.manifest = load()

    def refresh(self) -> bool:
        """Look at the manifest again; return whether it has changed."""
        known, self.manifest = self.manifest.generation, self._load()
        return self.manifest.generation != known

    def segment_with(self, sequence: int) -> SegmentReader:
        """Open the segment that holds `sequence`, or will.

        Raises:
            DataLost: it was retired.
            CorruptError: the segment is damaged, or missing without having been retired.
            DirectoryReplaced: the whole log is gone, or another directory is in its place.
        """
        for _ in range(2):
            try:
                return self._open(*self._find(sequence))
            except (NotFoundError, DataLost):
                if not self.refresh():
                    break
        try:
            return self._open(*self._find(sequence))
        except NotFoundError as error:
            raise self._missing("a segment of the log", self._find(sequence)[0]) from error

    def segment_after(self, segment_id: int) -> SegmentReader | None:
        """Open the segment that follows a sealed one, or return None if the writer is not there yet."""
        sequence = self._start_after(segment_id)
        if sequence is None:
            self.refresh()
            sequence = self._start_after(segment_id)
        return None if sequence is None else self.segment_with(sequence)

    def position_of(self, sequence: int) -> Position:
        """Return where a record is.

        Raises:
            DataLost: it was retired.
        """
        reader = self.segment_with(sequence)
        try:
            return Position(reader.segment_id, reader.offset_of(sequence), sequence)
        finally:
            reader.close()

    def sequence_at(self, segment_id: int, offset: int) -> int | None:
        """Return the sequence of the record that begins at `offset` of a segment, or None if none does.

        If the segment is gone, that is the first record after it.
        """
        start = self._start_after(segment_id - 1)
        if start is None:
            return None
        reader = self.segment_with(start)
        try:
            return reader.sequence_at(offset) if reader.segment_id == segment_id else start
        finally:
            reader.close()

    def find_timestamp(self, timestamp_ns: int) -> int:
        """Return the sequence of the first record at or after a time, or that of the next to be appended."""
        while True:
            end = self.end()  # Before the search: what is appended meanwhile comes after it.
            try:
                found = self._search_timestamp(min(max(timestamp_ns, 0), U64_MAX), end)
            except NotFoundError as error:
                if not self.refresh():
                    raise self._missing("a segment of the log", self.layout.segments) from error
            else:
                return end.sequence if found is None else found

    def end(self) -> Position:
        """Return where the next record will go, by reading those since the last checkpoint."""
        while True:
            try:
                end = self._end_of_active()
            except NotFoundError as error:
                if not self.refresh():
                    raise self._missing("the active segment", self._active()[0]) from error
            else:
                if not self.refresh() or self.manifest.active.segment_id == end.segment_id:
                    return end

    def durable(self) -> int:
        """Return the sequence up to which all records are known to be durable.

        What was durable before the call is counted: a checkpoint of another segment than the manifest's says that the
        writer has rolled since the manifest was read, unless that is still the newest, and the checkpoint to come.
        """
        for _ in range(MANIFEST_RETRIES_MAX):
            checkpoint = load_checkpoint(self.fs, self.layout)
            if checkpoint and checkpoint.segment_id == self.manifest.active.segment_id:
                return max(self.manifest.next_sequence, checkpoint.durable_sequence)
            if not self.refresh():
                break
        return self.manifest.next_sequence

    def _search_timestamp(self, timestamp_ns: int, end: Position) -> int | None:
        """Return the sequence of the first record at or after a time, if there is one.

        The largest timestamp so far never falls from one footer to the next, so this halves the segments.  The
        first that has reached the time may owe that to a record that was retired since: then the search goes on.
        """
        entries = self.manifest.entries
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            reached = self._max_timestamp(entries[middle])
            low, high = (middle + 1, high) if reached < timestamp_ns else (low, middle)
        for index in range(low, len(entries) + 1):
            entry = entries[index] if index < len(entries) else None
            reader = self._open(self._path(entry) if entry else self._active()[0], entry)
            try:
                if entry is None and reader.segment_id == end.segment_id:
                    reader.end_at(end.offset)
                found = reader.find_timestamp(timestamp_ns)
            finally:
                reader.close()
            if found:
                return found[0]
        return None

    def _end_of_active(self) -> Position:
        reader = self._open(*self._active())
        try:
            start, count = self._checkpointed(reader)
            more, offset, *_ = verify(reader.view, start, reader.limit)
            return Position(reader.segment_id, offset, reader.base_sequence + count + more)
        finally:
            reader.close()

    def _checkpointed(self, reader: SegmentReader) -> tuple[int, int]:
        checkpoint = load_checkpoint(self.fs, self.layout)
        # One that speaks of bytes beyond the file came with another copy of the log.
        if checkpoint and checkpoint.segment_id == reader.segment_id and checkpoint.write_offset <= reader.limit:
            return checkpoint.write_offset, checkpoint.record_count
        return HEADER_SIZE, 0

    def _start_after(self, segment_id: int) -> int | None:
        manifest = self.manifest
        index = manifest.entries.index_after_segment(segment_id)
        if index < len(manifest.entries):
            return manifest.entries[index].start_sequence
        return manifest.active_base if manifest.active.segment_id > segment_id else None

    def _find(self, sequence: int) -> tuple[Path, SegmentEntry | None]:
        manifest = self.manifest
        if sequence >= manifest.active_base:
            return self._active()
        index = manifest.entries.index_of_sequence(sequence)
        if index >= 0 and sequence <= manifest.entries[index].end_sequence:
            entry = manifest.entries[index]
            return self._path(entry), entry
        rest = index + 1 < len(manifest.entries)
        raise DataLost(sequence, manifest.entries[index + 1].start_sequence if rest else manifest.active_base)

    def _active(self) -> tuple[Path, None]:
        return self.layout.absolute(self.manifest.active.path), None

    def _path(self, entry: SegmentEntry) -> Path:
        return self.layout.absolute(entry.path)

    def _missing(self, what: str, path: Path) -> ManifestCorrupted:
        """Return the error of a file that is not there; of a directory that was deleted, raise that."""
        self.fs.check_root()
        if not self.fs.exists(self.layout.segments):
            return no_segments(self.layout)
        return ManifestCorrupted(f"{what} is missing: restore the file from a copy, if there is one", path, 0)

    def _open(self, path: Path, entry: SegmentEntry | None) -> SegmentReader:
        """Open a segment of the log that was opened.

        The log of a shard is found through the directory of its store, so another log may have taken its place there.

        Raises:
            DirectoryReplaced: it has.
        """
        try:
            reader = SegmentReader(self.fs, path, entry)
        except LatewoodError:
            self.fs.check_root()  # A directory that was deleted says more than what is missing in it.
            raise
        try:
            self.fs.check_root()
        except BaseException:
            reader.close()
            raise
        return reader

    def _max_timestamp(self, entry: SegmentEntry) -> int:
        file = self.fs.open(self._path(entry))
        try:
            return read_sealed_footer(file, entry).max_timestamp
        finally:
            file.close()
