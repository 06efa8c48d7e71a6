"""The only code that opens, maps, syncs or renames files."""

from latewood.fs.atomic import DualSlot, replace_file
from latewood.fs.base import File, FileSystem, Lock, Mapping
from latewood.fs.fork import Abandonable, OwnLock, close_after_fork, forked, keep_for_ever
from latewood.fs.posix import PosixFS

__all__ = [
    "Abandonable",
    "DualSlot",
    "File",
    "FileSystem",
    "Lock",
    "Mapping",
    "OwnLock",
    "PosixFS",
    "close_after_fork",
    "forked",
    "keep_for_ever",
    "replace_file",
]
