"""Manifests as version 1 wrote them, so that any log can be made one of version 1 again."""

import struct
from contextlib import suppress
from pathlib import Path

from latewood.errors import CorruptError, NotFoundError
from latewood.format import cursor
from latewood.format.manifest import Manifest, decode
from latewood.fs import FileSystem
from latewood.kernel import crc32c
from latewood.log.layout import Layout
from latewood.queue.cursor import cursor_names, cursor_path, load_cursor


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest without watermark, identity and cohorts."""
    entries = b""
    for index in range(len(manifest.entries)):
        entry = manifest.entries[index]
        path = entry.path.encode()
        entries += struct.pack("<QQQH", entry.start_sequence, entry.end_sequence, entry.size, len(path)) + path
    head = struct.pack("<4sIQII", b"QMFT", 1, manifest.next_sequence, len(manifest.entries), 0)
    path = manifest.active.path.encode()
    front = head + struct.pack("<Q", manifest.generation)
    front += struct.pack("<IQQH", *manifest.active[:3], len(path)) + path
    checksum = crc32c(front, crc32c(entries))
    return front[:20] + checksum.to_bytes(4, "little") + front[24:] + entries


def downgrade(fs: FileSystem, root: Path) -> None:
    """Make a log that nobody has open what version 1 would have left, durably: also one that a crash left half made."""
    layout = Layout(root)
    for slot in (root / "manifest.1", root / "manifest.2"):
        with suppress(CorruptError, NotFoundError):
            _rewrite(fs, slot, encode_manifest(decode(_contents(fs, slot), slot)))
    for path in (layout.identity, root / "identity.tmp"):
        if fs.exists(path):
            fs.remove(path)
    fs.sync_directory(root)
    for name in cursor_names(fs, layout.readers):
        path = cursor_path(layout.readers, name)
        found = load_cursor(fs, path)
        assert found is not None
        slot_1 = cursor.encode(found._replace(mark=None))
        at = cursor.SLOT_OFFSETS[cursor.slot_of(found.generation)]
        _rewrite(fs, path, bytes(at) + slot_1.ljust(cursor.SLOT_OFFSETS[1] + cursor.SIZE_1 - at, b"\0"))


def _contents(fs: FileSystem, path: Path) -> bytes:
    file = fs.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _rewrite(fs: FileSystem, path: Path, data: bytes) -> None:
    file = fs.open(path, write=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.sync()
    file.close()
