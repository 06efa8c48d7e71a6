"""The manifest's entries as they stand on disk, decoded one at a time.

Entry of a sealed segment, `ENTRY_SIZE` bytes and its path:

| offset | size | field     | type | meaning                                      |
| -----: | ---: | --------- | ---- | -------------------------------------------- |
|      0 |    8 | start_seq | u64  | first sequence                               |
|      8 |    8 | end_seq   | u64  | last sequence                                |
|     16 |    8 | size      | u64  | file size in bytes                           |
|     24 |    8 | ext_id    | u64  | cohort of the segment, as in its header      |
|     32 |    4 | seal_checksum | u32 | checksum of the segment's footer; 0: unknown |
|     36 |    2 | path_len  | u16  | bytes of path                                |
|     38 |    N | path      | [u8] | UTF-8, relative to the log                   |

In a manifest of version 1, `ENTRY_1_SIZE` bytes and its path:

| offset | size | field     | type | meaning                                      |
| -----: | ---: | --------- | ---- | -------------------------------------------- |
|      0 |    8 | start_seq | u64  | first sequence                               |
|      8 |    8 | end_seq   | u64  | last sequence                                |
|     16 |    8 | size      | u64  | file size in bytes                           |
|     24 |    2 | path_len  | u16  | bytes of path                                |
|     26 |    N | path      | [u8] | UTF-8, relative to the log                   |

A log may have a hundred thousand sealed segments; opening it must not decode them.  The table keeps their
bytes and finds an entry by arithmetic where all have the same length, which is so until segment ids pass nine
digits; then it walks them once.

The bytes are shared between successive manifests, which only add at the end: a table sees its own stretch
of them, so it is an immutable value all the same.  One thread, the log's writer, calls `append`.
"""

import re
import struct
from bisect import bisect_right
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import ManifestCorrupted
from latewood.kernel import crc32c

ENTRY_SIZE: Final = 38
ENTRY_1_SIZE: Final = 26
_LAYOUT: Final = struct.Struct(
    "<"
    "Q"  # start_seq
    "Q"  # end_seq
    "Q"  # size
    "Q"  # ext_id
    "I"  # seal_checksum
    "H"  # path_len
)
assert _LAYOUT.size == ENTRY_SIZE
_LAYOUT_1: Final = struct.Struct(
    "<"
    "Q"  # start_seq
    "Q"  # end_seq
    "Q"  # size
    "H"  # path_len
)
assert _LAYOUT_1.size == ENTRY_1_SIZE
_SHOWN_MAX: Final = 80
"""So many bytes of a path that is none are in the error."""


_PATH: Final = re.compile(r"segments/(?:(?!\.\.?/)[^/\0]+/)*[0-9]{9,10}\.q")
"""A segment's file, in directories below `segments`: nothing else is believed, whatever the checksum says.

A log gives the day as directories; a rebuild lists segments wherever below `segments` they are.
"""


def decode_path(raw: bytes | bytearray, path: Path, offset: int) -> str:
    """Return the path of a segment, from the manifest `path`.

    Raises:
        ManifestCorrupted: it is none.
    """
    decoded = raw.decode(errors="replace")
    if not _PATH.fullmatch(decoded) or decoded.encode() != raw:
        raise ManifestCorrupted(f"{bytes(raw[:_SHOWN_MAX])!r} is not the path of a segment", path, offset)
    return decoded


class SegmentEntry(NamedTuple):
    """One sealed segment, as the manifest knows it."""

    start_sequence: int
    end_sequence: int
    """The last sequence, included."""
    size: int
    ext_id: int
    """The cohort of its records; 0 also where a manifest of version 1 does not say."""
    seal_checksum: int
    """The checksum of its footer; 0: it is not known, as in a manifest of version 1, and not compared."""
    path: str

    @property
    def segment_id(self) -> int:
        """The number in the file's name."""
        return int(self.path.rpartition("/")[2].partition(".")[0])


def encode_entry(entry: SegmentEntry) -> bytes:
    """Return one entry's bytes."""
    path = entry.path.encode()
    return _LAYOUT.pack(*entry[:5], len(path)) + path


