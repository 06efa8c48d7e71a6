"""Recovery: rebuild a log's state after a crash.

Loads the manifest, then scans the open segment's tail from the last checkpoint on, and nothing else.  Never
repairs a sealed segment, nor anything that was durable: damage there raises CorruptError and the log stays
closed.  What was not yet durable may be torn in any way by a power cut, and ends at the first record that
is not sound.

Invariant: nothing but zeros follows the end of the records once `recover` returns.
Cut points: docs/crash-safety.md, "recovery".
"""

import logging
from typing import NamedTuple

from latewood.errors import CorruptError, ManifestCorrupted, NotFoundError
from latewood.format.checkpoint import Checkpoint
from latewood.format.manifest import Manifest
from latewood.format.seal import tail_bytes_max
from latewood.format.segment import HEADER_SIZE, SegmentFooter, SegmentHeader
from latewood.fs import File, FileSystem
from latewood.kernel import EMPTY, SEALED, find_record, nonzero_end, verify
from latewood.limits import MiB
from latewood.log.checkpoint import load_checkpoint
from latewood.log.layout import Layout
from latewood.segment import Tail, check_seal, empty_tail, file_bytes, read_footer, read_header, read_seal_at

_logger = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """The open segment as it was found, ready to be written."""

    file: File
    header: SegmentHeader
    tail: Tail
    flush_failed: bool
    footer: SegmentFooter | None
    """Set if a crash came between its seal and the manifest: the roll is still to be finished."""


class _Found(NamedTuple):
    tail: Tail
    state: int
    durable_end: int
    garbage_end: int


def recover(fs: FileSystem, layout: Layout, manifest: Manifest, previous: SegmentFooter | None) -> Recovered:
    """Return the open segment of `manifest`, its tail made sound.  `previous` is the footer before it.

    Raises:
        CorruptError: something that was durable is damaged.
        ManifestCorrupted: manifest and segment do not agree.
    """
    path = layout.absolute(manifest.active.path)
    try:
        file = fs.open(path, write=True)
    except NotFoundError as error:
        raise ManifestCorrupted(
            "the active segment is missing: restore the file from a copy, if there is one", path, 0
        ) from error
    try:
        header = read_header(file)
        _check_header(header, manifest, file)
        checkpoint = _usable(load_checkpoint(fs, layout), header, manifest)
        start = _tail_of(checkpoint) if checkpoint else empty_tail(previous.max_timestamp if previous else 0)
        found = _scan(file, header, manifest, checkpoint, start)
        return _repair(file, header, checkpoint, start, found)
    except BaseException:
        file.close()
        raise


def read_last_footer(fs: FileSystem, layout: Layout, manifest: Manifest) -> SegmentFooter | None:
    """Return the footer of the latest sealed segment.

    Raises:
        ManifestCorrupted: it is missing, or is not what the manifest says.
        CorruptError: it is damaged, or is not the segment that the log sealed.
    """
    if not len(manifest.entries):
        return None
    entry = manifest.entries[-1]
    path = layout.absolute(entry.path)
    try:
        file = fs.open(path)
    except NotFoundError as error:
        raise ManifestCorrupted(
            "a sealed segment is missing: restore the file from a copy, if there is one", path, 0
        ) from error
    try:
        footer = read_footer(file)
    finally:
        file.close()
    last = footer.base_record_count + footer.record_count - 1
    if (footer.base_record_count, last) != (entry.start_sequence, entry.end_sequence):
        raise ManifestCorrupted("footer and manifest do not agree", path, footer.index_offset)
    check_seal(footer, entry, path)
    return footer


def _check_header(header: SegmentHeader, manifest: Manifest, file: File) -> None:
    found = (header.segment_index, header.base_record_count)
    if found != (manifest.active.segment_id, manifest.active_base):
        raise ManifestCorrupted("header and manifest do not agree", file.path, 0)


