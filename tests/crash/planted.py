"""Bugs that a log could have, each of which has bitten somebody.  They are planted by replacing one function."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from latewood.format.identity import LogIdentity
from latewood.format.manifest import ActiveSegment, Manifest
from latewood.format.segment import HEADER_SIZE, SegmentHeader, encode_header
from latewood.fs import DualSlot, File, FileSystem
from latewood.log import Log, Stream
from latewood.log.layout import Layout
from latewood.log.manifest import ManifestStore
from latewood.log.writer import Writer
from latewood.segment import SegmentWriter, file_bytes
from latewood.testing.mem_file import MemFile


class Bug(NamedTuple):
    """What is replaced, by what, and the scene in which that shows."""

    target: str
    replacement: Callable[..., object]
    scene: str
    states: int = 40
    """Tried at each step; more where several things must be lost together."""

    def planted(self) -> AbstractContextManager[object]:
        return mock.patch(self.target, self.replacement)


def publish_by_truncating(self: DualSlot, slot: int) -> None:
    """Open the pointer with O_TRUNC: for a moment there is none."""
    file = self._fs.open(self._pointer, create=True)
    file.truncate(0)
    self._write_pointer(file, slot)
    file.close()
    self._fs.sync_directory(self._directory)


def write_the_current_slot(
    self: ManifestStore, manifest: Manifest, write: Callable[..., int] = ManifestStore.write
) -> int:
    current = self._slots.current()
    with mock.patch.object(DualSlot, "current", return_value=2 if current == 1 else 1):
        return write(self, manifest)


def name_a_segment_before_its_header(
    fs: FileSystem, layout: Layout, file: File, header: SegmentHeader, path: str
) -> File:
    """Write the header, and leave it to the first flush to sync it."""
    file.pwrite(encode_header(header), 0)
    target = layout.absolute(path)
    fs.make_directory(target.parent)
    fs.rename(file.path, target)
    fs.sync_directory(target.parent)
    fs.sync_directory(layout.segments)
    file.path = target
    return file


def publish_before_the_segment(
    self: Writer, header: SegmentHeader, path: str, begin: Callable[..., File] = Writer._begin_segment
) -> File:
    active = ActiveSegment(header.segment_index, HEADER_SIZE, 0, path)
    self._store_manifest(self.manifest._replace(active=active, next_sequence=header.base_record_count))
    return begin(self, header, path)


def leave_what_follows_a_torn_tail(file: File, header: SegmentHeader, *_: int) -> None:
    """Cut nothing: the next record will overwrite it, one hopes."""
    file.allocate(file_bytes(header.max_size, header.index_interval))
    file.sync()


def checkpoint_before_the_sync(self: MemFile, note: File, data: bytes, *, durable: bool) -> None:
    note.pwrite(data, 0)
    self.sync()
    if durable:
        note.sync()


def reserve_without_a_sync(self: MemFile, note: File, data: bytes, *, durable: bool) -> None:
    del durable
    self.sync()
    note.pwrite(data, 0)


def commit_without_the_records(self: Log, stream: Stream) -> None:
    del self, stream


def seal_without_a_sync(self: SegmentWriter, seal: Callable[..., Any] = SegmentWriter.seal, **fields: object) -> Any:
    with mock.patch.object(type(self.file), "sync", return_value=None):
        return seal(self, **fields)


def remove_before_the_manifest(self: Writer, segment_id: int, retire: Callable[..., None] = Writer.retire) -> None:
    entries = self.manifest.entries
    paths = [entries[index].path for index in range(entries.index_after_segment(segment_id))]
    self.remove_files([self._layout.absolute(path) for path in paths])
    with mock.patch.object(Writer, "remove_files"):
        retire(self, segment_id)


def replace_without_a_sync(fs: FileSystem, path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    file = fs.open(temporary, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()
    fs.rename(temporary, path)
    fs.sync_directory(path.parent)


def store_without_the_watermark(
    self: Writer, manifest: Manifest, store: Callable[..., None] = Writer._store_manifest
) -> None:
    """Leave it to the footer, which goes with its segment, and to `current.sealed`."""
    store(self, manifest._replace(coordinator_watermark=self.manifest.coordinator_watermark))


def leave_what_is_in_the_way(*_: object) -> None:
    """Of a segment that a cut has left both names, or the new one, is never taken for one that may go."""


def belongs_always(*_: object) -> None:
    """Take every position for one of this log."""


def stay_in_the_life(identity: LogIdentity, *_: object) -> LogIdentity:
    """Begin no life."""
    return identity


class Mixup(NamedTuple):
    """A bug that shows when the log under a path is not the one that it was."""

    target: str
    replacement: Callable[..., object]
    swap: str

    def planted(self) -> AbstractContextManager[object]:
        return mock.patch(self.target, self.replacement)


MIXUPS: Final = {
    "identities are not compared when a reader resumes": Mixup(
        "latewood.queue.ahead.stranger_reason", belongs_always, "deleted and made anew"
    ),
    "a rebuild begins no life": Mixup("latewood.log.rebuild.reborn", stay_in_the_life, "rebuilt without its end"),
    "a copy that is put in place begins no life": Mixup(
        "latewood.log.rebuild.reborn", stay_in_the_life, "replaced by an older copy"
    ),
    "where the log went back to is not looked at": Mixup(
        "latewood.queue.ahead.lost_from", belongs_always, "rebuilt without its end"
    ),
    "a rebuild does not look for the second copy of the identity": Mixup(
        "latewood.log.rebuild.load_identity", belongs_always, "rebuilt without a manifest"
    ),
}


BUGS: Final = {
    "the pointer is truncated before it is written": Bug("latewood.fs.DualSlot.publish", publish_by_truncating, "roll"),
    "the slot that counts is written over": Bug(
        "latewood.log.manifest.ManifestStore.write", write_the_current_slot, "roll"
    ),
    "a segment is named before its header is durable": Bug(
        "latewood.log.writer.begin_segment", name_a_segment_before_its_header, "roll"
    ),
    "the manifest is published before the segment is there": Bug(
        "latewood.log.writer.Writer._begin_segment", publish_before_the_segment, "roll"
    ),
    "what follows a torn tail is left there": Bug(
        "latewood.log.recovery._cut", leave_what_follows_a_torn_tail, "append across sectors", 60
    ),
    "the checkpoint is written before the sync": Bug(
        "latewood.testing.mem_file.MemFile.sync_and_note", checkpoint_before_the_sync, "flush"
    ),
    "a reservation is not synced": Bug(
        "latewood.testing.mem_file.MemFile.sync_and_note", reserve_without_a_sync, "batch across sectors", 200
    ),
    "a position is stored before its records": Bug(
        "latewood.log.log.Log.make_durable", commit_without_the_records, "reader"
    ),
    "a seal is not synced": Bug("latewood.segment.SegmentWriter.seal", seal_without_a_sync, "roll"),
    "segments are removed before the manifest forgets them": Bug(
        "latewood.log.writer.Writer.retire", remove_before_the_manifest, "cleanup"
    ),
    "the watermark of a seal is not kept in the manifest": Bug(
        "latewood.log.writer.Writer._store_manifest", store_without_the_watermark, "cleanup of all"
    ),
    "a name that a cut roll has left is in the way of the next": Bug(
        "latewood.log.creation.make_room", leave_what_is_in_the_way, "roll"
    ),
    "a new reader's file is named before it is durable": Bug(
        "latewood.queue.cursor.replace_file", replace_without_a_sync, "reader"
    ),
}
