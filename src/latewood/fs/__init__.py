"""The only code that opens, maps, syncs or renames files."""

from latewood.fs.atomic import DualSlot, replace_file
from latewood.fs.base import File, FileSystem, Lock, Mapping
from latewood.fs.fork import Abandonable, close_after_fork
from latewood.fs.posix import PosixFS

__all__ = [
    "Abandonable",
    "DualSlot",
    "File",
    "FileSystem",
    "Lock",
    "Mapping",
    "PosixFS",
    "close_after_fork",
    "replace_file",
]
