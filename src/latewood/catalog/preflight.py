"""A look at the file before LMDB maps it: LMDB trusts what it maps, and a damaged file can kill the process.

Reads the two meta pages only.  LMDB's meta page, data format 1, from byte 16 of page 0 and of page 1; of its
`META_SIZE` bytes these are looked at:

| offset | size | field     | type  | meaning                                       |
| -----: | ---: | --------- | ----- | --------------------------------------------- |
|      0 |    4 | magic     | u32   | 0xBEEFC0DE                                    |
|      4 |    4 | version   | u32   | 1                                             |
|      8 |   16 | skipped   | [u8]  | address, map size                             |
|     24 |    4 | page_size | u32   | the free list's md_pad                        |
|     28 |   92 | skipped   | [u8]  | the rest of free list and main database       |
|    120 |    8 | last_page | u64   | the last page in use                          |
|    128 |    8 | txn_id    | u64   | the larger of the two counts                  |

Little-endian, as the machine is.  Format: docs/format/catalog.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CatalogCorrupted, UnsupportedVersion
from latewood.fs import FileSystem

META_SIZE: Final = 136
_META_OFFSET: Final = 16
_PAGE_BYTES_DEFAULT: Final = 4096
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_LAYOUT: Final = struct.Struct("<II16xI92xQQ")
assert _LAYOUT.size == META_SIZE


class FileState(NamedTuple):
    """What the file looks like from outside."""

    file_bytes: int
    """0: there is none yet."""
    is_short: bool = False
    """It ends before the last page in use.  That can be, but can also be damage: check it in a child process first."""


def look_at(fs: FileSystem, path: Path) -> FileState:
    """Return what a catalog's file looks like.

    Raises:
        CatalogCorrupted: it is no LMDB file, or is cut off within its first pages.
        UnsupportedVersion: it has LMDB's later data format.
    """
    if not fs.exists(path):
        return FileState(0)
    file = fs.open(path)
    try:
        size = file.size()
        head = file.pread(_META_OFFSET + META_SIZE, 0)
        if not size:
            return FileState(0)
        page_bytes, *first = _meta(head, path)
        second = _meta(file.pread(_META_OFFSET + META_SIZE, page_bytes), path)[1:]
    finally:
        file.close()
    _, last_page = max(tuple(first), second)
    return FileState(size, is_short=size < (last_page + 1) * page_bytes)


def _meta(page: bytes, path: Path) -> tuple[int, int, int]:
    """Return page size, transaction id and last page in use, from a meta page."""
    if len(page) < _META_OFFSET + META_SIZE:
        raise CatalogCorrupted("the file ends within its first pages", path, "", b"")
    magic, version, page_bytes, last_page, txn_id = _LAYOUT.unpack_from(page, _META_OFFSET)
    if magic != _MAGIC:
        raise CatalogCorrupted("this is no LMDB file, or its first pages are damaged", path, "", b"")
    if version != _VERSION:
        raise UnsupportedVersion("LMDB data format", version, path)
    if page_bytes < _PAGE_BYTES_DEFAULT // 8 or page_bytes & (page_bytes - 1):
        raise CatalogCorrupted(f"pages of {page_bytes} bytes cannot be", path, "", b"")
    return page_bytes, txn_id, last_page
