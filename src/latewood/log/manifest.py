"""Load and store the manifest through its two slots.

A corrupt manifest is an error, never a reason to look at the other slot: that one lacks a segment.

Format: docs/format/manifest.md.  Order of writes: docs/crash-safety.md, "manifest".
"""

from latewood.errors import DirectoryReplaced, ManifestCorrupted, NotFoundError
from latewood.format.entries import EntryTable
from latewood.format.identity import LogIdentity
from latewood.format.manifest import (
    HEADER_SIZE,
    VERSION_END,
    ActiveSegment,
    Manifest,
    check_version,
    decode,
    encode_front,
)
from latewood.format.segment import HEADER_SIZE as SEGMENT_HEADER_SIZE
from latewood.fs import DualSlot, FileSystem
from latewood.limits import MANIFEST_BYTES_MAX, MANIFEST_RETRIES_MAX
from latewood.log.layout import Layout, segment_path

_FIRST_SLOT = 1
_SECOND_SLOT = 2


class ManifestStore:
    """The manifest on disk.  One writer; any number of readers, in any process."""

    def __init__(self, fs: FileSystem, layout: Layout) -> None:
        self._fs, self._layout = fs, layout
        self._slots = DualSlot(fs, layout.root, "manifest")
        self._written: dict[int, tuple[EntryTable, int]] = {}
        """What each slot holds since this object wrote it: its entries, and where they begin."""
        self._seen: tuple[bytes, Manifest] | None = None
        """The header that a reader saw last, and what it is of."""
        self._log: bytes | None = None
        """The identity of the log that a reader reads, once a manifest has said it."""

    def load(self) -> Manifest:
        """Return the current manifest.

        Raises:
            ManifestCorrupted: the pointer or its slot is not sound.
            UnsupportedVersion: a later program wrote it.
        """
        slot = self._slots.current()
        if slot not in (_FIRST_SLOT, _SECOND_SLOT):
            reason = "the pointer is missing" if slot is None else f"the pointer says {slot}, not 1 or 2"
            raise ManifestCorrupted(reason, self._slots.pointer_path, 0)
        return self._decode(slot)

    def secure(self) -> None:
        """Make the current manifest, which was loaded, durable.

        A writer may have been killed before it synced the pointer, or its sync failed, which leaves the byte in
        memory and clean: it is written again, so that the next sync is a true one.  The slot was synced before it.
        """
        slot = self._slots.current()
        assert slot is not None
        self._slots.publish(slot)
        self._fs.sync_directory(self._layout.root)

    def load_while_written(self) -> Manifest:
        """Return the current manifest while a writer may be replacing it.

        Raises:
            ManifestCorrupted: it is not sound, however often we look.
            DirectoryReplaced: it is of another log than the one before, whose files were put into the same directory.
        """
        for _ in range(MANIFEST_RETRIES_MAX):
            try:
                manifest = self._load_if_changed()
            except ManifestCorrupted as error:
                damage = error
            else:
                self._check_is_same_log(manifest.identity)
                return manifest
        raise damage

    def _check_is_same_log(self, identity: LogIdentity | None) -> None:
        found = identity.identity if identity else None  # None: an older program's log, which may be upgraded yet.
        if self._log not in (None, found):
            raise DirectoryReplaced(self._layout.root, "the files of another log are in it now")
        self._log = found

    def _load_if_changed(self) -> Manifest:
        """Return the current manifest, decoded again only if its header, with generation and checksum, is another."""
        slot = self._slots.current()
        if slot in (_FIRST_SLOT, _SECOND_SLOT) and self._fs.exists(self._slots.path(slot)):
            head = self._slots.read(slot, HEADER_SIZE - 1)
            if self._seen is None or self._seen[0] != head:
                self._seen = head, self.load()
            return self._seen[1]
        return self.load()

    def store(self, manifest: Manifest) -> None:
        """Make `manifest` the current one.  Durable on return."""
        self.publish(self.write(manifest))

    def write(self, manifest: Manifest) -> int:
        """Write a whole new copy into the slot that is not current, and return that.  If it fails, nothing changed."""
        current = self._slots.current()
        slot = _SECOND_SLOT if current == _FIRST_SLOT else _FIRST_SLOT
        front = encode_front(manifest)
        kept = self._kept_bytes(slot, manifest.entries, len(front))
        pieces = [(0, front), (len(front) + kept, manifest.entries.raw(kept))]
        self._written.pop(slot, None)
        self._slots.write(slot, pieces, len(front) + manifest.entries.byte_count)
        self._written[slot] = (manifest.entries, len(front))
        return slot

    def publish(self, slot: int) -> None:
        """Make a slot that was written the current one.

        If that fails, either may count: nothing may be written any more.
        """
        self._slots.publish(slot)

    def is_unfinished_creation(self) -> bool:
        """Say whether nothing here could ever have held a record.

        Creation writes the identity, slot 1, the pointer, and then the first segment; so before the pointer there is
        at most a first, empty manifest, and no segment.  A new pointer whose length reached the disk before its byte
        is 0.
        """
        if self._slots.current() not in (None, 0) or self._fs.exists(self._slots.path(_SECOND_SLOT)):
            return False
        if self._fs.list(self._layout.segments):
            return False
        if not self._fs.exists(self._slots.path(_FIRST_SLOT)):
            return True
        try:
            return self._decode(_FIRST_SLOT).is_first
        except ManifestCorrupted:
            return True

    def check_versions(self) -> None:
        """Do nothing unless one of the slots, whichever counts, was written by a later program.

        Raises:
            UnsupportedVersion: it was.
        """
        for slot in (_FIRST_SLOT, _SECOND_SLOT):
            path = self._slots.path(slot)
            if self._fs.exists(path):
                check_version(self._slots.read(slot, VERSION_END - 1), path)

    def _decode(self, slot: int) -> Manifest:
        path = self._slots.path(slot)
        try:
            raw = self._slots.read(slot, MANIFEST_BYTES_MAX)
        except NotFoundError as error:
            raise ManifestCorrupted("the current slot is missing", path, 0) from error
        if len(raw) > MANIFEST_BYTES_MAX:
            raise ManifestCorrupted("the manifest is too large to be one", path, MANIFEST_BYTES_MAX)
        return decode(raw, path)

    def _kept_bytes(self, slot: int, entries: EntryTable, front_bytes: int) -> int:
        """Return how many bytes of entries the slot already holds in their place."""
        written, start = self._written.get(slot, (None, 0))
        if written is None or start != front_bytes or not entries.extends(written):
            return 0
        return written.byte_count


def first_manifest(layout: Layout, created_ns: int, first_sequence: int, identity: LogIdentity) -> Manifest:
    """Return the manifest of a log without records, whose first segment is still to be made."""
    active = ActiveSegment(0, SEGMENT_HEADER_SIZE, 0, segment_path(0, created_ns))
    return Manifest(1, first_sequence, active, EntryTable.empty(layout.root / "manifest.1"), 0, identity)