class EntryTable:
    """A sequence of entries, oldest first."""

    def __init__(
        self,
        raw: bytearray,
        count: int,
        checksum: int,
        path: Path,
        stop: int | None = None,
        *,
        is_version_1: bool = False,
    ) -> None:
        """See the first `stop` bytes of `raw`, by default all of them, as `count` entries."""
        self._raw, self._stop = raw, len(raw) if stop is None else stop
        self._count, self._path = count, path
        self.is_version_1 = is_version_1
        """Whether it was read from a manifest of version 1.  Such a table is only read."""
        self._layout = _LAYOUT_1 if is_version_1 else _LAYOUT
        self.checksum = checksum
        self._offsets: list[int] | None = None
        self._stride = self._uniform_stride()

    @classmethod
    def empty(cls, path: Path) -> "EntryTable":
        """Return a table without entries; `path` names the manifest in errors."""
        return cls(bytearray(), 0, 0, path)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> SegmentEntry:
        """Decode one entry.

        Raises:
            IndexError: there is none.
            ManifestCorrupted: the bytes do not make an entry.
        """
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._decode(self._offset(index))

    def raw(self, start: int = 0) -> bytes:
        """Return the entries' bytes from byte `start` on."""
        return bytes(memoryview(self._raw)[start : self._stop])

    def extends(self, other: "EntryTable") -> bool:
        """Say whether this table is `other` with entries added at the end."""
        return other.is_start_of(self._raw) and self.byte_count >= other.byte_count

    def is_start_of(self, raw: bytearray) -> bool:
        """Say whether these are the bytes that the table is a stretch of."""
        return self._raw is raw

    @property
    def byte_count(self) -> int:
        """Bytes of all entries."""
        return self._stop

    def append(self, entry: SegmentEntry) -> "EntryTable":
        """Return a table with one entry more."""
        assert not self.is_version_1
        encoded = encode_entry(entry)
        raw = self._raw if len(self._raw) == self._stop else self._raw[: self._stop]
        raw += encoded
        return EntryTable(raw, self._count + 1, crc32c(encoded, self.checksum), self._path, len(raw))

    def without_first(self, count: int) -> "EntryTable":
        """Return a table without the `count` oldest entries."""
        assert not self.is_version_1
        start = self._offset(count) if count < self._count else self._stop
        raw = self._raw[start : self._stop]
        return EntryTable(raw, self._count - count, crc32c(raw), self._path)

    def index_of_sequence(self, sequence: int) -> int:
        """Return the index of the last entry that starts at or before `sequence`, or -1."""
        return bisect_right(self, sequence, key=lambda entry: entry.start_sequence) - 1

    def index_after_segment(self, segment_id: int) -> int:
        """Return the index of the first entry whose id is above `segment_id`."""
        return bisect_right(self, segment_id, key=lambda entry: entry.segment_id)

    def _uniform_stride(self) -> int:
        if not self._count:
            self._check(self._stop == 0, 0)
            return 0
        first = self._entry_bytes(0)
        return first if first * self._count == self._stop else 0

    def _offset(self, index: int) -> int:
        if self._stride:
            return index * self._stride
        if self._offsets is None:
            self._offsets = self._walk()
        return self._offsets[index]

    def _walk(self) -> list[int]:
        offsets, at = [], 0
        for _ in range(self._count):
            offsets.append(at)
            at += self._entry_bytes(at)
        self._check(at == self._stop, at)
        return offsets

    def _entry_bytes(self, at: int) -> int:
        self._check(at + self._layout.size <= self._stop, at)
        return self._layout.size + int(self._layout.unpack_from(self._raw, at)[-1])

    def _decode(self, at: int) -> SegmentEntry:
        end = at + self._entry_bytes(at)
        self._check(end <= self._stop and self._stride in (0, end - at), at)
        start, last, size, *facts, _ = self._layout.unpack_from(self._raw, at)
        path = decode_path(self._raw[at + self._layout.size : end], self._path, at)
        ext_id, seal_checksum = facts or (0, 0)
        return SegmentEntry(start, last, size, ext_id, seal_checksum, path)

    def _check(self, sound: bool, at: int) -> None:  # noqa: FBT001 - an assertion, not a mode
        if not sound:
            raise ManifestCorrupted("an entry of the manifest is cut short", self._path, at)
