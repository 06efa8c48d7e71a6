"""The only code that opens, maps, syncs or renames files."""

from latewood.fs.atomic import DualSlot, replace_file
from latewood.fs.base import File, FileSystem, Lock, Mapping
from latewood.fs.posix import PosixFS

__all__ = [
    "DualSlot",
    "File",
    "FileSystem",
    "Lock",
    "Mapping",
    "PosixFS",
    "replace_file",
]
