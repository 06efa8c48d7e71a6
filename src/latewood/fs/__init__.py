"""The only code that opens, maps, syncs or renames files."""

from latewood.fs.atomic import DualSlot, replace_file
from latewood.fs.base import File, FileSystem, Lock, Mapping
from latewood.fs.descriptors import check_free, check_room, descriptors_max, reserve_of
from latewood.fs.posix import PosixFS

__all__ = [
    "DualSlot",
    "File",
    "FileSystem",
    "Lock",
    "Mapping",
    "PosixFS",
    "check_free",
    "check_room",
    "descriptors_max",
    "replace_file",
    "reserve_of",
]
