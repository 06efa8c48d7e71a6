"""System calls that come in groups, natively if there is a native kernel.

A thread gives the GIL up for a system call, and on a busy interpreter takes longer to get it back than the call
took.  So what the log does for every batch and every checkpoint is one call each.
"""

import errno
import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

from latewood.kernel import NAME

if TYPE_CHECKING:
    from latewood._native import pwrite_all, sync_and_note

__all__ = ["NOTE_SYNC", "NOTE_WRITE", "SYNC", "pwrite_all", "sync_and_note"]

SYNC: Final = 1
NOTE_WRITE: Final = 2
NOTE_SYNC: Final = 3


def _pwrite_all(
    descriptor: int, data: "bytes | bytearray | memoryview", offset: int, piece_bytes: int, head_bytes: int
) -> int:
    view = memoryview(data)
    try:
        at = head_bytes
        while at < view.nbytes:
            piece = piece_bytes - (offset + at) % piece_bytes
            at += os.pwrite(descriptor, view[at : at + piece], offset + at)
        at = 0
        while at < min(head_bytes, view.nbytes):
            at += os.pwrite(descriptor, view[at:head_bytes], offset + at)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _sync_and_note(
    descriptor: int,
    whole: bool,  # noqa: FBT001
    note: int,
    data: bytes,
    durable: bool,  # noqa: FBT001
) -> tuple[int, int]:
    try:
        (os.fsync if whole else os.fdatasync)(descriptor)
    except OSError as error:
        return SYNC, error.errno or errno.EIO
    if number := _pwrite_all(note, data, 0, len(data), 0):
        return NOTE_WRITE, number
    try:
        if durable:
            os.fdatasync(note)
    except OSError as error:
        return NOTE_SYNC, error.errno or errno.EIO
    return 0, 0


if not TYPE_CHECKING:
    if NAME == "native":
        _native = import_module("latewood._native")  # Not `from latewood`: that package stands above this one.
        pwrite_all, sync_and_note = _native.pwrite_all, _native.sync_and_note
    else:
        pwrite_all, sync_and_note = _pwrite_all, _sync_and_note
