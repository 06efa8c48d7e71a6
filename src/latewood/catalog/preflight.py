"""A look at the file before LMDB maps it: LMDB trusts what it maps, and a damaged file can kill the process.

Reads the two meta pages only.  LMDB's meta page, data format 1, from byte 16 of page 0 and of page 1; of its
`META_SIZE` bytes these are looked at:

| offset | size | field     | type  | meaning                                         |
| -----: | ---: | --------- | ----- | ----------------------------------------------- |
|      0 |    4 | magic     | u32   | 0xBEEFC0DE                                      |
|      4 |    4 | version   | u32   | 1                                               |
|      8 |   16 | skipped   | [u8]  | address, map size                               |
|     24 |    4 | page_size | u32   | the free list's md_pad                          |
|     28 |   92 | skipped   | [u8]  | the rest of free list and main database         |
|    120 |    8 | last_page | u64   | the last page in use                            |
|    128 |    8 | txn_id    | u64   | of the commit; the page with the larger one counts |

Little-endian, as the machine is.  Commits take turns: even ones write page 0, odd ones page 1.  So the two ids are
neighbours, each in its page.  If they are not, one is damaged, and LMDB would go back to the commit before without a
word.  Format: docs/format/catalog.md
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from latewood.errors import CatalogCorrupted, UnavailableError, UnsupportedVersion
from latewood.fs import File, FileSystem

META_SIZE: Final = 136
_META_OFFSET: Final = 16
_PAGE_BYTES_DEFAULT: Final = 4096
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_LOOKS_MAX: Final = 1000
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
        CatalogCorrupted: it is no LMDB file, is cut off within its first pages, or these are damaged.
        UnsupportedVersion: it has LMDB's later data format.
    """
    if not fs.exists(path):
        return FileState(0)
    file = fs.open(path)
    try:
        if not file.size():
            return FileState(0)
        first, second = _metas(file, path)
        size = file.size()
    finally:
        file.close()
    if not _are_neighbours(first.txn_id, second.txn_id):
        reason = f"its two meta pages are of the commits {first.txn_id} and {second.txn_id}, which are no neighbours"
        raise CatalogCorrupted(reason, path, "", b"")
    latest = max(first, second)
    return FileState(size, is_short=size < (latest.last_page + 1) * first.page_bytes)


class _Meta(NamedTuple):
    txn_id: int
    last_page: int
    page_bytes: int


def _metas(file: File, path: Path) -> tuple[_Meta, _Meta]:
    """Return both meta pages as of one moment: a writer may be at work."""
    first = _meta(file.pread(_META_OFFSET + META_SIZE, 0), path)
    for _ in range(_LOOKS_MAX):
        second = _meta(file.pread(_META_OFFSET + META_SIZE, first.page_bytes), path)
        before, first = first, _meta(file.pread(_META_OFFSET + META_SIZE, 0), path)
        if first == before:
            return first, second
    message = f"{path} is written faster than it can be read"
    raise UnavailableError(message)


def _are_neighbours(first: int, second: int) -> bool:
    is_new = first == second == 0
    return is_new or (first % 2 == 0 and abs(first - second) == 1)


def _meta(page: bytes, path: Path) -> _Meta:
    """Return what a meta page says."""
    if len(page) < _META_OFFSET + META_SIZE:
        raise CatalogCorrupted("the file ends within its first pages", path, "", b"")
    magic, version, page_bytes, last_page, txn_id = _LAYOUT.unpack_from(page, _META_OFFSET)
    if magic != _MAGIC:
        raise CatalogCorrupted("this is no LMDB file, or its first pages are damaged", path, "", b"")
    if version != _VERSION:
        raise UnsupportedVersion("LMDB data format", version, path)
    if page_bytes < _PAGE_BYTES_DEFAULT // 8 or page_bytes & (page_bytes - 1):
        raise CatalogCorrupted(f"pages of {page_bytes} bytes cannot be", path, "", b"")
    return _Meta(txn_id, last_page, page_bytes)