def _usable(checkpoint: Checkpoint | None, header: SegmentHeader, manifest: Manifest) -> Checkpoint | None:
    """Return the checkpoint if it speaks of this segment and contradicts nothing."""
    if checkpoint is None or checkpoint.segment_id != header.segment_index:
        return None
    sane = HEADER_SIZE <= checkpoint.write_offset <= checkpoint.reserved_end <= header.max_size
    agrees = checkpoint.durable_sequence == manifest.active_base + checkpoint.record_count
    return checkpoint if sane and agrees else None


def _tail_of(checkpoint: Checkpoint) -> Tail:
    return Tail(checkpoint.write_offset, *checkpoint[3:9])


def _scan(file: File, header: SegmentHeader, manifest: Manifest, checkpoint: Checkpoint | None, start: Tail) -> _Found:
    """Find the end of the sound records, and refuse if it comes too soon."""
    size = file.size()
    durable_end = max(start.offset, manifest.active.write_offset)
    if size < durable_end:
        raise CorruptError("the active segment is cut short", file.path, size)
    full = file_bytes(header.max_size, header.index_interval)
    seal_bytes = tail_bytes_max(header.max_size, header.index_interval)
    garbage_end = min(full, checkpoint.reserved_end + seal_bytes) if checkpoint else full
    mapping = file.map(size, writable=False)
    try:
        count, end, state, first, last, highest, low_id, high_id = verify(mapping.view, start.offset, size)
        if end < durable_end:
            raise CorruptError("a durable record is damaged", file.path, end)
        if checkpoint is None and state not in (EMPTY, SEALED) and find_record(mapping.view, end + 8, size) >= 0:
            raise CorruptError("a record is damaged, and sound ones follow it", file.path, end)
        garbage_end = nonzero_end(mapping.view, end, file.data_end(end, min(garbage_end, size)))
    finally:
        mapping.close()
    tail = Tail(
        end,
        start.record_count + count,
        start.first_timestamp if start.record_count else first,
        last if count else start.last_timestamp,
        max(start.max_timestamp, highest),
        min(start.min_ext_id, low_id),
        max(start.max_ext_id, high_id),
    )
    return _Found(tail, state, durable_end, garbage_end)


def _repair(file: File, header: SegmentHeader, checkpoint: Checkpoint | None, start: Tail, found: _Found) -> Recovered:
    """Finish a seal that was completed, or cut what follows the records and make them durable."""
    flush_failed = checkpoint is not None and checkpoint.flush_failure_flag
    if found.state == SEALED:
        try:
            footer, size = read_seal_at(file, found.tail.offset)
        except CorruptError:
            _logger.info("%s: the seal was not completed and is cut", file.path)
        else:
            _rewrite(file, start.offset, size)
            file.truncate(size)
            file.sync()
            return Recovered(file, header, found.tail, flush_failed, footer)
    end, garbage_end = found.tail.offset, found.garbage_end
    _cut(file, header, start.offset if start.record_count else 0, end, garbage_end)
    if garbage_end > end:
        _logger.warning("%s: %d bytes of a torn tail were cut at byte %d", file.path, garbage_end - end, end)
    return Recovered(file, header, found.tail, flush_failed, None)


def _cut(file: File, header: SegmentHeader, start: int, end: int, garbage_end: int) -> None:
    """Leave bytes [start, end) durable, and zeros behind them."""
    full = file_bytes(header.max_size, header.index_interval)
    if start == end == garbage_end and file.size() >= full:
        return
    file.allocate(full)
    for at in range(end, garbage_end, MiB):
        file.pwrite(bytes(min(MiB, garbage_end - at)), at)
    _rewrite(file, start, end)
    file.sync()


def _rewrite(file: File, start: int, stop: int) -> None:
    """Write bytes as they are, so that the next sync is a true one.

    A sync that failed before the crash may have marked pages clean that never reached the disk: that goes for
    whatever no checkpoint vouches for.
    """
    for at in range(start, stop, MiB):
        file.pwrite(file.pread(min(MiB, stop - at), at), at)
